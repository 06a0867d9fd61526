"""`bench size`: how many instances and GPUs a peak takes, what they should refuse, and what they cost."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli.checks import known_accelerators, refuse_strange_classes
from bench.cli.entry import command
from bench.cli.options import SLO, AcceleratorName, Hardware, Json, at_least_one, number, option, positive
from bench.cli.output import print_json, print_table
from bench.errors import BenchError, shown_share

if TYPE_CHECKING:
    import polars as pl

    from bench.analysis import OperatingPoint

_GIVEN = "Given numbers, in place of RESULTS"
_CHARTS = (".svg", ".png", ".json")
_COSTS = {
    "hour": "USD an hour",
    "month": "USD a month",
    "worth_of_tokens_an_hour_at_peak": "USD an hour that the API would take at the peak",
    "million_output_tokens_at_peak": "USD a million output tokens, at the peak all day",
    "break_even_million_tokens_a_month": "million output tokens a month to break even with the API",
}


def _share(text: str) -> float:
    value = number(text)
    if not 0 <= value <= 1:
        raise typer.BadParameter(f"{text!r} is not between 0 and 1.")
    return value


def _safety(text: str) -> float:
    value = number(text)
    if not 1 <= value < math.inf:
        raise typer.BadParameter(f"{text!r} is not a number of 1 or more; 1 means no spare GPU.")
    return value


@command(
    "bench size results:tiny-mha --slo ttft_p99=2s --peak-rps 100 --price-per-hour 1.50",
    "bench size results --slo ttft_p95=1s --slo tpot_p95=40ms --peak-rps 1000 --chart fleet.svg",
    "bench size --usable-rps 12 --gpus 4 --safety 1.3 --peak-rps 120 --accelerator h100",
)
@dataclass(frozen=True, kw_only=True)
class Size:
    """The load that one instance carries while it meets its SLOs is read from RESULTS, or given by --usable-rps."""

    peak_rps: Annotated[float, option("N", "Requests/s of the busiest moment.", parser=positive)]
    results: Annotated[
        str | None,
        typer.Argument(
            metavar="[RESULTS]",
            help="A folder with results, a summary.parquet, or one of them with :DEPLOYMENT.",
            show_default="the study in this folder",
        ),
    ] = None
    slo: Annotated[list[str] | None, option("LIMIT", SLO)] = None
    workload: Annotated[str | None, option("NAME", "The workload, where RESULTS has several.")] = None
    failed_share: Annotated[
        float,
        option("SHARE", "Largest share of requests that may fail at a load that an instance carries, 0 to 1.", parser=_share),
    ] = 0.01
    gpus: Annotated[
        int | None,
        option(
            "N",
            "GPUs of an instance: tensor × pipeline × data parallelism.",
            None,
            "--gpus",
            "--tensor-parallel",
            parser=at_least_one,
            default="that of RESULTS, or 1",
        ),
    ] = None
    safety: Annotated[float, option("FACTOR", "GPUs as a multiple of what the peak takes.", parser=_safety)] = 1.3
    accelerator: AcceleratorName = None
    price_per_hour: Annotated[
        float | None, option("USD", "Of one GPU, in place of the accelerator's price.", parser=positive)
    ] = None
    api_price: Annotated[
        float | None,
        option("USD", "Of 10⁶ output tokens elsewhere, for the point where costs break even.", parser=positive),
    ] = None
    chart: Annotated[
        Path | None,
        option("FILE", "Draw how the fleet grows with the peak (.svg, .png or .json)."),
    ] = None
    hardware: Hardware = None
    json: Json = False
    usable_rps: Annotated[float | None, option("N", "Requests/s that one instance carries.", _GIVEN, parser=positive)] = None
    c_max: Annotated[float | None, option("N", "Requests in flight there.", _GIVEN, parser=positive)] = None
    latency: Annotated[
        float | None, option("SECONDS", "Mean E2E latency there, for Little's law.", _GIVEN, parser=positive)
    ] = None
    prompt_length: Annotated[float | None, option("TOKENS", "Mean of a prompt.", _GIVEN, parser=positive)] = None
    output_length: Annotated[float | None, option("TOKENS", "Mean of an output, for costs.", _GIVEN, parser=positive)] = None
    kv_tokens: Annotated[int | None, option("TOKENS", "KV capacity of an instance.", _GIVEN, parser=at_least_one)] = None

    def run(self) -> None:
        """Print what the peak takes."""
        from bench.analysis import is_machine, sized
        from bench.cli.sources import capacity_of, with_goodput
        from bench.models.accelerators import accelerator_named
        from bench.study.decision import Decision
        from bench.study.slo import parse_slo
        from bench.words.capacity import with_texts

        slos = [parse_slo(text) for text in self.slo or []]
        self._refuse_contradictions()
        price = self.price_per_hour
        if price is None and self.accelerator is not None:
            price = accelerator_named(self.accelerator, known_accelerators(self.hardware)).price_per_hour
            if price is None:
                raise BenchError(f"--accelerator {self.accelerator} has no price here; give --price-per-hour.")
        measured: dict[str, Any] | None = None
        if self.usable_rps is not None:
            point, device, machine = self._given(self.usable_rps), None, False
        else:
            runs, deployment = self._runs()
            # without its limit the curve of a rate would be sized by none
            refuse_strange_classes(slos, _classes(runs, deployment), "these runs do")
            decision = Decision(slo=self.slo or [], failed_share=self.failed_share)
            points = capacity_of(runs, self.results or "results", decision)
            point, measured = _measured(runs, points, deployment)
            runs = runs.filter(runs["deployment"] == measured["deployment"])
            device = runs["device"][0]
            point = _with_gpus(point, self.gpus, measured["deployment"])
            machine = is_machine(runs.row(0, named=True))
            if self.accelerator is not None and machine:
                raise BenchError(
                    f"--accelerator {self.accelerator}: the results are of an engine on a CPU, and a GPU's price is not theirs. Give "
                    "--price-per-hour, of the machine."
                )
            if self.chart is not None:
                runs = with_goodput(runs, self.results or "results", slos)
                self._draw(self.chart, runs if self.gpus is None else runs.with_columns(gpus=0 if machine else self.gpus))
        fleet = {
            **sized(point, self.peak_rps, safety=self.safety, slos=slos, gpu_hour=price, token_price=self.api_price),
            "device": device,
        }
        if self.json:
            print_json(
                {**fleet, "evidence": {"source": "measured", **with_texts(measured)} if measured else {"source": "given"}}
            )
        else:
            _print(fleet, measured, machine=machine)

    def _refuse_contradictions(self) -> None:
        if self.usable_rps is not None and self.results is not None:
            raise BenchError("RESULTS and --usable-rps both say what one instance carries; give one of them.")
        if self.usable_rps is None:
            for name in ("c_max", "latency", "prompt_length", "output_length", "kv_tokens"):
                if getattr(self, name) is not None:
                    lengths = " Traffic that was not measured: bench fleet." if name.endswith("length") else ""
                    raise BenchError(f"--{name.replace('_', '-')} belongs to --usable-rps; from results it is read.{lengths}")
            if not self.slo:
                raise BenchError(
                    "--slo is missing: from results, the operating point is the highest load that meets one, such as ttft_p99=2s."
                )
        elif self.workload is not None:
            raise BenchError("--workload chooses among results; it says nothing beside --usable-rps.")
        elif self.chart is not None:
            raise BenchError("--chart is drawn from measured curves; give RESULTS in place of --usable-rps.")
        if self.chart is not None and not self.chart.parent.is_dir():
            raise BenchError(f"--chart {self.chart}: there is no folder {self.chart.parent}.")
        if self.chart is not None and self.chart.suffix not in _CHARTS:
            raise BenchError(f"--chart {self.chart}: its name ends in {', '.join(_CHARTS[:2])} or {_CHARTS[2]}.")
        if self.api_price is not None and self.price_per_hour is None and self.accelerator is None:
            raise BenchError("--api-price needs what our own GPUs cost: --price-per-hour or --accelerator.")

    def _given(self, usable_rps: float) -> OperatingPoint:
        from bench.analysis import OperatingPoint

        if self.c_max and self.prompt_length and self.output_length and self.kv_tokens:
            held = self.c_max * (self.prompt_length + self.output_length)
            if held > self.kv_tokens:
                raise BenchError(
                    f"--c-max {self.c_max:g} requests of {self.prompt_length:g} + {self.output_length:g} tokens are {held:,.0f}, "
                    f"more than --kv-tokens {self.kv_tokens:,}: they were never in flight at once."
                )

        return OperatingPoint(
            usable_rps,
            self.gpus or 1,
            c_max=self.c_max,
            latency_s=self.latency,
            prompt_tokens=self.prompt_length,
            output_tokens=self.output_length,
            kv_tokens=self.kv_tokens,
        )

    def _runs(self) -> tuple[pl.DataFrame, str | None]:
        """The rows of a workload, with all deployments, whose repeats tell of noise; and the deployment that is meant."""
        from bench.cli.sources import read_named

        runs, deployment = read_named(self.results or "results")
        if self.workload is not None:
            if self.workload not in runs["workload"]:
                known = ", ".join(runs["workload"].unique(maintain_order=True))
                raise BenchError(f"--workload {self.workload}: the results have {known}.")
            runs = runs.filter(runs["workload"] == self.workload)
        return runs, deployment

    def _draw(self, chart: Path, runs: pl.DataFrame) -> None:
        import polars as pl

        from bench.figures.results import Results
        from bench.figures.save import save_figure
        from bench.study.decision import Decision

        decision = Decision(slo=self.slo or [], failed_share=self.failed_share, peak_rps=self.peak_rps, safety=self.safety)
        with TemporaryDirectory() as folder:  # a figure is several files; others beside the one that is wanted are not ours
            paths = save_figure("fleet", Results(runs, pl.DataFrame(), None, decision), Path(folder, "fleet"))
            chart.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(next(path for path in paths if path.suffix == chart.suffix), chart)


def _classes(runs: pl.DataFrame, deployment: str | None) -> list[str]:
    """Of all deployments where None is given."""
    from bench.runs.classes import class_names

    selected = runs if deployment is None else runs.filter(runs["deployment"] == deployment)
    return list(dict.fromkeys(name for text in selected["classes"].unique(maintain_order=True) for name in class_names(text)))


def _measured(runs: pl.DataFrame, points: pl.DataFrame, deployment: str | None) -> tuple[OperatingPoint, dict[str, Any]]:
    from bench.analysis import OperatingPoint
    from bench.words.sizing import next_step, no_point

    points = points if deployment is None else points.filter(points["deployment"] == deployment)
    if points.height != 1:
        curves = ", ".join(f"{row['deployment']} with {row['workload']}" for row in points.iter_rows(named=True))
        raise BenchError(
            f"one curve is sized at a time; name it as RESULTS:DEPLOYMENT and with --workload. There are: {curves or 'none'}."
        )
    row = points.row(0, named=True)
    point = OperatingPoint.of(row, runs.filter(runs["deployment"] == row["deployment"]).row(0, named=True))
    if point is None:
        if row["basis"] == "burst" and row["c_max"] is not None:
            raise BenchError(
                f"{row['deployment']} with {row['workload']}: a burst does not show what an instance carries in the long run. "
                "Measure a closed or an open loop (`arrival: closed`, `poisson`), and size that."
            )
        raise BenchError(f"{row['deployment']} with {row['workload']}: {no_point(row)}. {next_step(row)}".rstrip())
    return point, row


def _with_gpus(point: OperatingPoint, given: int | None, deployment: str) -> OperatingPoint:
    """The point with the GPUs that are given, where the results do not say them; others than the results say are refused."""
    if given is not None and point.gpus not in (None, given):
        raise BenchError(f"--gpus {given}: an instance of {deployment} has {point.gpus}, as the results say; leave --gpus out.")
    return point if given is None else replace(point, gpus=given)


def _print(fleet: dict[str, Any], measured: dict[str, Any] | None, *, machine: bool) -> None:
    """Args: measured: the row of `operating_points` that was sized; None of one that was given."""
    from bench.words.sizing import UNKNOWN_GPUS, ends, little, meets

    if measured:
        print(f"{meets(measured)}\n")
    rows = [
        ["instances", f"{fleet['instances']:,}"],
        [f"{'machines' if machine else 'GPUs'}, with the safety factor {fleet['safety']:g}", _count(fleet["gpus"])],
        ["usable requests/s of an instance", f"{fleet['usable_rps']:.3g}"],
    ]
    if measured and measured["goodput_rps"] is not None:
        rows.append(["goodput of an instance there, requests/s", f"{measured['goodput_rps']:.3g}"])
    if measured:
        rows.append(["instances at 95 % confidence", ends(fleet["instances_least"], fleet["instances_most"])])
    rows.append(["load of the fleet at the peak (60–80 % is wanted)", shown_share(fleet["utilisation_at_peak"])])
    limit = fleet["limits"]
    if limit["queue"] is not None:
        rows += [
            ["longest queue of an instance", f"{limit['queue']:,}"],
            ["shed load from, and all at", f"{limit['shed_from']:,}, {limit['shed_at']:,}"],
        ]
    if limit["admission"] is not None:
        rows.append(["requests in flight to admit", f"{limit['admission']:,}"])
    if limit["input_tokens"] is not None:
        rows.append(["longest prompt to admit (tokens)", f"{limit['input_tokens']:,}"])
    if limit["kv_free_tokens"] is not None:
        rows.append(["10 to 15 % of the KV tokens", "{:,} to {:,}".format(*limit["kv_free_tokens"])])
    rows += [[_COSTS[key], f"{value:,.2f}"] for key, value in (fleet["cost"] or {}).items() if key in _COSTS]
    print_table(rows, head=False)
    if fleet["gpus"] is None:
        print(f"\n{UNKNOWN_GPUS}")
    if fleet["consistent"] is False:
        print(f"\n{little(fleet['little'])}")


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"

"""`bench traffic`: what an access log says of the traffic, and loads that are like it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli.entry import command
from bench.cli.options import Json, option, positive
from bench.cli.output import print_json, print_table
from bench.errors import BenchError, count_text, shown_share, three_digits

if TYPE_CHECKING:
    from bench.beside.traffic.log import Log

_READ, _WRITE = "How the log is read", "What is written"


@command(
    "bench traffic access.csv",
    "bench traffic access.jsonl --columns arrival=ts:ms,prompt=n_in+n_cached,output=n_out,status=code",
    "bench traffic access.csv --scale 3 --output my-load --configfile my-study.yaml",
)
@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Reads when each request came and how long its prompt and answer were, and prints rates, dispersion and lengths. With --output, it
    writes the log as a trace, a workload that replays it, bursts of its median lengths, and a study of both.
    """

    log: Annotated[str, typer.Argument(metavar="LOG", help="A CSV, JSONL or Parquet file with a row for each request.")]
    columns: Annotated[
        str | None,
        option(
            "ROLE=NAME,…",
            "Columns of arrivals, prompt and output tokens, and status: nested ones with dots, sums with +, a unit of "
            "arrivals as start:ms. Without it, the error suggests one.",
            _READ,
            default="those of a published trace",
        ),
    ] = None
    begin: Annotated[
        str | None, option("MOMENT", "Only requests from then on: seconds since the first, or a date.", _READ, "--from")
    ] = None
    end: Annotated[str | None, option("MOMENT", "… and before then.", _READ, "--to")] = None
    output: Annotated[Path | None, option("DIR", "Folder for the trace, the workloads and the study.", _WRITE)] = None
    scale: Annotated[float, option("N", "Times the log's rate.", _WRITE, parser=positive)] = 1.0
    configfile: Annotated[
        Path | None,
        option("FILE", "A study whose servers and decision the new one takes.", _WRITE, default="the template running-server"),
    ] = None
    json: Json = False

    def run(self) -> None:
        """Print what the log says, and write what is asked for."""
        from bench.beside.traffic.arrivals import percentiles, windows
        from bench.beside.traffic.like import write_load
        from bench.beside.traffic.log import read_log
        from bench.shipped import ROOT
        from bench.study.begin import TEMPLATES
        from bench.yaml_file import read_yaml

        if self.output is None and (self.scale != 1 or self.configfile):
            raise BenchError("--scale and --configfile need --output DIR. Add it.")
        base = {} if self.output is None else read_yaml(self.configfile or ROOT / TEMPLATES["running-server"])
        log = read_log(self.log, given=_given(self.columns), begin=self.begin, end=self.end)
        found: dict[str, Any] = {
            "requests": log.count,
            "span_s": log.span_s,
            "rate": log.rate,
            "windows": [asdict(each) for each in windows(log)],
            "prompts": percentiles(log.prompt_tokens),
            "outputs": percentiles(log.output_tokens),
        }
        written = write_load(log, self.output, base, self.scale, template=not self.configfile) if self.output else []
        if self.json:
            left_out = [asdict(each) for each in log.left_out]
            about = {"columns": dict(log.columns), "rows": log.rows, "left_out": left_out, "note": log.note}
            print_json({**about, **found, "written": [str(file) for file in written]})
            return
        print(*_read_lines(log), "", sep="\n")
        print_table([*_arrival_rows(found)], "<<")
        print()
        print_table(
            [["tokens", *(name.upper() if name[0] == "p" else name for name in found["prompts"])], *_length_rows(found)]
        )
        if log.note:
            print(f"Note: {log.note}")
        if written:
            print("", *(f"wrote {file}" for file in written), *_next(written, base, self.scale), sep="\n")


def _given(text: str | None) -> Mapping[str, str]:
    """Columns by role."""
    from bench.beside.traffic.log import NEEDED, ROLES

    found: dict[str, str] = {}
    for part in text.split(",") if text else ():
        role, sign, name = part.partition("=")
        if not sign or role.strip() not in ROLES or (role.strip() in NEEDED and not name.strip()):
            raise BenchError(f"--columns {part}: not ROLE=NAME. Roles are {', '.join(ROLES)}.")
        found[role.strip()] = name.strip()
    return found


_ROLES = {"arrival": "arrivals", "prompt": "prompt tokens", "output": "answer tokens"}
_MANY = 0.1  # share of rows left out that deserves a word


def _read_lines(log: Log) -> Iterator[str]:
    """What was read, from which columns; what was left out, and what that means."""
    columns = ", ".join(f"{what} from {log.columns[role]}" for role, what in _ROLES.items() if role in log.columns)
    yield f"{log.path}: {count_text(f'{log.rows:,}', 'row')}; {columns}."
    for each in log.left_out:
        yield f"Left out: {count_text(f'{each.count:,}', 'row')} with {each.why} (first {each.place}: {each.value})."
    if (gone := sum(each.count for each in log.left_out)) > _MANY * log.rows:
        yield f"What follows covers the other {shown_share(1 - gone / log.rows)}: more requests came than it says."


def _arrival_rows(found: Mapping[str, Any]) -> Iterator[list[str]]:
    """How requests arrive, one row each."""
    from bench.measure.progress import duration_text

    rate = found["rate"]
    yield ["requests", f"{found['requests']:,}"]
    yield ["span", duration_text(found["span_s"])]
    yield ["mean rate", "not known: all came in one instant" if rate is None else f"{three_digits(rate)} requests/s"]
    for each in found["windows"]:
        yield [f"peak rate in {duration_text(each['seconds'])}", f"{three_digits(each['peak'])} requests/s"]
    for each in found["windows"]:
        if each["dispersion"] is not None:
            yield [f"dispersion in {duration_text(each['seconds'])} (1: Poisson)", f"{each['dispersion']:.3g}"]


def _length_rows(found: Mapping[str, Any]) -> Iterator[list[str]]:
    for what, lengths in (("prompts", found["prompts"]), ("answers", found["outputs"])):
        yield [what, *map(three_digits, lengths.values())]


def _next(written: list[Path], base: Mapping[str, Any], scale: float) -> Iterator[str]:
    """The commands that measure and size by what was written."""
    from bench.cli.study import draws, installed

    replay, study = shlex.quote(str(written[1])), written[3]
    scaled = "" if scale == 1 else f" --set time_scale={scale:g}"
    slos = (base.get("decision") or {}).get("slo") or ["ttft_p95=1s"]
    limits = "".join(f" --slo {shlex.quote(str(slo))}" for slo in slos)
    yield f"\nNext:\n  {draws(study)}"
    yield f"  {installed('bench')} fleet results{limits} --workload {replay}{scaled}    # instances for it, from measured runs"

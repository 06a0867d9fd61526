"""`bench fleet`: how many instances traffic takes that was not measured, by replays of a calibrated server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Literal

from bench.cli.days import HOUR_S
from bench.cli.entry import command
from bench.cli.modelled import Modelled
from bench.cli.options import SLO, not_negative, option, positive
from bench.cli.output import print_json
from bench.errors import BenchError

if TYPE_CHECKING:
    from bench.predict.calibrate import Calibrated
    from bench.predict.calibration import Doubt
    from bench.predict.ensemble import Member
    from bench.predict.state import Limits
    from bench.predict.traffic import Traffic

_TRAFFIC, _FLEET = "The traffic", "The fleet"
_MEMBERS = 20  # of an ensemble
_START_UP_S = 120.0  # of an instance, where neither --start-up nor a measured start says it


@command(
    "bench fleet results:tiny-mqa --slo ttft_p95=1s --prompt-length 256 --output-length 64 --peak-rps 200",
    "bench fleet results:tiny-mqa --slo ttft_p95=1s --workload mine.yaml --peak-rps 200 --trough-rps 20 --start-up 120",
    "bench fleet results:tiny-mqa --slo tpot_p95=50ms --workload mine.yaml --traffic monday.csv",
    "bench fleet results:tiny-mqa --slo ttft_p95=1s --workload my-load/replay.yaml --time-scale 3",
    after="Exit status: 0 for a prediction; 1 where the traffic is refused; 2 for what you can fix.",
)
@dataclass(frozen=True, kw_only=True)
class Fleet(Modelled):
    """A model of the server is fitted to the runs in RESULTS, and the traffic replayed on instances of it behind a router: what one of
    them carries within the SLOs, how many the peak takes, and what a day gets from a fixed fleet and from one that keeps its load
    between 60 and 80 %. A few instances with their share of the traffic stand for a large fleet. A workload that replays a trace, as
    `bench traffic` writes it, is the traffic itself: all of it is replayed on as many instances as it takes. An instance starts in the
    time that RESULTS measured from launch to the first token.
    """

    slo: Annotated[list[str], option("LIMIT", SLO)]
    peak_rps: Annotated[
        float | None, option("N", "Requests/s (with turns: conversations/s) at the peak.", _TRAFFIC, parser=positive)
    ] = None
    trough_rps: Annotated[
        float | None, option("N", "Of the quietest: a day between both, as a sine.", _TRAFFIC, parser=positive)
    ] = None
    traffic: Annotated[Path | None, option("FILE", "CSV of seconds and requests_per_s; straight lines between.", _TRAFFIC)] = (
        None
    )
    time_scale: Annotated[
        float | None, option("X", "Of --workload with a trace: X times as fast.", _TRAFFIC, parser=positive, default="1")
    ] = None
    router: Annotated[
        Literal["round-robin", "random", "least-requests", "power-of-two", "session"],
        option(None, "How requests are shared out; `session` keeps conversations where they are.", _FLEET),
    ] = "least-requests"
    start_up: Annotated[
        float | None,
        option(
            "SECONDS", "Until a new instance serves.", _FLEET, parser=not_negative, default=f"as measured, or {_START_UP_S:g}"
        ),
    ] = None
    price_per_hour: Annotated[float | None, option("USD", "Of one instance.", _FLEET, parser=positive)] = None

    def run(self) -> None:
        """Print what the traffic takes."""
        from bench.cli.equal_fleet import of_trace, of_traffic
        from bench.study.slo import parse_slo

        slos = [parse_slo(text) for text in self.slo]
        if of_class := next((slo for slo in slos if slo.request_class), None):
            raise BenchError(
                f"--slo: {of_class} limits a class, and a fleet is predicted for all requests together. Leave the class out."
            )
        workload = self.load("request_rate", also="time_scale")
        if self.time_scale is not None and not workload.trace:
            raise BenchError(
                "--time-scale belongs to a --workload that replays a trace. Leave it out; --peak-rps says how much."
            )
        traffic = None if workload.trace else self._traffic()
        if workload.step or workload.ramp:
            raise BenchError(
                "--workload: a step or ramp is traffic; give it as --traffic FILE, and leave it out of the workload."
            )
        if traffic is None:
            of_trace(self, workload, slos)
        else:
            of_traffic(self, workload, slos, traffic)

    def calibrated(self) -> tuple[Calibrated, Limits]:
        """A model of one deployment, and what its scheduler obeys, with what is asked for in its place."""
        from bench.predict.calibrate import calibrate
        from bench.predict.judge import self_judged
        from bench.predict.predict import misfits

        runs, limits = self.measured()
        fitted = calibrate(runs, limits)
        if fitted is None:
            raise BenchError(f"{self.results}: its valid runs show too few steps of the engine to calibrate a model.")
        model = self_judged(fitted, runs)
        self.refuse(list(misfits(model)))
        return model, self.what_if(model.limits)

    def ensemble(self, model: Calibrated, limits: Limits, *, seed: int = 1) -> list[Member]:
        """Servers that the runs allow for, each of them one."""
        from bench.predict.ensemble import members

        return members(model, limits, count=_MEMBERS, seed=seed)

    def start_ups_s(self) -> tuple[float, ...]:
        """How long an instance takes to start (s): as given, as each start was measured, or as is assumed where none was."""
        from bench.predict.sources import start_ups_s

        if self.start_up is not None:
            return (self.start_up,)
        _, root, deployment = self.named()
        return start_ups_s(root, deployment) or (_START_UP_S,)

    def start_up_text(self) -> str:
        """The same in words, and whence it is known."""
        from bench.predict.sources import start_ups_s

        known = self.start_ups_s()
        if self.start_up is not None:
            return f"{self.start_up:g} s to start an instance"
        _, root, deployment = self.named()
        if not start_ups_s(root, deployment):
            return f"{_START_UP_S:g} s to start an instance, which is assumed: RESULTS measured no start"
        each = f" ({min(known):.3g} to {max(known):.3g} s in {len(known)} starts)" if len(known) > 1 else " (one start)"
        return f"{median(known):.3g} s to start an instance, as measured{each}"

    def refuse(self, found: Sequence[Doubt]) -> None:
        """End where there is a reason not to predict."""
        from bench.words.predicted import doubt_text

        why = [doubt_text(doubt) for doubt in found]
        if not why:
            return
        if self.json:
            print_json({"refused_because": why})
        else:
            print("\n".join(f"Not predicted: {text}." for text in why))
        raise SystemExit(1)

    def _traffic(self) -> Traffic:
        from bench.predict.traffic import Traffic, read_traffic, sine

        if self.traffic is not None and self.peak_rps is None:
            if self.trough_rps is not None:
                raise BenchError("--trough-rps belongs to --peak-rps; --traffic has its own.")
            found = read_traffic(self.traffic)
            if found.seconds < HOUR_S:
                raise BenchError(f"--traffic {self.traffic}: lasts {found.seconds:g} s; an hour is the least.")
            return found
        if self.peak_rps is None or self.traffic is not None:
            raise BenchError("Give --peak-rps, the requests/s of the busiest moment, or --traffic FILE.")
        if self.trough_rps is None:
            for name, given in (
                ("price-per-hour", self.price_per_hour),
                ("start-up", self.start_up),
            ):
                if given is not None:
                    raise BenchError(f"--{name} needs a course of traffic: --trough-rps or --traffic.")
            return Traffic((0.0, 1.0), (self.peak_rps, self.peak_rps))
        if self.trough_rps > self.peak_rps:
            raise BenchError(f"--trough-rps {self.trough_rps:g} is above --peak-rps {self.peak_rps:g}.")
        return sine(self.peak_rps, self.trough_rps)

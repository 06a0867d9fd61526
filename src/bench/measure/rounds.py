"""Measure runs round by round, with reference loads between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

from bench.errors import shown_share
from bench.load.target import Target
from bench.measure.progress import Progress, duration_text
from bench.measure.recording import record_run
from bench.measure.warmup import load_of, reference_load
from bench.runs.launch import Launch
from bench.runs.run import ReferenceLoad, RunHeader, SessionHeader
from bench.runs.store import Store
from bench.servers.server import Server, blaming, refuse_dead
from bench.servers.spec import DeploymentSpec
from bench.study.plan import Plan
from bench.study.specs import Place, RunSpec

# time for which a reference load serves the runs that follow (s): more of them would take longer than bursts do; convention: loads
# shortly after one another are alike
_SERVES_S = 5.0


@dataclass
class Rounds:
    """The runs of one start of a server.

    Attributes:
        header: what every run's record keeps of the server and the session. recording: `record_run`'s further arguments.
        progress: where it is reported how far this is. say: takes progress lines.
    """

    plan: Plan
    spec: DeploymentSpec
    target: Target
    store: Store
    launch: Launch
    header: SessionHeader
    recording: Mapping[str, Any]
    server: Server
    progress: Progress
    say: Callable[[str], None]
    _failed: int | None = None  # round in which a reference load failed: each may take the server a minute
    _latest: tuple[ReferenceLoad, float] | None = None  # the last reference load, and when it ended (monotonic, s)

    def measure(self, runs: Sequence[RunSpec]) -> None:
        """Measure `runs` in their order. Raises ServerDied."""
        self.progress.add(runs)
        planned_s = self.progress.left_s
        if runs and planned_s is not None:  # of open loops alone; else the first closed one tells
            self.say(f"about {duration_text(planned_s)} of planned load")
        for run in runs:
            self.one(run, self.plan.place_of(run))

    def _reference(self, number: int) -> ReferenceLoad | None:
        """The reference load for a run of round `number`: a new one, or that of the last seconds. None where the study has none, or a
        request of it failed.
        """
        settings, since = self.plan.measurement, None
        if self._latest and self._latest[0].round == number:
            latest, ended = self._latest
            if monotonic() - ended < _SERVES_S:
                return latest
            since = latest.since
        if not settings.reference_requests or number == self._failed:
            return None
        self.progress.state("reference load")
        first = load_of(self.plan.first_run(self.spec.name), self.launch, settings.request_timeout_s)
        alive = partial(refuse_dead, self.server)
        reference = reference_load(self.target, first, settings.reference_requests, (number, since), alive)
        self._latest = (reference, monotonic()) if reference else None
        if reference is None:
            self._failed = number
            self.say(f"round {number}: no reference load, as a request of it failed; the next one is sent in the next round")
        return reference

    def one(self, run: RunSpec, place: Place) -> None:
        """Measure a run, which `progress` knows, after a reference load of the last seconds. Raises ServerDied."""
        header = RunHeader(
            **vars(self.header),
            digest=run.digest,
            round=place.round,
            position=place.position,
            session=place.session,
            reference=self._reference(place.round),
            definition=run.definition,
        )
        load = load_of(run, self.launch, self.plan.measurement.request_timeout_s)
        with self.store.adding(run) as folder, blaming(self.server):
            self.progress.run_begins(run)
            recorded = record_run(self.target, load, folder, header=header, **self.recording)
            # A dead server's failures are not the run's; and who answers in its place is another one.
            if recorded.failed or not self.server.running():
                refuse_dead(self.server)
        line = self.progress.run_ended(run, recorded.requests, recorded.tokens_per_s, recorded.duration_s)
        early = f"; stopped after {recorded.stopped.at_s:.0f} s: requests pile up" if recorded.stopped else ""
        limit = self.plan.config.thresholds.other_share
        self.say(line + early + disturbed(recorded.other_share, limit))


def disturbed(other_share: float | None, limit: float) -> str:
    """That a run is invalid since other processes were at work, the most frequent reason: whoever reads it now can end them.

    Args:
        other_share: of the cores' time (0–1); None where it is not known. limit: from which on a run is invalid.
    """
    if other_share is None or other_share <= limit:
        return ""
    return f"; invalid: other processes took {shown_share(other_share)} of the cores' time"

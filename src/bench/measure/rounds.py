"""Measure runs round by round, each after a reference load, and those again whose round the machine spoilt."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

from bench.analysis.drift import drift_reasons
from bench.engine import Server
from bench.measure.alive import blaming, refuse_dead
from bench.measure.progress import Clock
from bench.measure.recording import record_run
from bench.measure.reference import reference_load
from bench.measure.store import Store
from bench.parse.run import place_of_run
from bench.study import DeploymentSpec, Plan, RunSpec
from bench.workload import Load, Target

__all__ = ["Rounds", "load_of"]


@dataclass
class Rounds:
    """The runs of one start of a server.

    Attributes:
        header: what every run's record says of the server. recording: what `record_run` is told of it.
        say: takes progress lines.
    """

    plan: Plan
    spec: DeploymentSpec
    target: Target
    store: Store
    launch: Mapping[str, Any]
    header: Mapping[str, Any]
    recording: Mapping[str, Any]
    server: Server
    say: Callable[[str], None]

    @cached_property
    def clock(self) -> Clock:
        return Clock()

    def measure(self, runs: Sequence[RunSpec]) -> None:
        """Measure `runs` in their order; then, once more, those of a round in which the machine was slower or faster than in the
        deployment's others, if it no longer is.

        Raises:
            ServerDied: the server is dead.
        """
        self.clock.add(runs)
        for number, of_round in groupby(runs, key=lambda run: self.plan.place_of(run).round):
            self._round(list(of_round), self._reference(number))
        drifted = self._drifted({})
        for number, of_round in groupby(
            (run for run in runs if run.digest in drifted), key=lambda run: self.plan.place_of(run).round
        ):
            self._again(number, list(of_round))

    def _again(self, number: int, runs: Sequence[RunSpec]) -> None:
        """Measure a drifted round's runs once more, in place of the first time; not where the machine is still as different."""
        reference = self._reference(number)
        if self._drifted({run.digest: reference for run in runs}).intersection(run.digest for run in runs):
            self.say(f"round {number} was measured while the machine was not as fast as in the others, nor is it now")
            return
        self.say(
            f"round {number} was measured while the machine was not as fast as in the others: its {len(runs)} runs once more"
        )
        self.clock.add(runs)
        self._round(runs, reference)

    def _drifted(self, instead: Mapping[str, dict[str, Any] | None]) -> set[str]:
        """The digests of the deployment's runs that the rule of drift blames.

        Args:
            instead: reference loads to take in place of those with which runs were measured, by the runs' digests.
        """
        held = [run for run in self.plan.runs_of(self.spec.name) if self.store.holds(run.digest)]
        records = {run.digest: json.loads((self.store.folder(run.digest) / run.record.name).read_text()) for run in held}
        records = {key: record | ({"reference": instead[key]} if key in instead else {}) for key, record in records.items()}
        placed = [{"deployment": self.spec.name, "run": key, **place_of_run(record)} for key, record in records.items()]
        return {digest for _, digest in drift_reasons(placed, self.plan.config.thresholds)}

    def _reference(self, number: int) -> dict[str, Any] | None:
        settings = self.plan.measurement
        if not settings.reference_requests:
            return None
        first = load_of(self.plan.first_run(self.spec.name), self.launch, settings.request_timeout_s)
        reference = reference_load(self.target, first, settings.reference_requests, number, lambda: refuse_dead(self.server))
        self.say(f"round {number}, {_described(reference)}")
        return reference

    def _round(self, runs: Iterable[RunSpec], reference: dict[str, Any] | None) -> None:
        for run in runs:
            place = self.plan.place_of(run)
            header = {
                "digest": run.digest,
                **self.header,
                "round": place.round,
                "position": place.position,
                "session": place.session,
                "reference": reference,
                "definition": run.definition,
            }
            load = load_of(run, self.launch, self.plan.measurement.request_timeout_s)
            with self.store.adding(run.digest) as folder, blaming(self.server):
                recorded = record_run(self.target, load, folder, header=header, **self.recording)
                if recorded.failed:
                    refuse_dead(self.server)  # a dead server's failures are not the run's
            self.say(self.clock.line(run, recorded.requests, recorded.tokens_per_s, recorded.duration_s))


def load_of(run: RunSpec, launch: Mapping[str, Any], timeout_s: float) -> Load:
    """What a run sends."""
    return Load(
        workload=run.workload,
        level=run.level,
        seed=run.digest,
        schedule_seed=run.schedule_seed,
        vocabulary=launch["vocabulary"] or Load.vocabulary,
        timeout_s=timeout_s,
    )


def _described(reference: Mapping[str, Any] | None) -> str:
    if reference is None:
        return "no reference load: a request of it failed"
    return "reference load " + ", ".join(f"{seconds:.2f}" for seconds in reference["seconds"]) + " s"

"""The searches of a study's `auto` ladders: in the session of their deployment, with runs that are kept like all others."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Never

from bench.axes import AXES
from bench.errors import BenchError, count_text
from bench.measure.rounds import Rounds
from bench.measure.warmup import load_of
from bench.runs.files import digest, read_known, write_record
from bench.runs.paths import Paths
from bench.runs.run import RECORD, RunRecord, read_record
from bench.runs.searches import DeploymentSearches, SearchedRun, SearchRecord
from bench.runs.store import Store
from bench.search.measured import judged_run, sender, speed
from bench.search.placing import ROUND, Aim, Ends, gap_shape
from bench.search.probe import Probed, probe
from bench.search.search import Budget, Found, Measured, Next, search
from bench.search.words import answer_text, looked_for, next_text, probed_text, spent_text
from bench.servers.server import refuse_dead, refuse_ended
from bench.servers.spec import DeploymentSpec
from bench.study.plan import Plan
from bench.study.searches import SearchSpec, found_runs
from bench.study.specs import Place, RunSpec


class _Unmeasured(Exception):
    """A search needs a run that nobody has measured."""


@dataclass(frozen=True)
class Terms:
    """Other terms than those of the study, for a search on one start of a server.

    Attributes:
        without: the digests of runs that do not count, of earlier starts. start: the first load; None: as the study says.
        ends: as of `Aim`.
    """

    without: frozenset[str]
    start: float | None
    ends: Ends


@dataclass
class LadderSearches:
    """The searches of one deployment.

    Attributes:
        store: has what earlier sessions measured, runs of levels that the study lists among them. say: takes progress lines.
        terms: of all searches; None: those of the study.
    """

    plan: Plan
    spec: DeploymentSpec
    store: Store
    say: Callable[[str], None]
    terms: Terms | None = None
    _judged: dict[str, Measured] = field(default_factory=dict)
    _done: dict[str, tuple[Found, Sequence[RunSpec]]] = field(default_factory=dict)

    @property
    def searches(self) -> Sequence[SearchSpec]:
        """The searches that are selected."""
        return self.plan.searches_of(self.spec.name)

    def first_runs(self) -> list[RunSpec]:
        """The first run of each search, for a warm-up."""
        return [each.first for each in self.searches]

    def unfinished(self) -> list[str]:
        """The searches that need a run that is not measured."""
        return [each.key for each in self.searches if self._finished(each) is None]

    def measure(self, rounds: Rounds) -> None:
        """Search on a server that runs, until each answer is as precise as asked for or its budget is spent.

        Raises ServerDied.
        """
        self._done.clear()  # the levels that the study lists are measured by now
        for each in self.searches:
            if self._finished(each) is None:
                self._done[each.key] = self._search(each, rounds)

    def found(self, asked: SearchSpec) -> Found | None:
        """What a search found; None while it is unfinished."""
        finished = self._finished(asked)
        return finished and finished[0]

    def write(self, file: Path) -> None:
        """Write what the searches found.

        Raises:
            BenchError: a search is unfinished.
        """
        records = list[SearchRecord]()
        for each in self.searches:
            finished = self._finished(each)
            if finished is None:
                raise BenchError(f"{each.key}: the search needs a run that is not measured. Run the workflow again.")
            records.append(_record(each, self._aim(each), *finished))
        write_record(DeploymentSearches(deployment=self.spec.name, digest=self.spec.digest, searches=tuple(records)), file)

    def _search(self, asked: SearchSpec, rounds: Rounds) -> tuple[Found, Sequence[RunSpec]]:
        runs, aim, places = self._known(asked), self._aim(asked), self._places()
        before = [self._measured(asked, run) for run in runs]
        number = 1 + max((place.round for place in places), default=0)
        position = 1 + max((place.position for place in places), default=0)
        self._tell(rounds, asked, f"searching for {looked_for(asked.slos)}")
        repeats: dict[float, int] = {}
        for run in self._runs(asked):
            repeats[run.level] = max(run.repeat, repeats.get(run.level, 0))

        def measure(level: float, requests: int, _: int) -> Measured:
            count = len(runs) - len(before)
            repeats[level] = repeats.get(level, 0) + 1  # other gaps and prompts than those of the level's earlier runs
            run = asked.run(level, requests, repeats[level])
            place = Place(number + count // ROUND, 1, position + count)
            rounds.progress.add([run])
            rounds.one(run, place)
            runs.append(run)
            return self._measured(asked, run)

        budget = self._budget(asked, runs)

        def report(found: Found) -> None:
            why = found.looks[-1].reasons
            doubts = f"; invalid: {'; '.join(why)}" if why else ""
            text = f"{answer_text(found.answer, aim)}{doubts}; {spent_text(found, budget)}"
            self._tell(rounds, asked, text)

        def begin(aim: Aim) -> Probed:
            self._tell(rounds, asked, "probing")
            load = load_of(asked.first, rounds.launch, self.plan.measurement.request_timeout_s)
            probed = probe(aim, sender(rounds.target, load, lambda: refuse_ended(rounds.server)))
            refuse_dead(rounds.server)
            write_record(probed, _probed(asked))
            self._tell(rounds, asked, probed_text(probed, aim))
            return probed

        def announce(run: Next) -> None:
            self._tell(rounds, asked, next_text(run, aim))

        found = search(aim, budget, measure, before, report, begin, announce, read_known(Probed, _probed(asked)))
        answer = found.answer
        self.say(f"{asked.key}: {answer_text(answer, aim)}, after {count_text(len(found.looks), 'run')} ({answer.why})")
        return found, runs

    def _tell(self, rounds: Rounds, asked: SearchSpec, known: str) -> None:
        """Say what a search knows so far, to those who watch too."""
        self.say(f"{asked.key}: {known}")
        rounds.progress.state(f"{asked.key}: {known}")

    def _finished(self, asked: SearchSpec) -> tuple[Found, Sequence[RunSpec]] | None:
        """A search that has ended here, or that needs no more than what is measured, and its runs; None where it needs more."""
        if asked.key in self._done:
            return self._done[asked.key]
        runs = self._known(asked)

        def measure(*_: object) -> Never:
            raise _Unmeasured

        try:
            aim, budget, before = self._aim(asked), self._budget(asked, runs), read_known(Probed, _probed(asked))
            measured = [self._measured(asked, run) for run in runs]
            self._done[asked.key] = search(aim, budget, measure, measured, begin=measure, before=before), runs
            return self._done[asked.key]
        except _Unmeasured:
            return None

    def _known(self, asked: SearchSpec) -> list[RunSpec]:
        """What is measured of a search, in the order in which it was; runs of levels that the study lists are among it."""
        without = self.terms.without if self.terms else ()
        return [run for run in self._runs(asked) if run.digest not in without]

    def _runs(self, asked: SearchSpec) -> list[RunSpec]:
        return found_runs([asked], self.store.root.glob(f"{self.spec.name}/*/{RECORD}"))

    def _aim(self, asked: SearchSpec) -> Aim:
        aim = _aim(asked)
        if self.terms is None:
            return aim
        start = aim.start
        if self.terms.start is not None:
            start = min(aim.highest, max(1.0, round(self.terms.start)) if aim.held else self.terms.start)
        return replace(aim, start=start, ends=self.terms.ends)

    def _places(self) -> list[Place]:
        """Where the deployment's runs stand: those that the study lists, and what its searches measured."""
        listed = [self.plan.place_of(run) for run in self.plan.listed_of(self.spec.name)]
        records = [self._record(run) for each in self.searches for run in self._known(each)]
        return listed + [Place(r.round, r.session or 1, r.position or 0) for r in records if r.round is not None]

    def _budget(self, asked: SearchSpec, runs: Sequence[RunSpec]) -> Budget:
        """The search's own, and what runs took that the study lists anyway."""
        listed = {run.digest for run in self.plan.listed_of(self.spec.name)}
        given = [self._measured(asked, run).row["duration_s"] or 0.0 for run in runs if run.digest in listed]
        return Budget(asked.settings.runs + len(given), asked.settings.seconds + sum(given))

    def _record(self, run: RunSpec) -> RunRecord:
        return read_record(self.store.record(run))

    def _measured(self, asked: SearchSpec, run: RunSpec) -> Measured:
        key = f"{asked.digest}/{run.digest}"
        if key not in self._judged:
            folder = self.store.folder(run)
            with tempfile.TemporaryDirectory() as tables:
                row, reasons = judged_run(folder, asked.slos, self.plan.config.thresholds, Path(tables))
            self._judged[key] = Measured(row, reasons, *speed(self._record(run)))
        return self._judged[key]


def _probed(asked: SearchSpec) -> Path:
    """Where what a probe found is kept: by load and SLOs, as a larger budget asks for the same."""
    load = digest([asked.first.digest, *map(str, asked.slos)])
    return Path(Paths.PROBED.format(deployment=asked.deployment.name, load=load))


def _aim(asked: SearchSpec) -> Aim:
    settings, held = asked.settings, AXES[asked.workload.axis].held
    start = settings.start and (float(math.ceil(settings.start)) if held else settings.start)
    return Aim(
        slos=asked.slos,
        failed_share=asked.failed_share,
        held=held,
        precision=settings.precision,
        start=start,
        highest=math.floor(settings.highest) if held else settings.highest,
        burstiness=gap_shape(asked.workload),
        turns=asked.workload.turn_count,
        think_s=asked.workload.think_s,
        shares={name: each.share for name, each in asked.workload.classes.items()},
    )


def _record(asked: SearchSpec, aim: Aim, found: Found, runs: Sequence[RunSpec]) -> SearchRecord:
    """What a search found. Args: runs: behind it, in the order in which the search took them into account."""
    answer = found.answer
    return SearchRecord(
        name=asked.name,
        workload=asked.workload_name,
        digest=asked.digest,
        axis=asked.workload.axis,
        slos=tuple(map(str, asked.slos)),
        precision=asked.settings.precision,
        why=answer.why,
        limit=answer.limit if answer.known else None,
        low=answer.low,
        high=answer.high if math.isfinite(answer.high) else None,
        seconds=round(found.seconds, 1),
        runs=tuple(
            SearchedRun(
                level=run.level,
                requests=look.requests,
                repeat=run.repeat,
                digest=run.digest,
                excess={key: round(each.value, 4) for key, each in look.observation.of_slos.items()}
                if look.observation
                else {},
            )
            for run, look in zip(runs, found.looks, strict=True)
        ),
        turns=aim.turns,
    )

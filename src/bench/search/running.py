"""Runs against a server that is there already, each kept in a folder of its own, so that a search goes on where it stopped."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import requests

from bench.errors import BenchError, writing_to
from bench.headers import GATEWAY, UNFIT
from bench.http import get_models, problem
from bench.load.client import Load
from bench.load.target import Target
from bench.measure.recording import record_run
from bench.measure.warmup import reference_load
from bench.runs.files import digest, read_known, write_record
from bench.runs.request import RequestRecord
from bench.runs.run import RECORD, ReferenceLoad, RunHeader, read_record
from bench.search.measured import judged_run, sender, speed
from bench.search.placing import ROUND, Aim
from bench.search.probe import Probed, probe
from bench.search.search import Measured
from bench.shipped import commit_of
from bench.study.config import Measurement, Thresholds
from bench.study.plan import file_digests
from bench.study.read import load_workload
from bench.study.slo import Slo
from bench.study.specs import PROTOCOL, load_label

_REFERENCE_REQUESTS = Measurement().reference_requests
_TRIES = 6  # attempts to reach a server; convention
_BETWEEN_TRIES_S = 0.5  # pause between them (s); convention


class ServerGone(BenchError):
    """The server no longer answers."""


@dataclass
class RunningServer:
    """A server, and the load of a search.

    Attributes:
        target: the server. workload: what a configuration would say of the load, without how much of it is sent.
        held: whether its level is requests in flight; else requests/s. slos: by which requests are judged.
        folder: where runs are kept. recording: `record_run`'s further arguments. version: of the engine, where it is known.
        thresholds: beyond which a run is invalid.
        seed: of prompts, gaps and lengths. vocabulary: prompt ids lie below it. timeout_s: of a request.
        say: takes a line before each run, and about how long it takes (s; None where that is not known).
        announced: that line of the next run.
    """

    target: Target
    workload: Mapping[str, Any]
    held: bool
    slos: tuple[Slo, ...]
    folder: Path
    recording: Mapping[str, Any]
    version: str | None
    seed: str
    vocabulary: int
    timeout_s: float
    say: Callable[[str, float | None], None]
    thresholds: Thresholds = field(default_factory=Thresholds)
    announced: tuple[str, float | None] = ("run", None)
    _rounds: int = 0  # begun, by whichever search
    _runs: int = 0
    _round_reference: ReferenceLoad | None = None  # of the present one, which its runs share

    def known(self) -> list[Measured]:
        """What an earlier search of the same load on the same server measured, in the order in which it did."""
        found = []
        for path in self.folder.glob(f"runs/*/{RECORD}"):
            with suppress(BenchError, KeyError):  # what is damaged, or somebody else's, is not ours to judge
                record = read_record(path)
                given = record.definition
                load = self._load(given["level"], given["num_requests"], given["repeat"])
                if record.digest == self._digest(self._definition(load, given["num_requests"], given["repeat"])):
                    found.append(record)
        found.sort(key=lambda record: record.started)
        self._rounds = max((record.round or 0 for record in found), default=0)
        return [self._judged(self.folder / "runs" / record.definition["run"]) for record in found]

    def probe(self, aim: Aim) -> Probed:
        """Where a search begins. Raises ServerGone."""
        self.say("probe", None)
        found = probe(aim, sender(self.target, _unheard(self._load(1.0, 1, 0))))
        self._refuse_gone()
        write_record(found, self._probed)
        return found

    def probed(self) -> Probed | None:
        """What the last probe of this load found, by the same SLOs."""
        return read_known(Probed, self._probed)

    @property
    def _probed(self) -> Path:
        first = self._digest(self._definition(self._load(1.0, 1, 0), 1, 0))
        return self.folder / f"probed-{digest([first, *map(str, self.slos)])}.json"

    def measure(self, level: float, count: int, turn: int) -> Measured:
        """The run of `count` requests at `level`, the `turn`th of them.

        Raises:
            ServerGone: the server no longer answers. BenchError: it does, but does not accept so many connections.
        """
        load = self._load(level, count, turn)
        definition = self._definition(load, count, turn)
        folder = self.folder / "runs" / definition["run"]
        try:
            self._measure(load, definition, self._digest(definition), folder)
        except BenchError:
            self._refuse_gone()
            raise
        self._runs += 1
        return self._judged(folder)

    def _digest(self, definition: Mapping[str, Any]) -> str:
        """A digest of all that decides what a run measures."""
        form = self.target.form(self.workload.get("endpoint", "completions"))
        server = [self.target.base_url, self.target.model, sorted(self.target.headers), self.version, sorted(form.omitted)]
        return digest([PROTOCOL, *server, self.vocabulary, self.timeout_s, definition])

    def _measure(self, load: Load, definition: dict[str, Any], identity: str, folder: Path) -> None:
        if self._runs % ROUND == 0:  # and so at first: since the last search the machine may have changed
            self._rounds += 1
            self._round_reference = self._reference()
        load = _unheard(load)
        header = RunHeader(
            digest=identity,
            protocol=PROTOCOL,
            engine_version=self.version,
            commit=commit_of(),
            round=self._rounds,
            definition={**definition, "prompt_seed": load.seed},
            reference=self._round_reference,
        )
        self.say(*self.announced)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with writing_to(self.folder), tempfile.TemporaryDirectory(prefix=".unfinished-", dir=self.folder) as aside:
            unfinished = Path(aside) / folder.name
            unfinished.mkdir()
            recording = record_run(self.target, load, unfinished, header=header, **self.recording)
            if recording.failed:
                self._refuse_gone()
            self._refuse_unfit(recording.requests)
            shutil.rmtree(folder, ignore_errors=True)
            unfinished.rename(folder)

    def _reference(self) -> ReferenceLoad | None:
        """Send the reference load; None where a request of it failed."""
        self.say("reference load", None)
        first = self._load(1.0, _REFERENCE_REQUESTS, 0)  # the same for all
        return reference_load(self.target, first, _REFERENCE_REQUESTS, (self._rounds, None), lambda: None)

    def _refuse_gone(self) -> None:
        """What failed while the server was gone says nothing of the load. A busy server gets time to answer."""
        why = ""
        for _ in range(_TRIES):
            try:
                answer = get_models(self.target.base_url, key=self.target.key, headers=self.target.headers)
            except requests.RequestException as error:
                why = problem(error)
            else:
                if answer.status_code not in GATEWAY:
                    return
                why = f"HTTP {answer.status_code}"
            time.sleep(_BETWEEN_TRIES_S)
        raise ServerGone(
            f"{self.target.base_url} stopped answering while it was measured ({why}); what failed then does not count."
        )

    def _refuse_unfit(self, records: Sequence[RequestRecord]) -> None:
        """Raises BenchError where the server refuses every request for what it is: no load would tell more."""
        last = records[-1]
        if all(record.status in UNFIT for record in records):
            said = (last.error or "without a word").rstrip(".")
            long = re.search("context|length|too long|token", said, re.IGNORECASE)
            advice = (
                " It answered requests of a few tokens: send shorter prompts and answers, or start it with a longer context."
            )
            raise BenchError(
                f"{self.target.base_url} refuses every request of this load (HTTP {last.status}): {said}.{advice if long else ''}"
            )

    def _load(self, level: float, count: int, turn: int) -> Load:
        workload = load_workload({**self.workload, "num_requests": count}, source="bench find")
        workload = workload.model_copy(update={"stop_overloaded": workload.stoppable})
        # Other prompts each time, or a prefix cache would know them; other gaps too, or chance would repeat itself.
        seed = f"{self.seed}/{level:g}/{count}/{turn}"
        return Load(
            workload=workload, level=level, seed=seed, schedule_seed=seed, vocabulary=self.vocabulary, timeout_s=self.timeout_s
        )

    def _definition(self, load: Load, count: int, turn: int) -> dict[str, Any]:
        plain = load.workload.model_dump(mode="json", exclude_defaults=True)
        own = {
            key: plain[key] for key in ("prompts", "body", "classes") if key in plain
        }  # loads of one label that differ in these differ
        label = f"c{load.level:04g}" if self.held else f"q{load.level:g}"
        return {
            "deployment": self.target.model,
            "run": f"{label}_n{count}_r{turn}_{digest([self.target.base_url, self.target.model, self.workload])[:8]}",
            "workload": load_label(load.workload) + (f"_{digest(own)[:4]}" if own else ""),
            **plain,
            **({"files": file_digests(load.workload)} if load.workload.files else {}),
            "axis": load.workload.axis,
            "level": load.level,
            "repeat": turn,
            "seed": self.seed,
        }

    def _judged(self, folder: Path) -> Measured:
        row, reasons = judged_run(folder, self.slos, self.thresholds, folder)
        return Measured(row, reasons, *speed(read_record(folder / RECORD)))


def _unheard(load: Load) -> Load:
    """The load with prompts that no prefix cache knows from another search of the same server, which may have had the same levels."""
    return replace(load, seed=f"{load.seed}/{time.time_ns()}")

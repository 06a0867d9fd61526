"""From a configuration to its runs: what is measured on what, in which order, and what `select` leaves of it."""

from __future__ import annotations

import errno
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.bounds import MOST_BYTES
from bench.errors import BenchError, shown
from bench.models.catalogue import Accelerator, accelerator_named, accelerators
from bench.models.checkpoint_record import fingerprint
from bench.models.model import UNNAMED
from bench.runs.files import checksum, digest
from bench.runs.paths import Paths
from bench.servers.spec import DeploymentSpec
from bench.shipped import located
from bench.study.config import Config, Ladder, Measurement
from bench.study.precision import with_requests
from bench.study.search import Search, competing
from bench.study.searches import SearchSpec, found_runs
from bench.study.slo import applying, parse_slo
from bench.study.specs import Place, RunSpec, alternating, places_of
from bench.workloads.endpoints import ENDPOINTS
from bench.workloads.workload import Workload

_SKETCHED = 4  # levels that stand for those of a search before there are any; convention


@dataclass(frozen=True)
class Plan:
    """The runs of a configuration, narrowed by its `select`.

    Attributes:
        runs: those that are selected, in the order of the configuration; last those that searches measured so far.
        every: those of the whole study, without `select`. searches, every_search: likewise.
    """

    config: Config
    deployments: Mapping[str, DeploymentSpec]
    runs: tuple[RunSpec, ...]
    every: tuple[RunSpec, ...]
    searches: tuple[SearchSpec, ...] = ()
    every_search: tuple[SearchSpec, ...] = ()

    @classmethod
    def of(cls, config: Config, *, source: str = "", root: Path = Path(), results: Path = Path(Paths.RESULTS)) -> Plan:
        """The plan of `config`, whose lock files lie below `root`.

        Args:
            source: what to call the configuration in messages, usually its path.
            results: where runs are, those that searches have measured so far among them.

        Raises:
            BenchError: a lock file is missing, or a file that a workload reads, or `select` matches no run.
        """
        try:
            return cls._of(config, root, results)
        except BenchError as error:
            raise BenchError(f"{source}: {error}" if source else str(error)) from None

    @classmethod
    def _of(cls, config: Config, root: Path, results: Path) -> Plan:
        deployments = {
            name: _deployment(config, name, root) for name in dict.fromkeys(x.deployment for x in config.study.ladders)
        }
        listed = tuple(_runs(config, deployments))
        searches = tuple(_searches(config, deployments))
        every = (*listed, *_found(searches, listed, results))
        patterns = [config.select] if isinstance(config.select, str) else config.select
        selected = tuple(search for search in searches if search.selected(patterns))
        of_searches = {(search.deployment.name, search.workload_name) for search in selected}
        runs = tuple(
            run
            for run in every
            if any(fnmatchcase(run.key, pattern) for pattern in patterns)
            or (run.searched and (run.deployment.name, run.workload_name) in of_searches)
        )
        if not runs and not selected:
            keys = [run.key for run in every] + [search.key for search in searches]
            raise BenchError(
                f"select is {config.select!r}, which matches none of the study's {len(keys)} runs. "
                f"Runs have names such as {keys[0]}; `bench runs` lists them all."
            )
        kept = {run.deployment.name for run in runs} | {search.deployment.name for search in selected}
        return cls(config, {n: d for n, d in deployments.items() if n in kept}, runs, every, selected, searches)

    @property
    def digest(self) -> str:
        """Digest of all runs that the configuration lists, and of all searches."""
        return digest([run.digest for run in self.listed] + [search.digest for search in self.searches])

    @property
    def listed(self) -> tuple[RunSpec, ...]:
        """The runs whose levels the configuration has; the others were found by search."""
        return tuple(run for run in self.runs if not run.searched)

    def searches_of(self, deployment: str, session: int = 1) -> tuple[SearchSpec, ...]:
        """The searches of a deployment; its first session has them all."""
        return tuple(search for search in self.searches if search.deployment.name == deployment and session == 1)

    def listed_of(self, deployment: str, session: int | None = None) -> tuple[RunSpec, ...]:
        """As `runs_of`, without what searches found."""
        return tuple(run for run in self.runs_of(deployment, session) if not run.searched)

    @property
    def measurement(self) -> Measurement:
        """How a session measures."""
        return self.config.measurement

    @cached_property
    def tuned(self) -> Plan | None:
        """The plan of the servers that compete in the study's tuning; None without one."""
        return None if self.config.packed else self.competition()  # of a pack nothing is started

    def competition(self) -> Plan | None:
        """As `tuned`, of a pack too."""
        return Plan.of(competing(self.config, self.config.tune.deployments)) if self.config.tune else None

    @property
    def tuning_digest(self) -> str:
        """Digest of all that decides the study's tuning but its minutes. Raises ValueError: it has none."""
        competition = self.tuned or self.competition()
        if competition is None or self.config.tune is None:
            raise ValueError("the study has no tuning")
        return digest([search.digest for search in competition.searches] + [self.config.tune.objective])

    @property
    def started(self) -> Mapping[str, DeploymentSpec]:
        """All deployments whose servers may be started: those of the runs, and those that compete."""
        return {**(self.tuned.deployments if self.tuned else {}), **self.deployments}

    @property
    def engine_locks(self) -> dict[str, dict[str, str]]:
        """SHA-256 of each lock of each engine, by its path."""
        return {spec.deployment.engine: dict(spec.locks) for spec in self.started.values()}

    @property
    def fingerprints(self) -> dict[str | None, str | None]:
        """What identifies the files of each model; None for one that is not given by its path."""
        return {spec.deployment.model: spec.checkpoint for spec in self.started.values()}

    def runs_of(self, deployment: str, session: int | None = None) -> tuple[RunSpec, ...]:
        """The runs of one deployment, or of one of its sessions, in the order in which they are measured."""
        runs = self._by_deployment.get(deployment, ())
        return runs if session is None else tuple(run for run in runs if self.place_of(run).session == session)

    @cached_property
    def _by_deployment(self) -> dict[str, tuple[RunSpec, ...]]:
        runs = _by_name(self.runs)
        return {
            name: tuple(sorted(runs.get(name, ()), key=lambda run: self.place_of(run).position)) for name in self.deployments
        }

    def place_of(self, run: RunSpec) -> Place:
        """When a run is measured, whatever `select` leaves of the study."""
        return self._places[run.key]

    @cached_property
    def _places(self) -> dict[str, Place]:
        places: dict[str, Place] = {}
        for runs in _by_name(self.every).values():
            listed = [run for run in runs if not run.searched]
            places |= places_of(listed, sessions=self.config.study.sessions)
            # A search follows the rounds of its session, and goes on in further ones: its records have them.
            after = Place(max((run.repeat for run in listed), default=0) + 1, 1, len(listed) + 1)
            for number, run in enumerate(run for run in runs if run.searched):
                places[run.key] = replace(after, position=after.position + number)
        return places

    def first_run(self, deployment: str) -> RunSpec:
        """The run of a deployment that the study lists first, whatever `select` leaves of it; else the first one of its search."""
        for run in self.every:
            if run.deployment.name == deployment and not run.searched:
                return run
        return next(search for search in self.every_search if search.deployment.name == deployment).first

    def sessions_of(self, deployment: str) -> tuple[int, ...]:
        """The sessions of a deployment that measure a selected run; and the first one, whose facts stand for the deployment."""
        return tuple(sorted({1, *(self.place_of(run).session for run in self.runs_of(deployment))}))

    @cached_property
    def sessions(self) -> list[tuple[str, int]]:
        """Every session as (deployment, session), in the order in which one machine measures them."""
        return alternating({name: self.sessions_of(name) for name in self.deployments})

    @property
    def workloads(self) -> list[Workload]:
        """The workload of each ladder, whatever `select` leaves of the study."""
        return [self.config.workloads[ladder.workload] for ladder in self.config.study.ladders]

    def index_before(self, deployment: str, session: int) -> list[str]:
        """What a session waits for: the index of the one before it. None where each deployment has one session: any order will do."""
        place = self.sessions.index((deployment, session))
        before = self.sessions[max(0, place - 1) : place] if self.config.study.sessions > 1 else []
        return [str(Paths.session(*each)) for each in before]

    def records(self, deployment: str, session: int) -> dict[str, str]:
        """SHA-256 of the record of each run of a session, by the run's name: of a pack, all of whose runs are here."""
        return {run.name: checksum(run.record) for run in self.runs_of(deployment, session)}

    def longest_request(self, deployment: str) -> int:
        """Tokens of the longest request that the study sends to a deployment, whatever `select` leaves of it; 0 of a pack, which sends
        none.
        """
        if self.config.packed:
            return 0
        ladders = [*self.config.study.ladders, *(self.tuned.config.study.ladders if self.tuned else ())]
        return max(
            longest_request(workload)
            for ladder in ladders
            if ladder.deployment == deployment
            for _, workload in swept(ladder, self.config.workloads[ladder.workload])
        )

    @cached_property
    def device(self) -> Accelerator | None:
        """The device that the study's decision names, with the study's own facts."""
        name = self.config.decision.accelerator
        return None if name is None else accelerator_named(name, accelerators(self.config.hardware))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Each run by what a study can vary, under the names of the summary table's columns.

        A search contributes placeholder levels, so that curve figures are selected before it has run.
        """
        decision = self.config.decision  # with fixed costs alone a table says all that an instance costs and earns
        variable_costs = decision.price_per_million_tokens is not None and bool(
            decision.energy_price_per_kwh or decision.cost_per_million_requests
        )
        of_searches = {(search.deployment.name, search.workload_name) for search in self.searches}
        alone = [
            run for run in self.runs if run.searched and (run.deployment.name, run.workload_name) not in of_searches
        ]  # of a search that is not selected
        sketched = [
            replace(search.run(1, 1, 1), level=1 + level + number / 1e6)
            for number, search in enumerate(self.searches, start=1)
            for level in range(_SKETCHED)
        ]
        return [
            {
                "deployment": run.deployment.name,
                "baseline": run.deployment.name == self.config.study.baseline,
                "model": run.deployment.model_name,
                "engine": run.deployment.deployment.engine,
                "device": run.deployment.engine.backend,
                "metrics": run.deployment.engine.metrics != "none",
                "started": run.deployment.engine.source != "external",
                "workers": run.deployment.engine.workers
                or (run.deployment.deployment.router and run.deployment.deployment.replicas),
                **run.deployment.settings,
                "workload": run.workload_name,
                "family": run.family,
                "arrival": run.workload.arrival,
                "axis": run.workload.axis,
                "level": float(run.level),
                **_fixed(run.workload),
                "stream": run.workload.stream,
                "endpoint": run.workload.endpoint,
                "prompts": ", ".join(dict.fromkeys(part.prompts.source for part in run.workload.parts.values())),
                "answers": "natural" if run.workload.natural else "exact",
                "work": ENDPOINTS[run.workload.endpoint].work.name,
                "cache": ", ".join(dict.fromkeys(part.cache for part in run.workload.parts.values())),
                "body": json.dumps(run.workload.body, sort_keys=True) if run.workload.body else None,
                "classes": _classes(run.workload),
                "turns": run.workload.turn_count,
                "honour_retry_after": run.workload.honour_retry_after,
                "keep_answers": run.workload.keep_answers,
                "slo": bool(decision.slo),
                "variable_costs": variable_costs,
            }
            for run in (*self.listed, *alone, *sketched)
        ]


def _fixed(workload: Workload) -> dict[str, int | None]:
    """Lengths that all requests have; none of a workload with classes, each of which may say otherwise."""
    lengths = {"prompt_fixed": workload.prompt_tokens, "output_fixed": workload.output_tokens}
    return {name: length.tokens if length and not workload.classes else None for name, length in lengths.items()}


def _classes(workload: Workload) -> str | None:
    plain = workload.model_dump(mode="json", exclude_defaults=True)
    return json.dumps(plain["classes"]) if workload.classes else None


def longest_request(workload: Workload) -> int:
    """Tokens of the longest request that a workload can send, prompt and output together, as far as they are known beforehand: a prompt
    from a file has one or more.

    Raises:
        BenchError: a file that says so is missing or wrong.
    """
    if workload.classes:
        return max(longest_request(part) for part in workload.parts.values())
    if workload.trace:
        return max(x.prompt_tokens + x.output_tokens for x in workload.traced)
    prompt = workload.prompt_tokens.longest if workload.prompt_tokens else 1
    output = workload.output_tokens.longest if workload.output_tokens else 0
    added = workload.turns.new_tokens.longest if workload.turns and workload.turns.new_tokens else 1
    further = (workload.turns.count - 1) * (output + added) if workload.turns else 0
    return prompt + further + output


def swept(ladder: Ladder, workload: Workload) -> list[tuple[str, Workload]]:
    """The workloads of a ladder with their names: its own, or one for each pair of the lengths that the ladder gives."""
    prompts: Sequence[int | None] = ladder.prompt_tokens or (None,)
    outputs: Sequence[int | None] = ladder.output_tokens or (None,)
    return [
        (
            ladder.workload + (f"-p{prompt}" if prompt else "") + (f"-o{output}" if output else ""),
            workload.with_lengths(prompt, output) if prompt or output else workload,
        )
        for prompt, output in itertools.product(prompts, outputs)
    ]


def _deployment(config: Config, name: str, root: Path) -> DeploymentSpec:
    deployment = config.deployments[name]
    engine = config.engines[deployment.engine]
    locks = {
        lock: _sha256(root / lock, f"engines.{deployment.engine}.locks[{i}] is {shown(lock)}", located, MOST_BYTES)
        for i, lock in enumerate(engine.locks)
    }
    model = config.models[deployment.model] if deployment.model else UNNAMED
    read = model.here is not None and engine.source != "external"
    known = config.files.get(str(model.here)) if config.packed else None
    checkpoint = (known or fingerprint(str(model.here))) if read else None
    return DeploymentSpec(name, deployment, model, engine, locks, checkpoint)


def _runs(config: Config, deployments: Mapping[str, DeploymentSpec]) -> Iterator[RunSpec]:
    known = config.files if config.packed else None
    for ladder in config.study.ladders:
        if ladder.auto:
            continue
        own = config.workloads[ladder.workload]
        hashes = file_digests(own, known)
        if not config.packed:
            own = own.with_block()
        workloads = swept(ladder, own)
        for repeat in range(1, ladder.repeats + 1):
            for name, workload in workloads:
                for level in sorted(ladder.levels):
                    yield RunSpec(
                        deployments[ladder.deployment],
                        ladder.workload,
                        name,
                        with_requests(workload, level, ladder.repeats, config.decision.slos),
                        level,
                        repeat,
                        config.measurement.seed,
                        {file: hashes[file] for file in workload.files},
                    )


def _searches(config: Config, deployments: Mapping[str, DeploymentSpec]) -> Iterator[SearchSpec]:
    for ladder in config.study.ladders:
        if not ladder.auto:
            continue
        own, settings = config.workloads[ladder.workload], ladder.search or Search()
        slos = [parse_slo(text) for text in settings.slo] if settings.slo else config.decision.slos
        slos = applying(slos, own.classes)
        files = file_digests(own, config.files if config.packed else None)
        for name, workload in swept(ladder, own):
            yield SearchSpec(
                deployments[ladder.deployment],
                ladder.workload,
                name,
                workload,
                settings,
                tuple(slos),
                config.decision.failed_share,
                config.measurement.seed,
                files,
                config.thresholds.limits,
            )


def _found(searches: Sequence[SearchSpec], listed: Iterable[RunSpec], results: Path) -> list[RunSpec]:
    """What searches measured so far, but for runs that the study lists as well."""
    if not searches:
        return []
    keys = {run.key for run in listed}
    names = dict.fromkeys(search.deployment.name for search in searches)
    records = itertools.chain.from_iterable(results.glob(f"runs/{name}/*/run.json") for name in names)
    return [run for run in found_runs(searches, records) if run.key not in keys]


def _by_name(runs: Iterable[RunSpec]) -> dict[str, list[RunSpec]]:
    found: dict[str, list[RunSpec]] = {}
    for run in runs:
        found.setdefault(run.deployment.name, []).append(run)
    return found


def file_digests(workload: Workload, known: Mapping[str, str] | None = None) -> dict[str, str]:
    """SHA-256 of each file that a workload reads, by path.

    Args:
        known: those of a pack, which is all that is known of its files: none is read.

    Raises:
        BenchError: one cannot be read, or a pack does not have its digest.
    """
    if known is None:
        return {file: _sha256(Path(file), f"{file}, which a workload reads") for file in workload.files}
    if unknown := [file for file in workload.files if file not in known]:
        raise BenchError(
            f"files has no SHA-256 of {shown(unknown[0])}, which a workload reads. Pack the study again where it was measured."
        )
    return {file: known[file] for file in workload.files}


def _sha256(file: Path, what: str, place: Callable[[Path], Path] = Path, most: float = math.inf) -> str:
    """A file's SHA-256. Args: what: it is, in messages. place: where it lies. most: bytes that it may have."""
    try:
        file = place(file)
        if file.exists() and not file.is_file():  # a pipe waits for a writer, and a device may go on for ever
            raise OSError(errno.EINVAL, "a folder, a pipe or a device")
        if file.stat().st_size > most:
            raise OSError(errno.EFBIG, f"larger than {most / 2**20:.0f} MiB")
        return checksum(file)
    except FileNotFoundError:
        why = "no such file"
    except (OSError, ValueError) as error:  # ValueError: a null character
        why = f"not a readable file ({getattr(error, 'strerror', None) or error})"
    raise BenchError(f"{what}: {why}. Paths start at the project's root.")

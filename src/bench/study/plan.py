"""From a configuration to its runs: what is measured on what, under which name and digest."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.errors import BenchError
from bench.study.config import Config, Deployment, Engine, Ladder, Measurement
from bench.study.hardware import Device, device_named, devices
from bench.study.model import Model
from bench.study.paths import Paths
from bench.study.trace import read_trace
from bench.study.workload import Workload

__all__ = ["PROTOCOL", "DeploymentSpec", "Plan", "RunSpec", "digest", "longest_request", "swept"]

# The measuring protocol. Raise it when old runs no longer compare with new ones: every run is then measured again.
# tests/test_protocol.py fails when the modules that decide it change and this number does not.
PROTOCOL = 3


_AXIS_LETTER = {"request_rate": "q", "time_scale": "x"}


def digest(content: Any) -> str:
    """SHA-256 of a value's canonical JSON, in hexadecimal."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class DeploymentSpec:
    """A deployment with everything that it refers to.

    Attributes:
        name: its key in the configuration.
        deployment, model, engine: the configuration's entries.
        locks: SHA-256 of each of the engine's lock files, by path.
    """

    name: str
    deployment: Deployment
    model: Model
    engine: Engine
    locks: Mapping[str, str]

    @property
    def served_name(self) -> str:
        """The model's name in requests."""
        return self.deployment.served_name or self.name

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that makes two measurements of this deployment comparable; deterministic, as the configuration says it.

        Defaults are left out: a new key must not measure everything again. A changed default raises PROTOCOL.
        """
        return {
            "deployment": self.deployment.model_dump(mode="json", exclude_defaults=True),
            "model": self.model.model_dump(mode="json", exclude_defaults=True),
            "engine": self.engine.model_dump(mode="json", exclude_defaults=True, exclude={"index", "python"}),
            "locks": dict(self.locks),
        }

    @cached_property
    def digest(self) -> str:
        """Digest of `identity`."""
        return digest(self.identity)


@dataclass(frozen=True)
class RunSpec:
    """One run: a deployment under one workload at one level, once.

    `name` is readable and complete; `digest` decides whether a measurement may be used again.

    Attributes:
        family: the workload's key in the configuration. workload_name: the same, with the lengths that its ladder gives it.
        level: requests in flight, requests a second or a time scale, as the workload's axis says.
        files: SHA-256 of each file that the workload reads, by path.
    """

    deployment: DeploymentSpec
    family: str
    workload_name: str
    workload: Workload
    level: float
    repeat: int
    seed: int
    files: Mapping[str, str]

    @cached_property
    def name(self) -> str:
        """Folder name: workload, arrival, lengths, level, repeat and a short digest of the workload's definition."""
        load, definition = self.workload, digest({**self._load, "seed": self.seed, **self._files})[:8]
        level = f"c{self.level:04g}" if load.axis == "concurrency" else f"{_AXIS_LETTER[load.axis]}{self.level:g}"
        return f"{self.workload_name}_{load_label(load)}_{level}_r{self.repeat}_{definition}"

    @property
    def _load(self) -> dict[str, Any]:
        return self.workload.model_dump(mode="json", exclude_defaults=True)

    @property
    def _files(self) -> dict[str, Any]:
        return {"files": dict(self.files)} if self.files else {}

    @property
    def key(self) -> str:
        """`deployment/run`, what `select` matches and messages print."""
        return f"{self.deployment.name}/{self.name}"

    @property
    def schedule_seed(self) -> str:
        """What draws arrivals and lengths: the same for all deployments and levels, so that they are compared on the same requests."""
        return f"{self.seed}/{self.repeat}"

    @cached_property
    def definition(self) -> dict[str, Any]:
        """The run as plain data, as its record keeps it."""
        return {
            "deployment": self.deployment.name,
            "run": self.name,
            "workload": self.workload_name,
            **({"family": self.family} if self.family != self.workload_name else {}),
            **self._load,
            **self._files,
            "axis": self.workload.axis,
            "level": self.level,
            "repeat": self.repeat,
            "seed": self.seed,
        }

    @cached_property
    def digest(self) -> str:
        """Digest of everything that decides what this run measures."""
        return digest({"protocol": PROTOCOL, "deployment": self.deployment.digest, "run": self.definition})

    @property
    def record(self) -> Path:
        """Where the run's record lies."""
        return Path(Paths.RECORD.format(deployment=self.deployment.name, run=self.name))


@dataclass(frozen=True)
class Plan:
    """The runs of a configuration, narrowed by its `select`.

    Attributes:
        runs: those that are selected. of_study: how many there are without `select`.
    """

    config: Config
    deployments: Mapping[str, DeploymentSpec]
    runs: tuple[RunSpec, ...]
    of_study: int

    @classmethod
    def of(cls, config: Config, *, root: Path = Path()) -> Plan:
        """The plan of `config`, whose lock files lie below `root`.

        Raises:
            BenchError: a lock file is missing, or `select` matches no run.
        """
        deployments = {
            name: _deployment(config, name, root) for name in dict.fromkeys(x.deployment for x in config.study.ladders)
        }
        every = list(_runs(config, deployments))
        patterns = [config.select] if isinstance(config.select, str) else config.select
        runs = tuple(run for run in every if any(fnmatchcase(run.key, pattern) for pattern in patterns))
        if not runs:
            raise BenchError(
                f"select is {config.select!r}, which matches none of the study's {len(every)} runs. "
                f"A run is called like {every[0].key}; `bench runs` lists them all."
            )
        kept = {run.deployment.name for run in runs}
        return cls(config, {n: d for n, d in deployments.items() if n in kept}, runs, len(every))

    @property
    def digest(self) -> str:
        """Digest of all runs together."""
        return digest([run.digest for run in self.runs])

    @property
    def measurement(self) -> Measurement:
        """How a session measures."""
        return self.config.measurement

    def runs_of(self, deployment: str) -> tuple[RunSpec, ...]:
        """The runs of one deployment, in the order in which they are measured."""
        return self._by_deployment.get(deployment, ())

    @cached_property
    def _by_deployment(self) -> dict[str, tuple[RunSpec, ...]]:
        runs: dict[str, list[RunSpec]] = {name: [] for name in self.deployments}
        for run in self.runs:
            runs[run.deployment.name].append(run)
        return {name: tuple(known) for name, known in runs.items()}

    def longest_request(self, deployment: str) -> int:
        """Tokens of the longest request that the study sends to a deployment, whatever `select` leaves of it."""
        return max(
            longest_request(workload)
            for ladder in self.config.study.ladders
            if ladder.deployment == deployment
            for _, workload in swept(ladder, self.config.workloads[ladder.workload])
        )

    @cached_property
    def replicas(self) -> list[str]:
        """Deployments that are the study's baseline under another name: what it differs from itself, when measured once more."""
        baseline = self.deployments.get(self.config.study.baseline or "")
        return [
            spec.name for spec in self.deployments.values() if baseline and spec.digest == baseline.digest and spec != baseline
        ]

    @cached_property
    def device(self) -> Device | None:
        """The device that the study's decision names, with the study's own facts."""
        name = self.config.decision.device
        return None if name is None else device_named(name, devices(self.config.hardware))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Each run by what a study can vary, under the names of the summary table's columns."""
        return [
            {
                "deployment": run.deployment.name,
                "baseline": run.deployment.name == self.config.study.baseline,
                "model": run.deployment.deployment.model,
                "engine": run.deployment.deployment.engine,
                "device": run.deployment.engine.device,
                "tensor_parallel": run.deployment.deployment.tensor_parallel,
                "workload": run.workload_name,
                "family": run.family,
                "arrival": run.workload.arrival,
                "axis": run.workload.axis,
                "level": float(run.level),
                "prompt_fixed": run.workload.prompt_tokens.fixed if run.workload.prompt_tokens else None,
                "output_fixed": run.workload.output_tokens.fixed if run.workload.output_tokens else None,
                "stream": run.workload.stream,
                "endpoint": run.workload.endpoint,
                "cache": run.workload.cache,
                "turns": run.workload.turns.count if run.workload.turns else 1,
                "slo": bool(self.config.decision.slo),
                "priced": self.config.decision.price_per_million_tokens is not None,
            }
            for run in self.runs
        ]

    def run_at(self, record: Path) -> RunSpec:
        """The run whose record lies at `record`."""
        if record not in self._by_record:
            raise BenchError(f"{record}: no run of this study has its record there; `bench runs` lists them.")
        return self._by_record[record]

    @cached_property
    def _by_record(self) -> dict[Path, RunSpec]:
        return {run.record: run for run in self.runs}


def load_label(workload: Workload) -> str:
    """Arrival and lengths of a workload in short, such as `burst_p128_o64`."""
    lengths = (("p", workload.prompt_tokens), ("o", workload.output_tokens))
    return workload.arrival + "".join(f"_{letter}{length.label}" for letter, length in lengths if length)


def longest_request(workload: Workload) -> int:
    """Tokens of the longest request that a workload can send, prompt and output together.

    Raises:
        BenchError: a file that says so is missing or wrong.
    """
    if workload.trace:
        return max(x.prompt_tokens + x.output_tokens for x in read_trace(workload.trace))
    assert workload.prompt_tokens
    assert workload.output_tokens
    prompt, output = workload.prompt_tokens.longest, workload.output_tokens.longest
    further = (workload.turns.count - 1) * (output + workload.turns.new_tokens.longest) if workload.turns else 0
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
    locks = {}
    for i, lock in enumerate(engine.locks):
        try:
            locks[lock] = hashlib.sha256((root / lock).read_bytes()).hexdigest()
        except FileNotFoundError:
            raise BenchError(
                f"engines.{deployment.engine}.locks[{i}] is {lock!r}: no such file. Paths start at the project's root."
            ) from None
    return DeploymentSpec(name, deployment, config.models[deployment.model], engine, locks)


def _runs(config: Config, deployments: Mapping[str, DeploymentSpec]) -> Iterator[RunSpec]:
    hashes: dict[str, str] = {}
    for ladder in config.study.ladders:
        own = config.workloads[ladder.workload]
        for file in own.files:
            hashes.setdefault(file, _sha256(Path(file)))
        workloads = swept(ladder, own)
        for repeat in range(1, ladder.repeats + 1):
            for name, workload in workloads:
                for level in sorted(ladder.levels):
                    yield RunSpec(
                        deployments[ladder.deployment],
                        ladder.workload,
                        name,
                        workload,
                        level,
                        repeat,
                        config.measurement.seed,
                        {file: hashes[file] for file in workload.files},
                    )


def _sha256(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except FileNotFoundError:
        raise BenchError(f"{file}: no such file; a workload reads it. Paths start at the project's root.") from None

"""What a study refers to, put together: a deployment with its model, engine and locks, and a run of it; each with its digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.axes import AXES
from bench.models import Model
from bench.records.environment import redacted
from bench.study.deployment import Deployment, Engine
from bench.study.paths import Paths
from bench.study.settings import SETTINGS, VARIABLE, flag_column
from bench.study.workload import Workload

_OF_CPU, _OF_GPU = {"cores"}, {"gpu_memory_utilization"}  # which mean nothing to the other

# version of the measuring protocol: where old runs no longer compare, raise it (tests/study/test_protocol.py), and every run is
# measured again; convention
PROTOCOL = 6

# Engine keys outside the identity: package source and credentials.
_NO_IDENTITY = {"index", "python", "headers"}


def digest(content: Any) -> str:
    """SHA-256 of a value's canonical JSON, in hexadecimal."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class DeploymentSpec:
    """A deployment with everything that it refers to.

    Attributes:
        deployment, model, engine: the configuration's entries.
        locks: SHA-256 of each of the engine's lock files, by path.
        checkpoint: what identifies the files of a model that is given by its path; None where there are none to read.
    """

    name: str
    deployment: Deployment
    model: Model
    engine: Engine
    locks: Mapping[str, str]
    checkpoint: str | None = None

    @property
    def model_name(self) -> str:
        """The model's name in tables and figures: its key; the deployment's own name where the study does not say what is served."""
        return self.deployment.model or self.name

    @property
    def served_name(self) -> str:
        """The model's name in requests."""
        return self.deployment.served_name or self.name

    @property
    def gpus(self) -> int | None:
        """GPUs of one instance, the number that everything else uses: tensor × pipeline × data parallelism; of a fleet those of all.

        0 where the engine runs on a CPU. None where the server is external and nothing is said of it: its deployment gives none of the
        three, and its engine no `backend: cpu`.
        """
        external, d = self.engine.source == "external", self.deployment
        if self.engine.backend == "cpu" and (not external or "backend" in self.engine.model_fields_set):
            return 0
        given = d.model_fields_set & {"tensor_parallel", "pipeline_parallel", "data_parallel"}
        return None if external and not given else d.workers * (len(self.engine.workers) or d.replicas)

    @property
    def settings(self) -> dict[str, str | int | float | bool | None]:
        """What the configuration says of how its server runs, by column of the summary: `SETTINGS`; its flags and variables as text.

        Of a server that runs elsewhere only what its deployment gives: the defaults are of servers that are started here.
        """
        d, cpu = self.deployment, self.engine.backend == "cpu"
        known = d.model_fields_set if self.engine.source == "external" else set(SETTINGS) - (_OF_GPU if cpu else _OF_CPU)
        known = known if d.router == "haproxy" else known - {"balance"}
        flags = redacted(
            {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in d.flags.items()}
        )
        return {
            **{name: getattr(d, name) for name in SETTINGS if name in known and name != "router"},
            **({"router": d.router if isinstance(d.router, str) else " ".join(d.router)} if d.router else {}),
            **{flag_column(name): value for name, value in flags.items()},
            **{VARIABLE + name: value for name, value in redacted(d.environment).items()},
        }

    @cached_property
    def identity(self) -> dict[str, Any]:
        """All that makes two measurements of this deployment comparable; deterministic, as the configuration says it.

        Defaults are left out: a new key must not measure everything again. A changed default raises PROTOCOL. Secrets are left out
        too: a new API key measures nothing again, and a pack can do without it.
        """
        deployment = self.deployment.model_dump(mode="json", exclude_defaults=True)
        return {
            "deployment": {**deployment, **({"environment": redacted(own)} if (own := self.deployment.environment) else {})},
            "model": self.model.model_dump(mode="json", exclude_defaults=True, exclude={"fingerprint"}),
            "engine": self.engine.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=_NO_IDENTITY),
            "locks": dict(self.locks),
            **({"checkpoint": self.checkpoint} if self.checkpoint else {}),
        }

    @cached_property
    def digest(self) -> str:
        """Digest of `identity`."""
        return digest(self.identity)


@dataclass(frozen=True)
class RunSpec:
    """One run: a deployment under one workload at one level, once.

    `digest` covers everything that is measured, and `name` ends with its beginning: a run that is defined otherwise has another folder.

    Attributes:
        family: the workload's key in the configuration. workload_name: the same, with the lengths that its ladder gives it.
        level: requests in flight, requests a second or a time scale, as the workload's axis says.
        files: SHA-256 of each file that the workload reads, by path.
        searched: whether a search chose the level, which is no part of what is measured.
    """

    deployment: DeploymentSpec
    family: str
    workload_name: str
    workload: Workload
    level: float
    repeat: int
    seed: int
    files: Mapping[str, str]
    searched: bool = False

    @cached_property
    def name(self) -> str:
        """Folder name: workload, arrival, lengths, level, repeat and the first eight digits of the digest."""
        load = self.workload
        level = AXES[load.axis].label(self.level)
        return f"{self.workload_name}_{load_label(load)}_{level}_r{self.repeat}_{self.digest[:8]}"

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
        """What draws arrivals and lengths: the same for all deployments, which are so compared on the same requests.

        Each level has draws of its own: a burst of arrivals that all levels shared would shift the whole curve, and C_max with it,
        and no number of levels would show it.
        """
        return f"{self.seed}/{self.repeat}/{self.level:g}"

    @cached_property
    def definition(self) -> dict[str, Any]:
        """The run as plain data, as its record keeps it."""
        return {**self._identity, "run": self.name}

    @property
    def _identity(self) -> dict[str, Any]:
        return {
            "deployment": self.deployment.name,
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
        return digest({"protocol": PROTOCOL, "deployment": self.deployment.digest, "run": self._identity})

    @property
    def record(self) -> Path:
        """Where the run's record lies, below the working directory."""
        return Path(Paths.RECORD.format(deployment=self.deployment.name, run=self.name))


def load_label(workload: Workload) -> str:
    """Arrival and lengths of a workload in short, such as `burst_p128_o64`; of one with classes their number."""
    if workload.classes:
        return f"{workload.arrival}_{len(workload.classes)}classes"
    lengths = (("p", workload.prompt_tokens), ("o", workload.output_tokens))
    own = "" if workload.prompts.sized else f"_p{workload.prompts.source}"
    return workload.arrival + own + "".join(f"_{letter}{length.label}" for letter, length in lengths if length)

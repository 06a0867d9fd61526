"""A deployment with everything that it refers to, and the digest of what makes two measurements of it comparable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bench.models.model import Model
from bench.plugins import origin
from bench.runs.environment import redacted
from bench.runs.files import digest
from bench.runs.paths import Paths
from bench.servers.deployment import Deployment, Engine
from bench.servers.settings import SETTINGS, VARIABLE, flag_column

_OF_CPU, _OF_GPU = {"cores"}, {"gpu_memory_utilization"}  # which mean nothing to the other

# Engine keys outside the identity: package source and credentials.
_NO_IDENTITY = {"python", "headers"}


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
    def gpus_started(self) -> int:
        """GPUs that a session takes: those of the server that it starts."""
        return 0 if self.engine.source == "external" else self.gpus or 0

    @property
    def descends(self) -> bool:
        """Whether the server's processes descend from ours; those of docker's daemon do not, an external server may run anywhere."""
        return self.engine.source != "external" and Path((self.engine.command or [""])[0]).name != "docker"

    @property
    def inputs(self) -> dict[str, str]:
        """The records that its launch is made from: of its engine, and of its checkpoint where the server is ours to start."""
        model = {} if self.engine.source == "external" else {"checkpoint": Paths.CHECKPOINT.format(model=self.deployment.model)}
        return {"engine": Paths.ENGINE.format(engine=self.deployment.engine), **model}

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
            "model": self.model.model_dump(mode="json", exclude_defaults=True),
            "engine": self.engine.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=_NO_IDENTITY),
            "locks": dict(self.locks),
            **({"package": package} if (package := origin("engine", self.engine.kind)) else {}),
            **({"checkpoint": self.checkpoint} if self.checkpoint else {}),
        }

    @cached_property
    def digest(self) -> str:
        """Digest of `identity`."""
        return digest(self.identity)

"""`deployment.json`: what was really running, read from the server and the machine before the first run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.runs.launch import Settings


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The client's machine.

    Attributes:
        cpu: name of the processor. cores: all cores. cores_allowed: cores that this process may use.
        memory_bytes: memory of the machine.
        gpus: `name`, `memory.total`, `driver_version` and `power.limit` of each, as nvidia-smi words them.
        system: the kernel. python: version of Python.
    """

    cpu: str
    cores: int | None
    cores_allowed: int | None = None
    memory_bytes: int | None = None
    gpus: tuple[Mapping[str, str], ...]
    system: str | None = None
    python: str | None = None

    @property
    def in_short(self) -> str:
        """The machine, such as `Xeon, 2 cores, 2 × NVIDIA H100`."""
        gpus = Counter(gpu["name"] for gpu in self.gpus)
        return ", ".join([self.cpu, f"{self.cores} cores", *(f"{count} × {name}" for name, count in gpus.items())])


@dataclass(frozen=True, kw_only=True)
class Warmup:
    """What was sent before the first run.

    Attributes:
        ttft_s: TTFT of each request (s); E2E where nothing streams, None where the request failed.
        stable: whether three in a row were alike; None where there was no warm-up.
    """

    ttft_s: tuple[float | None, ...] = ()
    stable: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start of a server, of a fleet that of its slowest replica.

    Attributes:
        ready_s: from its launch to readiness (s). first_token_s: from its launch to the first token of its first answer, had that
            request come as soon as it was ready (s); without streaming to the answer's end.
    """

    ready_s: float
    first_token_s: float


@dataclass(frozen=True, kw_only=True)
class KvFacts:
    """The KV cache of all engines behind an endpoint together; null where the server does not report it.

    Attributes:
        engines: how many there are. kv_blocks, kv_tokens: size of the KV cache of all together. block_size: tokens in a block.
        prefix_caching: whether prompts share blocks. cache_config: the engine's own settings of the cache; what all engines have in
            common, and null where they differ.
    """

    engines: int | None = None
    kv_blocks: int | None
    block_size: int | None
    kv_tokens: int | None
    prefix_caching: bool | None = None
    cache_config: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class DeploymentFacts(KvFacts):
    """A deployment's server and machine.

    Attributes:
        deployment: key of the deployment. digest: of its definition.
        engine_version: as the server reports it. kind: which engine its metrics are of, by name; None where that is
            not known. managed: whether it was started here. command, environment: with which it was started,
            without secrets. settings: the engine's settings, as started.
        router_version: of what stands in front of replicas; None where nothing does, or where it is not known.
        ready_s: seconds from start to readiness. starts: those of every session that measured this definition, the latest one last;
            none of a server that was not started here.
        weight_gib: size of the loaded weights, as its log reports it. step_tokens: most tokens of a step, as its log has them.
        inherited: the user's variables that reached it, as recorded; None for a server that was not started here, or of which nothing
            was recorded. environment_digest: of those that must be alike in runs that are compared.
    """

    deployment: str
    digest: str
    engine_version: str | None
    kind: str | None = None
    managed: bool
    command: tuple[str, ...]
    settings: Settings = field(default_factory=Settings)
    environment: Mapping[str, str]
    router_version: str | None = None
    ready_s: float
    starts: tuple[Start, ...] = ()
    weight_gib: float | None = None
    step_tokens: int | None = None
    hardware: Hardware
    inherited: Mapping[str, str] | None = None
    environment_digest: str | None = None
    warmup: Warmup = field(default_factory=Warmup)

    @property
    def start_ups_s(self) -> tuple[float, ...]:
        """Cold starts, from launch to the first token (s); none of a server not started here."""
        return tuple(start.first_token_s for start in self.starts)

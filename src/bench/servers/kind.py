"""What an engine's file defines: `Kind` of any that can be measured, `Managed` of those that are started here."""

from __future__ import annotations

import tomllib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from bench.runs.deployment import KvFacts
from bench.runs.launch import MemoryPlan, Settings, settings_of

if TYPE_CHECKING:
    from bench.models.geometry import Geometry
    from bench.models.model import Model
    from bench.servers.deployment import Deployment, Engine
    from bench.servers.spec import DeploymentSpec


@dataclass(frozen=True)
class OnGpu:
    """How a model is served on a GPU, as far as its engine's own memory follows from it.

    Attributes:
        memory: of the GPU (bytes); None where it is not known, and taken as 80 GiB. bytes_each: of an activation.
        max_num_seqs: most sequences in a step. step_tokens: most tokens in a step; None: the engine's default.
        tensor_parallel: GPUs that share each layer. version: of the engine; None: the newest that is known.
        graphs: whether it captures CUDA graphs.
    """

    memory: int | None
    bytes_each: int
    max_num_seqs: int
    step_tokens: int | None = None
    tensor_parallel: int = 1
    version: str | None = None
    graphs: bool = True


Flag = str | int | float | bool  # the value of a flag; a switch is True or False
Labelled = tuple[Mapping[str, str], float]  # a sample: its labels and its value
Ask = Callable[[str], Any]  # the JSON that a server answers at a path; None where it answers none


@dataclass(frozen=True)
class Exposed:
    """One name of a metric in an engine's exposition. Of a histogram it stands here without `_sum` and `_count`.

    Attributes:
        since, until: the first version that exposes it, and the first that no longer does by default.
        absent: what it means where a server of such a version does not expose it: None, a fault; `unknown`, that it cannot be known,
            null and no fault; `zero`, that there was nothing to count so far.
    """

    name: str
    since: str
    until: str | None = None
    absent: str | None = None


@cache
def metric_tables() -> dict[str, Any]:
    """`metrics.toml`."""
    return tomllib.loads(files("bench.servers").joinpath("metrics.toml").read_text(encoding="utf-8"))


def names_of(engine: str, prefix: str) -> dict[str, list[Exposed]]:
    """What an engine calls our metrics, as `metrics.toml` has it."""

    def exposed(row: str) -> Exposed:
        name, versions, *absent = row.split()
        since, _, until = versions.partition("-")
        return Exposed(prefix + name, since, until or None, *absent)

    return {metric: list(map(exposed, rows)) for metric, rows in metric_tables().get(engine, {}).items()}


@dataclass(frozen=True, kw_only=True)
class Production:
    """How an engine is run where it is not measured.

    Attributes:
        command: what its own distribution calls its server. entrypoint: the same in its image.
        port: that its image serves. revision: the flag that takes a model's commit on the hub; None where it takes none.
        named: the flag that names the model in requests. shared_memory: whether its processes exchange through shared memory.
        left_out: flags that serve the benchmark alone, by `flag` or `flag=value`, with the reason. variables: the same of variables.
    """

    command: Sequence[str]
    entrypoint: Sequence[str]
    port: int
    revision: str | None = None
    named: str
    shared_memory: bool = False
    left_out: Mapping[str, str]
    variables: Mapping[str, str] = field(default_factory=dict)


RAY = "ray_"  # how Ray's agents begin what they pass on, up to 10 s late, and with sums of histograms that are estimates


class Kind(ABC):
    """An engine that can be measured.

    Attributes:
        name: in configurations. title: for readers. prefix: of its metrics' names.
        metrics: by our metric (`bench.servers.metrics`) the names that it had, newest first; a metric that it never exposes has no
            names and is null in its results. facts: names of what it exposes of itself, of its KV cache above all.
        others: further spellings of its names, by those who pass its metrics on.
        repeats: labels of ranks that share the same requests: what differs in them alone is the same count once more. All other labels
            divide what they count. totals: by label the value that stands for all of its other values together.
        tpot: its histogram with the TPOT of each request, which alerts read; None where it has none.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    prefix: ClassVar[str]
    metrics: ClassVar[Mapping[str, Sequence[Exposed]]]
    facts: ClassVar[Mapping[str, str]] = {}
    others: ClassVar[Sequence[str]] = ()
    repeats: ClassVar[Sequence[str]] = ()
    totals: ClassVar[Mapping[str, str]] = {}
    tpot: ClassVar[str | None] = None

    def spellings(self) -> tuple[str, ...]:
        """Its own one, that of collectors which allow no colon in a name, Ray's of both, and `others`."""
        own = dict.fromkeys((self.prefix, self.prefix.replace(":", "_")))
        return *own, *(RAY + each for each in own), *self.others

    @abstractmethod
    def info(self, ask: Ask) -> dict[str, Any] | None:
        """What a server reports of itself, its `version` at least; None where it is another engine's, or reports nothing."""

    def kv_facts(self, samples: Mapping[str, Sequence[Labelled]], info: Mapping[str, Any]) -> KvFacts:
        """The KV cache of all engines behind an endpoint together.

        Args:
            samples: those of each of `facts` that is exposed, one for each engine. info: what the server reports of itself.
        """
        return KvFacts(engines=max(map(len, samples.values()), default=None), kv_blocks=None, block_size=None, kv_tokens=None)


class Managed(Kind):
    """An engine that is started here.

    Attributes:
        server: what the Python of its environment is given to run it. packages: names of its distribution.
        health: the path that answers when it is ready.
        planned_by: flags that memory, GPUs and costs follow from, by the key of the deployment that sets them.
        variables: prefixes of the user's exported variables that can change what it does.
        slots: whether it holds a whole sequence's memory from a request's first token on. Then the share of slots in use is the KV
            cache's usage.
        gguf: whether it reads a checkpoint as one GGUF file; else as a folder with `config.json`.
        cpu_overhead: its resident memory beside weights and KV cache, on a CPU (bytes).
        production: how it is run where it is not measured.
    """

    server: ClassVar[Sequence[str]]
    packages: ClassVar[Sequence[str]] = ()
    health: ClassVar[str] = "/health"
    planned_by: ClassVar[Mapping[str, str]] = {}
    variables: ClassVar[Sequence[str]] = ()
    slots: ClassVar[bool] = False
    gguf: ClassVar[bool] = False
    cpu_overhead: ClassVar[int]
    production: ClassVar[Production]

    def lacks(self, backend: str, include: Callable[[], Path]) -> str | None:
        """What the machine lacks for it, in words; None where nothing.

        Args:
            include: gives the folder of Python's headers.
        """

    def refused(self, deployment: Deployment, engine: Engine, model: Model, geometry: Geometry | None) -> str | None:
        """What of the deployment it cannot do, as `key: why and what to do`; None where nothing."""

    def dtype(self, spec: DeploymentSpec) -> str:
        """The type of weights and activations that `dtype: auto` means."""
        given = spec.deployment.dtype
        return given if given != "auto" else "float32" if spec.engine.backend == "cpu" else "bfloat16"

    @abstractmethod
    def block_size(self, spec: DeploymentSpec, geometry: Geometry | None) -> int:
        """Tokens of a KV block."""

    def gpu_overhead(self, geometry: Geometry, on: OnGpu) -> int:
        """What it keeps on each GPU beside weights and KV cache (bytes)."""
        return 0

    def gpu_padding(self, geometry: Geometry, tensor_parallel: int) -> int:
        """By how much the weights grow on each GPU as they are loaded, for the kernels that read them (bytes, of all layers)."""
        return 0

    def cut(self, plan: MemoryPlan, spec: DeploymentSpec, context: int) -> MemoryPlan:
        """The plan with the KV cache as this engine cuts it; given in blocks of `block_size`."""
        return plan

    def usable(self, plan: MemoryPlan) -> int:
        """Tokens of one engine's KV cache that requests may take. A request cannot spread over several engines."""
        return (plan.kv_tokens or 0) // plan.engines

    @abstractmethod
    def flags(self, spec: DeploymentSpec, plan: MemoryPlan | None, longest: int | None) -> dict[str, Flag]:
        """The server's flags by name, without the deployment's own.

        Args:
            longest: the longest sequence that the KV cache and the model's context allow (tokens).
        """

    def model(self, path: str, command: Sequence[str]) -> list[str]:
        """How its command line names the checkpoint."""
        return ["--model", path]

    def settings(self, flags: Mapping[str, Flag], plan: MemoryPlan | None) -> Settings:
        """What its flags say, by the names that every engine shares."""
        return settings_of(flags)

    def environment(self, spec: DeploymentSpec) -> dict[str, str]:
        """Variables that it is started with."""
        return {}

    @abstractmethod
    def pinned(self, groups: Sequence[Sequence[int]]) -> tuple[list[str], dict[str, str]]:
        """What goes before its command, and variables, that keep each worker of a CPU engine on its group of cores.

        Args:
            groups: numbers of cores.
        """

    def version(self, packages: Sequence[str]) -> str | None:
        """The version before it runs. Args: packages: of its environment, as `name==version`."""
        pins = (pin.partition("==") for pin in packages)
        return next((pin for name, _, pin in pins if name in self.packages), None)

    @abstractmethod
    def image(self, version: str, device: str) -> str | None:
        """The image that its makers publish of a version, for `cpu` or `cuda`; None where there is none of it."""

    def step_tokens(self, log: str) -> int | None:
        """Most tokens of a step, as its log has them; None where it does not."""
        return None

    def schedules_ahead(self, version: str | None, words: Sequence[str]) -> bool:
        """Whether a step is scheduled while the one before it runs. Args: words: of its command line."""
        return False

    def weight_gib(self, log: str) -> float | None:
        """Size of the loaded weights, as its log reports it."""
        return None


def arguments(flags: Mapping[str, Flag]) -> list[str]:
    """Flags as a command line has them; a switch that is off is written `--no-…`."""
    argv: list[str] = []
    for key, value in flags.items():
        if isinstance(value, bool):
            argv.append(f"--{key}" if value else f"--no-{key}")
        else:
            argv += [f"--{key}", str(value)]
    return argv


def common(values: Sequence[Any]) -> Any:
    """The value that all of them have; None where they differ, or where the list is empty."""
    return values[0] if values and all(value == values[0] for value in values) else None


def whole(value: float) -> int | None:
    """A sample's value as a count; None where it is not a number, such as NaN."""
    return int(value) if 0 <= value < 2**53 else None


def count(text: str | None) -> int | None:
    """A label as a count; None where it is none."""
    return int(text) if text and len(text) <= 15 and text.isascii() and text.isdigit() else None


def total(values: Sequence[int | None]) -> int | None:
    """The sum, if each is known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None

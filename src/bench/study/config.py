"""The configuration as typed models: what a study may say, and every reason to refuse it.

The field descriptions are the reference: `config/README.md` and the JSON schema are generated from them (`bench config`).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from bench.engines import MANAGED
from bench.fields import Count, Size, Strict
from bench.models import Model
from bench.records.environment import is_secret
from bench.study.decision import Decision
from bench.study.workload import Workload

__all__ = [
    "Config",
    "Decision",
    "Deployment",
    "Engine",
    "Ladder",
    "Measurement",
    "Study",
    "Thresholds",
]

_MOST_RUNS = 100_000


def _address(value: str) -> str:
    """`value`, if it is an address of a server.

    Raises:
        ValueError: it is not `http(s)://host[:port][/path]`.
    """
    try:
        url = urlsplit(value)
        host, _ = url.hostname or "", url.port  # a port beyond 65535 raises
        host.encode("idna")  # as looking it up does: an empty or overlong part raises
    except ValueError as error:
        raise ValueError(f"no address ({error}); write http://HOST:PORT, such as http://127.0.0.1:8000") from None
    if url.username is not None or url.password is not None:
        raise ValueError("an address that holds a user or a password; give a key in OPENAI_API_KEY instead")
    odd = url.query or url.fragment or re.search(r"[^\x21-\x7e]|[<>\"{}|\\^`]", value)
    if url.scheme not in ("http", "https") or not host or odd:
        raise ValueError("no address; write http://HOST:PORT, such as http://127.0.0.1:8000, with a path at most")
    return value


# Names become folders, wildcards and `_`-separated parts of a run's name: hence no underscore, no slash, no upper case.
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]*$", max_length=60)]


def _known(name: str) -> str:
    """`name`, if an engine that can be started is called so.

    Raises:
        ValueError: none is.
    """
    if name not in MANAGED:
        raise ValueError(f"no engine that can be started here; there are {', '.join(MANAGED)}")
    return name


class Engine(Strict):
    """Where the server comes from: a pinned environment, a command on PATH, a container image, or a running endpoint."""

    source: Literal["lock", "command", "container", "external"] = Field(
        description="`lock`: build an environment from `locks`; `command`: use `command`; `container`: run `image`; "
        "`external`: measure the server at `base_url`, which is never started or stopped."
    )
    kind: Annotated[str, AfterValidator(_known), WithJsonSchema({"type": "string", "enum": list(MANAGED)})] = Field(
        default="vllm",
        description=f"Which engine it is: {' or '.join(f'`{name}`' for name in MANAGED)}. One that is `external` shows it by its "
        "metrics.",
    )
    device: Literal["cpu", "cuda"] = Field(default="cpu", description="What the engine's build runs on.")
    locks: list[str] = Field(
        default_factory=list,
        description="Requirement files with hashes, installed one after the other (paths from the project's root).",
    )
    index: str | None = Field(
        default=None,
        description="Further package index for the last lock, tried after the default ones (torch's CPU wheels are not on PyPI).",
    )
    python: str = Field(default="python3", description="Interpreter of the environment.")
    command: list[str] | None = Field(
        default=None, description="The server's command, such as `[vllm, serve]`; its flags are appended."
    )
    image: str | None = Field(default=None, description="Container image, with a digest or a tag.")
    runtime: Literal["docker", "podman", "apptainer"] = Field(default="docker", description="What runs `image`.")
    base_url: Annotated[str, AfterValidator(_address)] | None = Field(
        default=None, description="Address of a running server, such as `http://127.0.0.1:8000`."
    )

    @model_validator(mode="after")
    def _fields_of_source(self) -> Engine:
        needs = {"lock": "locks", "command": "command", "container": "image", "external": "base_url"}
        for source, key in needs.items():
            given = bool(getattr(self, key))
            if source == self.source and not given:
                raise ValueError(f"source {source} needs {key}")
            if source != self.source and given:
                raise ValueError(f"{key} belongs to source {source}, not to {self.source}")
        return self


class Deployment(Strict):
    """One server: a model on an engine with its parameters."""

    model: Name = Field(description="Key of `models`.")
    engine: Name = Field(description="Key of `engines`.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="Type of weights and activations; `auto` is float32 on a CPU and bfloat16 on a GPU."
    )
    kv_cache_dtype: Literal["auto", "fp8"] = Field(
        default="auto", description="Type of the KV cache; `auto` is that of the weights."
    )
    kv_cache_memory: Size | None = Field(
        default=None,
        description="Bytes of KV cache on each device, such as `64MiB`. Required on a CPU; on a GPU, without it, the engine "
        "takes what `gpu_memory_utilization` leaves.",
    )
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.9, description="Share of a GPU's memory that the engine may take."
    )
    block_size: Count | None = Field(
        default=None,
        description="Tokens in a KV block; default 32 on a CPU (vLLM refuses 16 there, and takes nothing else for latent attention), "
        "16 on a GPU.",
    )
    max_num_seqs: Count = Field(
        default=256, description="Most sequences in one step; keep it above the highest concurrency, or it is the limit."
    )
    tensor_parallel: Count = Field(
        default=1,
        description="Devices that share each layer. An instance takes `tensor_parallel` × `pipeline_parallel` × `data_parallel` GPUs. "
        "Of an `external` engine, giving one of the three, even as 1, says how many it has; otherwise they are unknown.",
    )
    pipeline_parallel: Count = Field(
        default=1, description="Stages over which the layers are dealt out, each of `tensor_parallel` devices."
    )
    data_parallel: Count = Field(
        default=1,
        description="Engines behind the one endpoint, each with the whole model (but for experts, which they share) and a KV cache of "
        "its own; a request lives in one of them.",
    )
    prefix_caching: bool = Field(default=False, description="Whether the engine may reuse the KV of equal prompt prefixes.")
    cores: Count = Field(
        default=1,
        description="CPU engines: cores pinned to each worker; the rest stay with the API server and the client.",
    )
    served_name: str | None = Field(
        default=None, description="Model name in requests; default: the deployment's name. For `external`: as served there."
    )
    flags: dict[str, str | int | float | bool] = Field(
        default_factory=dict,
        description="Further server flags by name without dashes, such as `enable-chunked-prefill: true`; `false` writes `--no-…`.",
    )
    environment: dict[str, str] = Field(
        default_factory=dict,
        description="Environment variables of the server. The value of a name that looks like a secret (`…_KEY`, `…_TOKEN`, "
        "`…SECRET…`, `…PASSWORD…`) is recorded and packed nowhere; better, export it.",
    )

    @model_validator(mode="after")
    def _no_secret_flags(self) -> Deployment:
        for flag, value in self.flags.items():
            if is_secret(flag, str(value)):
                raise ValueError(
                    f"flags.{flag} holds a secret, and command lines are recorded; export it instead, as VLLM_API_KEY or HF_TOKEN "
                    "does for vLLM's api-key and hf-token"
                )
        for name, value in self.environment.items():
            if not name or "=" in name or "\0" in name + value:
                raise ValueError(f"environment has a variable that no process can have: {name!r}")
        return self

    @property
    def workers(self) -> int:
        """Devices, or processes of a CPU engine, that compute for one instance: its three kinds of parallelism multiplied."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel


def _levels(values: Any) -> Any:
    if isinstance(values, list):
        if not values:
            raise ValueError("no levels; give at least one")
        seen: set[float] = set()
        for level in values:
            if isinstance(level, int | float):
                if level in seen:
                    raise ValueError(f"level {level} stands twice; each level is measured once, `repeats` repeats it")
                seen.add(level)
    return values


Positive = Annotated[float, Field(gt=0)]
Seconds = Annotated[float, Field(ge=0)]
# A million connections are more than a client's machine has ports for.
InFlight = Annotated[int, Field(ge=1, le=1_000_000)]


class Ladder(Strict):
    """One deployment under one workload, at rising load. Its levels stand under the key that the workload's arrival has."""

    deployment: Name = Field(description="Key of `deployments`.")
    workload: Name = Field(description="Key of `workloads`.")
    concurrency: Annotated[list[InFlight], BeforeValidator(_levels)] | None = Field(
        default=None,
        description="Levels of `burst` and `closed`: requests in flight (with `turns`, conversations), 1 or more each.",
    )
    request_rate: Annotated[list[Positive], BeforeValidator(_levels)] | None = Field(
        default=None,
        description="Levels of `constant`, `poisson` and `gamma`: requests a second (with `turns`, conversations a second).",
    )
    time_scale: Annotated[list[Positive], BeforeValidator(_levels)] | None = Field(
        default=None, description="Levels of `trace`: 1 replays it as recorded, 2 twice as fast."
    )
    prompt_tokens: Annotated[list[Count], BeforeValidator(_levels)] | None = Field(
        default=None,
        description="Prompt lengths, each of which is measured at each level; the workload's own does not count then.",
    )
    output_tokens: Annotated[list[Count], BeforeValidator(_levels)] | None = Field(
        default=None, description="Output lengths, likewise; with `prompt_tokens`, each with each."
    )
    repeats: Count = Field(
        default=1,
        description="Runs of each level. The n-th of each are a round: all levels of all ladders of the deployment, in an order drawn "
        "from the seed.",
    )

    @model_validator(mode="after")
    def _one_axis(self) -> Ladder:
        given = [axis for axis in ("concurrency", "request_rate", "time_scale") if getattr(self, axis) is not None]
        if len(given) != 1:
            raise ValueError(
                "no levels; give concurrency, request_rate or time_scale"
                if not given
                else f"{' and '.join(given)} are given; keep one"
            )
        return self

    @model_validator(mode="after")
    def _countable(self) -> Ladder:
        if self.runs > _MOST_RUNS:
            raise ValueError(
                f"{self.runs:,} runs, and a study has {_MOST_RUNS:,} at most; lower repeats ({self.repeats:,}), or give fewer levels "
                "or lengths"
            )
        return self

    @property
    def runs(self) -> int:
        """How many runs these are."""
        return len(self.levels) * self.repeats * len(self.prompt_tokens or "-") * len(self.output_tokens or "-")

    @property
    def axis(self) -> str:
        """The key under which the levels stand."""
        return next(axis for axis in ("concurrency", "request_rate", "time_scale") if getattr(self, axis) is not None)

    @property
    def levels(self) -> list[float]:
        """The levels, whole numbers where they are concurrencies."""
        levels: list[float] = getattr(self, self.axis)
        return levels


class Measurement(Strict):
    """How a session measures. Only `seed` is part of what a run is; a change of the rest re-measures nothing."""

    scrape_interval_s: Annotated[float, Field(ge=0.01, le=60)] = Field(
        default=0.2, description="Time between two scrapes of /metrics (s), from 0.01 to 60."
    )
    ready_timeout_s: Annotated[float, Field(gt=0)] = Field(
        default=900.0, description="Longest wait for a server to be ready (s)."
    )
    request_timeout_s: Annotated[float, Field(gt=0)] = Field(
        default=600.0, description="A request without its end after this time is recorded as `timeout` (s)."
    )
    warmup_requests: Annotated[int, Field(ge=0)] = Field(
        default=21,
        description="Most requests one after another before the first run, of its prompts' length, in threes until the TTFT of three "
        "in a row lies within `warmup_spread`; then four at once. Recorded, and kept out of every result. "
        "0: none; 1 and 2 are taken as 3.",
    )
    warmup_spread: Annotated[float, Field(gt=0)] = Field(
        default=0.25, description="Widest span of three TTFTs in a row, as a share of their median, that counts as stable."
    )
    reference_requests: Annotated[int, Field(ge=0)] = Field(
        default=8,
        description="Requests of the reference load before each round, at most four in flight, with at most 256 prompt and 32 output "
        "tokens; sent five times. It is the same before every round, so it shows how fast the machine is then. Kept out of every "
        "result. 0: none.",
    )
    telemetry: dict[Name, str] = Field(
        default_factory=dict,
        description="Further Prometheus endpoints by name, such as `dcgm: http://127.0.0.1:9400/metrics`, scraped beside the engine's; "
        "`nvml:0,1` are GPUs of this machine. Those of a server that is started here are scraped without being named.",
    )
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] = Field(
        default=0, description="Seed of the prompts; a run's prompts follow from it and the run's digest."
    )


class Thresholds(Strict):
    """When a part of a run cannot be trusted: it is drawn as invalid wherever that part counts, and listed with its reason."""

    loop_lag_p99_s: Seconds = Field(default=0.05, description="P99 delay of the client's event loop (s).")
    loop_lag_max_s: Seconds = Field(
        default=0.25, description="Longest delay of the client's event loop (s); a stall bunches the stamps behind it."
    )
    send_spread_s: Seconds = Field(default=0.1, description="Burst: time between the first and the last request sent (s).")
    scrape_gap_s: Seconds = Field(default=2.0, description="Longest time without a sample during the load (s).")
    scrape_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.25, description="Smallest share of the scrapes due during the load that must have come (0–1)."
    )
    schedule_delay_p99_s: Seconds = Field(
        default=0.05, description="Open loop: P99 of the time by which a request left after it was due (s)."
    )
    client_cpu_share: Annotated[float, Field(ge=0)] = Field(
        default=0.95,
        description="CPU time of the busiest load process, as a share of the run's time; beyond it the client is the limit.",
    )
    other_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.15,
        description="Largest share of the time of the cores that we may use which went to processes other than the server and its load "
        "(0–1); told where the server is started here.",
    )
    drift: Annotated[float, Field(ge=0)] = Field(
        default=0.1,
        description="Share by which a round's reference load must be slower or faster than those of the deployment's other rounds to "
        "count as drift of the machine; where its own noise may explain more, more.",
    )
    clock_skew_s: Seconds = Field(default=0.001, description="Largest difference between the clocks of our processes (s).")
    prefix_hit_error: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.05,
        description="Largest difference between the prefix cache's hit rate and the one that the workload implies (0–1).",
    )
    in_flight_error: Annotated[float, Field(ge=0)] = Field(
        default=0.25,
        description="Largest difference between the requests in flight as the client and as the server counted them (running + "
        "waiting), as a share of the client's: of the server's mean above it, and at half of the scrapes below it.",
    )

    @model_validator(mode="before")
    @classmethod
    def _failures_are_results(cls, content: Any) -> Any:
        if isinstance(content, dict) and "failed_share" in content:
            raise ValueError(
                "failed_share is no threshold any more: failed requests are the server's answer to its load, and make no run "
                "invalid. Remove it; decision.failed_share is the share that may fail at a load that is to be called carried"
            )
        return content


class Study(Strict):
    """What is measured: a list of ladders under a name."""

    title: str = Field(description="One line: what the study asks; the report's heading.")
    ladders: list[Ladder] = Field(description="The measurements, one ladder each.", min_length=1)
    baseline: Name | None = Field(
        default=None,
        description="Deployment with which each other one is compared, at the workloads and levels that they share: difference, "
        "interval and verdict, in the report and the figure `comparison`.",
    )
    sessions: Count = Field(
        default=1,
        description="Server starts of each deployment; its rounds are dealt to them in turn, and those of all deployments alternate: "
        "forwards, then backwards. Starts differ, so a comparison needs several. Each ladder has as many `repeats`, or more.",
    )
    whole_node: bool | None = Field(
        default=None,
        description="On a cluster, whether a session gets its node for itself. Default: on where the server computes on the CPU, off "
        "where it has GPUs of its own.",
    )

    @model_validator(mode="after")
    def _countable(self) -> Study:
        runs = sum(ladder.runs for ladder in self.ladders)
        if runs > _MOST_RUNS:
            raise ValueError(f"{runs:,} runs, and a study has {_MOST_RUNS:,} at most; make several studies of it")
        return self


class Config(Strict):
    """A whole configuration file."""

    study: Study = Field(description="What is measured.")
    models: dict[Name, Model] = Field(description="Models by name.")
    engines: dict[Name, Engine] = Field(description="Engines by name.")
    deployments: dict[Name, Deployment] = Field(description="Servers by name.")
    workloads: dict[Name, Workload] = Field(description="Workloads by name.")
    measurement: Measurement = Field(default=Measurement(), description="How a session measures.")
    thresholds: Thresholds = Field(default=Thresholds(), description="When a run is invalid.")
    decision: Decision = Field(default=Decision(), description="What is to be decided from the runs.")
    hardware: dict[Name, dict[str, Any]] = Field(
        default_factory=dict,
        description="Devices of your own: entries like those of `src/bench/published/hardware.yaml`, which override it key by key or "
        "add to it.",
    )
    select: str | list[str] = Field(
        default="*",
        description="Only runs whose `deployment/run` matches this shell pattern, or one of these; `--config select='*c0020*'` sets it "
        "for one call.",
    )

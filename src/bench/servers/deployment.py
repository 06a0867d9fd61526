"""The server of a study as typed models: the engine that it comes from, and a deployment of a model on it.

The field descriptions are the reference, as in `bench.study.config`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints, WithJsonSchema, model_validator

from bench.errors import meant
from bench.fields import Count, Name, Size, Strict, checked_address
from bench.headers import checked_headers
from bench.runs.environment import is_secret
from bench.runs.request import Omissible
from bench.servers.engines import MANAGED

#: Keys of a deployment whose single entries are swept, and how such an entry is written.
NESTED = {"flags": "flags.max-num-batched-tokens", "environment": "environment.OMP_NUM_THREADS"}
Address = Annotated[str, AfterValidator(checked_address)]


def _address_or_none(value: str) -> str:
    return value if value == "none" else checked_address(value, of_metrics=True)


def _startable(name: str) -> str:
    if name not in MANAGED:
        near = f"did you mean {meant(name, MANAGED)}? There" if meant(name, MANAGED) else "there"
        raise ValueError(f"no engine that can be started here; {near} are {', '.join(MANAGED)}")
    return name


class Engine(Strict):
    """Where the server comes from: a pinned environment, a command on PATH, or a running endpoint."""

    source: Literal["lock", "command", "external"] = Field(
        description="`lock`: build an environment from `locks`. `command`: run `command`. "
        "`external`: measure the running server at `base_url`, which is never started or stopped."
    )
    kind: Annotated[str, AfterValidator(_startable), WithJsonSchema({"type": "string", "enum": list(MANAGED)})] = Field(
        default="vllm",
        description=f"Which engine is started: {' or '.join(f'`{name}`' for name in MANAGED)}. An `external` one is recognised "
        "by its metrics.",
    )
    backend: Literal["cpu", "cuda"] = Field(
        default="cpu",
        serialization_alias="device",  # its name in digests and records
        description="What the engine computes on.",
    )
    locks: list[str] = Field(
        default_factory=list,
        description="Requirement files with hashes, installed in this order; paths from the project's root. Builds such as "
        "`torch==2.13.0+cpu` come from PyTorch's own index.",
    )
    python: str = Field(default="python3", description="Python interpreter from which the environment is made.")
    command: list[str] | None = Field(
        default=None,
        description="The server's command, such as `[vllm, serve]`, or what runs it in a container; flags are appended.",
    )
    base_url: Address | None = Field(
        default=None,
        description="Address of the running server, such as `http://127.0.0.1:8000`, with or without `/v1`. An API key is read "
        "from the variable OPENAI_API_KEY.",
    )
    headers: Annotated[dict[str, str], AfterValidator(checked_headers)] = Field(
        default_factory=dict,
        description="Further headers of requests to `base_url`, whose values name environment variables: `X-Api-Key: "
        "$GATEWAY_KEY`.",
    )
    omit: list[Omissible] = Field(
        default_factory=list,
        description="What requests leave out, though it makes load exact. What a server refuses is left out by itself. Without "
        "`token_ids` prompts are text; `max_tokens` becomes `max_completion_tokens`.",
    )
    metrics: Annotated[str, AfterValidator(_address_or_none)] | None = Field(
        default=None,
        description="Address of the running server's metrics, or `none`: causes and KV cache stay unknown. Default: `/metrics` at "
        "`base_url`, if a known engine's are there.",
    )

    workers: list[Address] = Field(
        default_factory=list,
        description="Addresses of all engines behind a router at `base_url`, such as `[http://10.0.0.5:8000, "
        "http://10.0.0.6:8000]`. The load goes to `base_url`; their metrics add up.",
    )
    prefill_workers: Annotated[int, Field(ge=0)] = Field(
        default=0,
        description="How many of the `workers`, the first ones, only prefill, so that the others decode; vLLM alone.",
    )

    @model_validator(mode="after")
    def _fields_of_source(self) -> Engine:
        if any("\0" in word for word in (*(self.command or ()), self.python)):
            raise ValueError("a null character, which no command line can have")
        needs = {"lock": "locks", "command": "command", "external": "base_url"}
        for source, key in needs.items():
            given = bool(getattr(self, key))
            if source == self.source and not given:
                raise ValueError(f"source {source} needs {key}")
            if source != self.source and given:
                raise ValueError(f"{key} belongs to source {source}, not to {self.source}")
        for key in ("headers", "metrics", "omit", "workers"):
            if getattr(self, key) and self.source != "external":
                raise ValueError(f"{key} belongs to source external, not to {self.source}")
        self._check_workers()
        return self

    def _check_workers(self) -> None:
        if self.prefill_workers and self.prefill_workers >= len(self.workers):
            raise ValueError(
                f"prefill_workers is {self.prefill_workers}, which leaves none of {len(self.workers)} workers to decode; add workers, "
                "or lower it"
            )
        if not self.workers:
            return
        from bench.http import api_root  # noqa: PLC0415 - `requests` takes long to import, and few studies measure a fleet

        roots = [api_root(address) for address in self.workers]
        if self.metrics:
            raise ValueError("metrics and workers: each worker has its own metrics; remove one of the two")
        if doubled := next((root for root in roots if roots.count(root) > 1), None):
            raise ValueError(f"workers has {doubled} twice; name each worker once")
        if self.base_url and api_root(self.base_url) in roots:
            raise ValueError(
                f"workers lists {self.base_url}, which is base_url; name the router there, or leave workers out for a single server"
            )


class Deployment(Strict):
    """One server: a model on an engine with its parameters. With `sweep`, several that differ in them."""

    model: Name | None = Field(
        default=None,
        description="Key of `models`; required if the server is started here. Without it, bytes of the KV cache and ceilings of "
        "speed are missing.",
    )
    engine: Name = Field(description="Key of `engines`.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="Type of weights and activations; `auto`: float32 on a CPU, bfloat16 on a GPU."
    )
    kv_cache_dtype: Literal["auto", "fp8", "q8_0", "q4_0"] = Field(
        default="auto",
        description="Type of the KV cache; `auto`: that of the weights. vLLM has `fp8`, llama.cpp `q8_0` and `q4_0`.",
    )
    kv_cache_memory: Size | None = Field(
        default=None,
        description="KV cache of each GPU or CPU worker, such as `64MiB`. Required on a CPU; on a GPU, by default what "
        "`gpu_memory_utilization` leaves.",
    )
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.9, description="Share of a GPU's memory that the engine may use (0–1)."
    )
    block_size: Count | None = Field(
        default=None,
        description="Tokens in a block of vLLM's KV cache. Its default is 16 on a GPU and 32 on a CPU (16 there for latent "
        "attention).",
    )
    max_num_seqs: Count = Field(
        default=256,
        description="Most sequences in one step; keep it above the highest concurrency. llama.cpp divides `kv_cache_memory` into "
        "as many slots. Of an `external` server: how it was started, for predictions.",
    )
    tensor_parallel: Count = Field(
        default=1,
        description="GPUs, or CPU workers, that share each layer. An instance takes `tensor_parallel` × `pipeline_parallel` × "
        "`data_parallel` of them. For an `external` server with known GPUs give at least one of the three, even as 1.",
    )
    pipeline_parallel: Count = Field(
        default=1, description="Stages that share the layers, each of `tensor_parallel` GPUs or CPU workers."
    )
    data_parallel: Count = Field(
        default=1,
        description="Engines behind one endpoint, each with the whole model and a KV cache; experts are shared.",
    )
    replicas: Count = Field(
        default=1,
        description="Servers that are started behind a `router`, each on cores or GPUs of its own. They are measured as one.",
    )
    router: Literal["haproxy"] | list[str] | None = Field(
        default=None,
        description="`haproxy`, which has to be installed, or the command of another router, with `{port}` for its port and "
        "`{workers}` for the replicas' addresses: `[vllm-router, --port, '{port}', --worker-urls, '{workers}']`.",
    )
    balance: Annotated[str, StringConstraints(pattern=r"^(leastconn|roundrobin|header:[A-Za-z0-9-]{1,60})$")] = Field(
        default="leastconn",
        description="HAProxy's choice: `leastconn`, the replica with the fewest connections; `roundrobin`, in turn; "
        "`header:NAME`, by that header, which keeps a conversation at its replica (`turns.session_header`).",
    )
    prefix_caching: bool = Field(default=False, description="Whether equal prompt prefixes share their KV cache.")
    cores: Annotated[int, Field(ge=0, le=10**6)] = Field(
        default=1,
        description="CPU engines: cores pinned to each worker; the others serve the API and the client. `0` (llama.cpp): none is "
        "pinned, and a worker has one thread.",
    )
    served_name: str | None = Field(
        default=None,
        description="The model's name in requests: of an `external` server an `id` of its /v1/models. Default: the deployment's "
        "name.",
    )
    flags: dict[str, str | int | float | bool] = Field(
        default_factory=dict,
        description="Further flags of the server, without dashes, such as `enable-chunked-prefill: true`; `false` becomes "
        "`--no-…`. Of an `external` server: how it was started; predictions need `max-num-batched-tokens` (llama.cpp: "
        "`batch-size`).",
    )
    environment: dict[str, str] = Field(
        default_factory=dict,
        description="Variables of the server's environment. They are recorded, except values of names such as `…_KEY`, `…_TOKEN`, "
        "`…SECRET…` and `…PASSWORD…`.",
    )
    # Only the file has it: `bench.study.sweep` puts the deployments that it stands for in its place.
    sweep: dict[str, Any] | list[dict[str, Any]] | None = Field(
        default=None,
        exclude=True,
        description="Several deployments in place of this one: values of these keys, `flags.NAME` or `environment.VARIABLE`, each "
        "with each. `{max_num_seqs: [32, 64], flags.max-num-batched-tokens: [2048, 8192]}` makes four, named like "
        "`NAME-seqs32-max-num-batched-tokens2048`. A list of such mappings: their sum. `null`: the deployment's own "
        "value.",
    )

    @model_validator(mode="after")
    def _no_secret_flags(self) -> Deployment:
        if any("\0" in str(word) for word in (self.served_name or "", *self.flags, *self.flags.values())):
            raise ValueError("a null character, which no command line can have")
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

    @model_validator(mode="after")
    def _has_a_router(self) -> Deployment:
        if self.replicas > 1 and self.router is None:
            raise ValueError(f"replicas is {self.replicas}, but nothing distributes requests to them; add `router: haproxy`")
        if self.router != "haproxy" and "balance" in self.model_fields_set:
            raise ValueError("balance applies only to HAProxy; add `router: haproxy`, or remove it")
        if isinstance(self.router, list) and not ("{workers}" in self.router and any("{port}" in word for word in self.router)):
            raise ValueError("router is a command; it needs `{port}`, and `{workers}` as a word of its own")
        return self

    @property
    def workers(self) -> int:
        """Devices, or processes of a CPU engine, that compute for one instance: its three kinds of parallelism multiplied."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel


#: Keys of a deployment that a sweep may vary as they are.
SWEPT = tuple(name for name in Deployment.model_fields if name not in {*NESTED, "sweep"})

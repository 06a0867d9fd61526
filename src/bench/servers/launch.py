"""Resolve a deployment before anything runs: its command line, its memory, and whether it can fit at all."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import psutil

from bench.errors import BenchError, shown_size
from bench.http import api_root
from bench.models.checkpoint_record import Checkpoint
from bench.models.config_json import geometry_of, served_model
from bench.models.geometry import DTYPE_BYTES, Geometry, kv_bytes_per_token
from bench.models.gguf import gguf_of
from bench.models.tokenizer import ids_below
from bench.runs.environment import redacted
from bench.runs.files import read, write_record
from bench.runs.launch import EngineRecord, Launch, MemoryPlan, RouterLaunch
from bench.servers.engines import managed
from bench.servers.gpus import least_memory
from bench.servers.kind import OnGpu, arguments
from bench.servers.memory import predicted_saturation
from bench.servers.plan import served_dtype, weights_unknown
from bench.servers.settings import STEP_TOKENS
from bench.servers.spec import DeploymentSpec
from bench.servers.stages import Parallel, Stage, parallel_problem, stages_of

_SHORTEN = "Shorten the workload"


def write_launch(spec: DeploymentSpec, longest: int, *, engine: Path, checkpoint: Path | None, launch: Path) -> None:
    """Resolve `spec` and write `launch.json`.

    Args:
        longest: tokens of the longest request that the study sends to it.
        engine: the engine's record. checkpoint: the model's record; None for an external engine.

    Raises:
        BenchError: the deployment cannot fit (the message gives the sum and what to change), or an environment is of other locks: a
            folder that came from elsewhere; what it was built from, the workflow does not know.
    """
    made = read(Checkpoint, checkpoint) if checkpoint else None
    geometry = geometry_of(made.config, made.weights) if made else None
    record = read(EngineRecord, engine)
    if record.locks is not None and record.locks != spec.locks:
        raise BenchError(
            f"{engine} was built from other locks than engines.{spec.deployment.engine}.locks: remove that file, and the environment "
            "beside it is built anew."
        )
    if made and geometry:
        refuse_unfit(spec, geometry, longest, _version(spec, record))
    content = resolve_launch(spec, record, made)
    write_record(content, launch)


def _version(spec: DeploymentSpec, record: EngineRecord) -> str | None:
    """None where only the running server knows."""
    return managed(spec.engine.kind).version(record.freeze or ())


def refuse_unfit(spec: DeploymentSpec, geometry: Geometry, longest: int, version: str | None = None) -> None:
    """Check that a server that is started here can hold its model and the study's longest request (tokens).

    Args:
        version: of the engine; None where it is not known.

    Raises:
        BenchError: the sum that does not fit, or what the deployment asks for and its engine cannot do.
    """
    d, kind, cpu, where = spec.deployment, managed(spec.engine.kind), spec.engine.backend == "cpu", f"deployments.{spec.name}"
    if problem := parallel_problem(geometry, _parallel(spec)):
        raise BenchError(f"{where}.{problem}")
    if problem := kind.refused(d, spec.engine, spec.model, geometry):
        raise BenchError(f"{where}.{problem}.")
    if longest > geometry.context:
        raise BenchError(
            f"{where}: a request of {longest} tokens exceeds the context of models.{d.model}, "
            f"{geometry.context} tokens by its checkpoint. {_SHORTEN}, or remove it from that model's ladder."
        )
    plan = memory_plan(spec, geometry, version)
    where += f" ({d.model} on {d.engine})"
    needed, held = _of_all(plan, spec).needed_bytes, plan.kv_cache_bytes or 0
    weights, overhead = shown_size(plan.weight_bytes or 0), shown_size(plan.overhead_bytes)
    if kind.slots and longest > plan.block_size:
        raise BenchError(
            f"{where}: one request needs {longest} tokens, and each of the {d.max_num_seqs} slots (max_num_seqs) that share "
            f"kv_cache_memory has {plan.block_size}. {_SHORTEN}, raise kv_cache_memory, or lower max_num_seqs."
        )
    if plan.kv_tokens is not None and _fit(spec, plan, longest) < 1:
        own = plan.kv_tokens // plan.engines
        each = f" for each of {plan.engines} engines" if plan.engines > 1 else ""
        source, fix = (
            (f"kv_cache_memory, {shown_size(held)},", "or raise kv_cache_memory.")
            if d.kv_cache_memory is not None
            else (
                f"weights {weights} and the engine's {overhead} leave {shown_size(max(0, held))} of KV cache a GPU, which",
                "lower max_num_seqs, set kv_cache_dtype: fp8, or raise tensor_parallel or pipeline_parallel.",
            )
        )
        raise BenchError(
            f"{where}: {source} holds {own} tokens{each} at {plan.kv_bytes_per_token_per_device:,} bytes each; one request needs "
            f"{longest} tokens. {_SHORTEN}, {fix}"
        )
    if plan.device_memory_bytes is not None and needed is not None and needed > plan.device_memory_bytes:
        many = f" of {d.workers} workers" if cpu and d.workers > 1 else ""
        many += f" of {d.replicas} replicas" if cpu and d.replicas > 1 else ""
        raise BenchError(
            f"{where}: weights {weights} + KV cache {shown_size(held)} + engine {overhead}{many} take "
            f"{shown_size(needed)}, and {'this machine' if cpu else 'a GPU'} has {shown_size(plan.device_memory_bytes)}. "
            "Lower kv_cache_memory, or choose a smaller dtype or model."
        )


def resolve_launch(spec: DeploymentSpec, engine: EngineRecord, checkpoint: Checkpoint | None) -> Launch:
    """The launch of a deployment on a ready engine; without a checkpoint, that of a server that is not ours.

    Secrets in the deployment's `environment` are left out: this is written to a file and packed. The session puts them in.
    """
    d, kind, router = spec.deployment, managed(spec.engine.kind), spec.deployment.router
    geometry = geometry_of(checkpoint.config, checkpoint.weights) if checkpoint else served_model(spec.model)[0]
    version = None if checkpoint is None else _version(spec, engine)
    plan = memory_plan(spec, geometry, version) if geometry else None
    folder = Path(checkpoint.path) if checkpoint else Path(spec.model.here) if spec.model.here else None
    launch = Launch(
        deployment=spec.name,
        model=spec.model_name,
        engine=d.engine,
        tensor_parallel=d.tensor_parallel,
        pipeline_parallel=d.pipeline_parallel,
        data_parallel=d.data_parallel,
        gpus=spec.gpus,
        digest=spec.digest,
        served_name=spec.served_name,
        base_url=spec.engine.base_url,
        workers=tuple(map(api_root, spec.engine.workers)),
        prefill_workers=spec.engine.prefill_workers,
        kind=spec.engine.kind,
        device=spec.engine.backend,
        vocabulary=ids_below(geometry.vocabulary if geometry else None, folder),
        argv=None,
        configured=spec.settings,
        plan=plan,
    )
    if not checkpoint:
        return launch
    if not engine.command:
        raise BenchError(f"engines.{d.engine}: its record names no command. Remove the record, and it is made again.")
    # Of an environment the record has the interpreter alone: it is kept, and shared, while this package may move.
    command = engine.command if engine.source == "command" else (engine.command[0], *map(_from_here, kind.server))
    made = kind.gguf and spec.model.synthetic
    model = str(gguf_of(Path(checkpoint.path), checkpoint.config, kind.dtype(spec))) if made else checkpoint.path
    flags = {**kind.flags(spec, plan, _longest_sequence(spec, geometry, plan)), **d.flags}
    return replace(
        launch,
        environment={**kind.environment(spec), **redacted(d.environment)},
        argv=(*command, *kind.model(model, command), *arguments(flags)),
        settings=replace(kind.settings(flags, plan), random_weights=spec.model.synthetic),
        replicas=d.replicas,
        router=RouterLaunch(balance=d.balance, command=() if router == "haproxy" else tuple(router)) if router else None,
        plan=plan and _of_all(plan, spec),
        engine_version=version,
    )


def _of_all(plan: MemoryPlan, spec: DeploymentSpec) -> MemoryPlan:
    """The memory of all replicas together; the terms of one device stay."""
    count, cpu = spec.deployment.replicas, spec.engine.backend == "cpu"
    return replace(
        plan,
        engines=count * plan.engines,
        kv_tokens=plan.kv_tokens and count * plan.kv_tokens,
        needed_bytes=plan.needed_bytes and plan.needed_bytes * (count if cpu else 1),
    )


def _from_here(word: str) -> str:
    """A path below the working directory becomes one from there: a project may be moved."""
    path = Path(word)
    return str(path.relative_to(Path.cwd())) if path.is_absolute() and path.is_relative_to(Path.cwd()) else word


def _parallel(spec: DeploymentSpec) -> Parallel:
    d = spec.deployment
    return Parallel(d.tensor_parallel, d.pipeline_parallel, d.data_parallel)


def _longest_sequence(spec: DeploymentSpec, geometry: Geometry | None, plan: MemoryPlan | None) -> int | None:
    """The model's context, or as much of it as fits the KV cache (tokens)."""
    if geometry is None:
        return None
    if plan is None or not plan.kv_tokens or _fit(spec, plan, geometry.context) >= 1:
        return geometry.context
    return int(managed(spec.engine.kind).usable(plan) // sum(count for _, count in plan.kv_groups))


def _fit(spec: DeploymentSpec, plan: MemoryPlan, tokens: int) -> float:
    """How many sequences of `tokens` fit the planned KV cache of one engine at once."""
    usable = managed(spec.engine.kind).usable(plan)
    return predicted_saturation(usable, tokens, plan.block_size, plan.kv_groups)


def memory_plan(spec: DeploymentSpec, geometry: Geometry, version: str | None = None) -> MemoryPlan:
    """What each device holds, in bytes and tokens, from geometry alone.

    Args:
        version: of the engine, by which what it keeps for itself differs; None where it is not known.

    Returns:
        The terms of a device of the pipeline stage that has the fewest blocks, since all stages keep as many as that one (the heaviest,
        where that is not known). `kv_tokens` is None where only the server can know it: a GPU without `kv_cache_memory` that is not on
        this machine. Bytes of a server that is not ours are None where neither its deployment nor its checkpoint states a type.

    Raises:
        BenchError: a model whose weights are not known is to be started here.

    Source: vLLM's `get_kv_cache_configs` takes the fewest blocks of all workers; each engine of data parallelism has its own.
    """
    d, kind = spec.deployment, managed(spec.engine.kind)
    cpu, external = spec.engine.backend == "cpu", spec.engine.source == "external"
    if not external and not geometry.weighed:
        raise BenchError(
            f"deployments.{spec.name}: {weights_unknown(geometry)} Give models.{d.model}.parameters, how many there are; or .path, a "
            "folder with its *.safetensors; or measure a server that you start yourself, with `source: external`."
        )
    served = served_dtype(d.dtype, served_model(spec.model)[1]) if external else kind.dtype(spec)
    dtype = served or "bfloat16"  # which only shapes blocks then
    kv_dtype = dtype if d.kv_cache_dtype == "auto" else d.kv_cache_dtype
    bytes_known = not external or served is not None
    stages = stages_of(geometry, _parallel(spec), dtype=dtype, kv_dtype=kv_dtype, block_size=kind.block_size(spec, geometry))
    memory = None if external else int(psutil.virtual_memory().total) if cpu else least_memory(os.environ)
    overhead = kind.cpu_overhead
    if not cpu:
        padding = kind.gpu_padding(geometry, d.tensor_parallel) * -(-geometry.layers // d.pipeline_parallel) // geometry.layers
        flags = {name.replace("_", "-"): value for name, value in d.flags.items()}
        given = next((str(flags[flag]) for flag in STEP_TOKENS.get(kind.name, ()) if flag in flags), "")
        on_gpu = OnGpu(
            memory=memory,
            bytes_each=DTYPE_BYTES[dtype],
            max_num_seqs=d.max_num_seqs,
            step_tokens=int(given) if re.fullmatch("[0-9]+", given) else None,
            tensor_parallel=d.tensor_parallel,
            version=version,
            graphs=not flags.get("enforce-eager"),
        )
        overhead = kind.gpu_overhead(geometry, on_gpu) + padding

    def kv_bytes(stage: Stage) -> int | None:
        if d.kv_cache_memory is not None or memory is None:
            return d.kv_cache_memory
        return int(memory * d.gpu_memory_utilization) - stage.weights - overhead

    held = [kv_bytes(stage) for stage in stages]
    tokens = [None if own is None else stage.pool.tokens(own) for stage, own in zip(stages, held, strict=True)]
    place = min(range(len(stages)), key=lambda i: (tokens[i] or 0, -stages[i].weights))
    scarcest, planned = stages[place], tokens[place]
    needed = [stage.weights + overhead + (own or 0) for stage, own in zip(stages, held, strict=True)]
    plan = MemoryPlan(
        parameters=geometry.parameters,
        device_memory_bytes=memory,
        weight_bytes=scarcest.weights if bytes_known and geometry.weighed else None,
        overhead_bytes=overhead,
        kv_cache_bytes=held[place],
        # Workers of a CPU engine share the machine's memory; each GPU has its own.
        needed_bytes=None if held[place] is None else d.tensor_parallel * d.data_parallel * sum(needed) if cpu else max(needed),
        kv_bytes_per_token=kv_bytes_per_token(geometry, kv_dtype) if bytes_known else None,
        kv_bytes_per_token_per_device=scarcest.pool.bytes_per_token if bytes_known else None,
        block_size=scarcest.pool.block_size,
        kv_groups=scarcest.pool.groups,
        engines=d.data_parallel,
        kv_tokens=None if planned is None else planned * d.data_parallel,
    )
    return plan if external else kind.cut(plan, spec, geometry.context)

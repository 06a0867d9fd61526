"""What keys of a configuration contradict one another: names that lead nowhere, requests that cannot fit, loads asked for twice."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from os.path import isdir, isfile
from pathlib import Path

from bench.axes import AXES
from bench.errors import BenchError, first_names, shown
from bench.models.catalogue import accelerator_named, accelerators
from bench.models.config_json import config_at, geometry_of, geometry_of_model
from bench.models.model import Model
from bench.servers.deployment import Deployment, Engine
from bench.servers.engines import managed
from bench.servers.stages import Parallel, parallel_problem
from bench.study.config import Config, Ladder
from bench.study.plan import longest_request, swept
from bench.study.precision import with_requests
from bench.study.search import Tune, competing
from bench.study.slo import parse_slo
from bench.workloads.endpoints import ENDPOINTS
from bench.workloads.workload import Workload

_PARALLEL = {"tensor_parallel", "pipeline_parallel", "data_parallel"}
_FEWEST_CANDIDATES = 2  # fewest servers of a tuning; derived
Swept = Mapping[str, Sequence[str]]


def contradictions(config: Config, swept_names: Swept) -> Iterator[str]:
    """Faults between keys: names that lead nowhere, requests that cannot fit, runs that are asked for twice.

    Args:
        swept_names: the combinations of each swept deployment, by name; `config` has them as deployments.
    """
    for name, deployment in config.deployments.items():
        where = f"deployments.{name}"
        if deployment.model is not None:
            yield from _undefined(f"{where}.model", deployment.model, "models", config.models)
        yield from _undefined(f"{where}.engine", deployment.engine, "engines", config.engines)
        if engine := config.engines.get(deployment.engine):
            yield from _unstartable(where, deployment, engine, config.models)
    yield from _absent(config)
    asked: dict[tuple[str, str, float | str], int] = {}
    for i, ladder in enumerate(config.study.ladders):
        yield from _of_ladder(config, i, ladder, swept_names, asked)
    yield from _classless(config)
    yield from _baseline(config, asked, swept_names)
    yield from _hardware(config)
    if config.tune:
        yield from _of_tuning(config, config.tune, swept_names)


def _undefined(where: str, wanted: str, table: str, known: Collection[str], swept_names: Swept | None = None) -> Iterator[str]:
    if wanted not in known:
        yield f"{where} is {wanted!r}, which {table} does not define. Defined: {_names(known, swept_names or {})}."


def _names(known: Collection[str], swept_names: Swept) -> str:
    """Those of a file in a message: first what is swept, last the combinations, which may be many."""
    combinations = [name for names in swept_names.values() for name in names]
    in_file = dict.fromkeys([*swept_names, *(name for name in known if name not in combinations), *combinations])
    return first_names(list(in_file)) or "nothing"


def _of_ladder(
    config: Config, i: int, ladder: Ladder, swept_names: Swept, asked: dict[tuple[str, str, float | str], int]
) -> Iterator[str]:
    """Args: asked: the ladder of each deployment, workload and level so far, to which its own are added."""
    where = f"study.ladders[{i}]"
    yield from _undefined(f"{where}.deployment", ladder.deployment, "deployments", config.deployments, swept_names)
    yield from _undefined(f"{where}.workload", ladder.workload, "workloads", config.workloads)
    if ladder.deployment not in config.deployments or ladder.workload not in config.workloads:
        return
    workload = config.workloads[ladder.workload]
    if unsendable := _unsendable(where, ladder, workload, packed=config.packed):
        yield unsendable
        return
    yield from _unfit(config, ladder)
    if ladder.repeats < config.study.sessions and not ladder.auto:
        yield (
            f"{where}.repeats is {ladder.repeats}, below study.sessions, {config.study.sessions}: each session measures "
            f"every level at least once. Set repeats to {config.study.sessions} or more, or sessions to {ladder.repeats} or less."
        )
    if ladder.axis != workload.axis:
        why_not = AXES[workload.axis].no_search if ladder.auto else ""
        yield (
            f"{where} gives {ladder.axis}, but arrival {workload.arrival} of workloads.{ladder.workload} has {workload.axis} "
            "as its load. "
            + (f"{why_not[0].upper()}{why_not[1:]}." if why_not else f"Write {workload.axis}: [...] in its place.")
        )
        return
    yield from (_unsearchable if ladder.auto else _unmeasurable)(where, ladder, workload, config)
    for name, _ in swept(ladder, workload):
        for level in ["auto"] if ladder.auto else ladder.levels:
            key = (ladder.deployment, name, level)
            if key in asked:
                yield (
                    f"{where}.{ladder.axis}: level {level} of {name} on {ladder.deployment} is already in "
                    f"study.ladders[{asked[key]}]. Remove one; `repeats` measures a level several times."
                )
            asked[key] = i


def _unsendable(where: str, ladder: Ladder, workload: Workload, *, packed: bool) -> str | None:
    """`packed`: nothing will be sent."""
    name = f"workloads.{ladder.workload}"
    if workload.trace and (ladder.prompt_tokens or ladder.output_tokens):
        return f"{where} gives lengths, but {name} replays a trace, which has its own. Remove one of them."
    if workload.classes and (ladder.prompt_tokens or ladder.output_tokens):
        return f"{where} gives lengths, but {name} has classes, each with its own. Remove one of them."
    if not workload.prompts.sized and ladder.prompt_tokens:
        return f"{where}.prompt_tokens: {name} sends prompts of a file, which have their own lengths. Remove one of them."
    work = ENDPOINTS[workload.endpoint].work
    if ladder.output_tokens and not work.generates:
        return (
            f"{where}.output_tokens: endpoint {workload.endpoint} of {name} answers with {work.answer}, which have no length."
        )
    if packed:
        return None
    for part, sent in workload.parts.items():
        try:
            sent.prompts.check(ENDPOINTS[workload.endpoint], workload.turn_count)
        except BenchError as error:
            return f"{name}{f'.classes.{part}' if part else ''}.prompts: {error}"
    return None


def _unmeasurable(where: str, ladder: Ladder, workload: Workload, config: Config) -> Iterator[str]:
    highest = max(ladder.levels)
    if workload.arrival == "closed" and isinstance(workload.num_requests, int) and highest > workload.num_requests:
        yield (
            f"{where}.{ladder.axis} reaches {highest}, but workloads.{ladder.workload}.num_requests is "
            f"{workload.num_requests}: the level would never be in flight. Raise num_requests to {highest} or more."
        )
    for level in ladder.levels:
        if why := with_requests(workload, level, ladder.repeats, config.decision.slos).excess(level):
            yield f"{where}.{ladder.axis}: level {level:g} of workloads.{ladder.workload} is {why}"


def _classless(config: Config) -> Iterator[str]:
    known = dict.fromkeys(name for workload in config.workloads.values() for name in workload.classes)
    limits = [("decision.slo", config.decision.slo)]
    limits += [
        (f"study.ladders[{i}].search.slo", each.search.slo)
        for i, each in enumerate(config.study.ladders)
        if each.search and each.search.slo
    ]
    for where, texts in limits:
        for slo in map(parse_slo, texts):
            if slo.request_class is not None and slo.request_class not in known:
                yield f"{where} limits {slo.name}, a class that no workload has. There are: {_names(known, {})}."


def _unsearchable(where: str, ladder: Ladder, workload: Workload, config: Config) -> Iterator[str]:
    if workload.arrival == "burst":
        yield (
            f"{where}.concurrency is auto, but workloads.{ladder.workload} sends bursts, as many requests as the level: too few to "
            "judge a percentile by. Use arrival: closed, or give levels."
        )
    if workload.step:
        yield f"{where}: auto needs a steady load; workloads.{ladder.workload} has step. Give levels, or remove it."
    texts = (ladder.search and ladder.search.slo) or config.decision.slo
    if not texts and not config.packed:
        yield (
            f"{where}: auto searches for the highest load within SLOs, but there are none. Give decision.slo, or search.slo."
        )
    for slo in map(parse_slo, texts):
        if not workload.stream and slo.metric in ("ttft", "ttfo", "tpot"):
            yield f"{where}: no answer of workloads.{ladder.workload} has a {slo.name.split()[0]}, as it is not streamed."


def _baseline(config: Config, asked: Collection[tuple[str, str, float | str]], swept_names: Swept) -> Iterator[str]:
    """Args: asked: deployment, workload and level of what is measured. swept_names: as of `contradictions`."""
    name = config.study.baseline
    if name is None:
        return
    mine, others = ({load[1:] for load in asked if (load[0] == name) == own and load[2] != "auto"} for own in (True, False))
    if name not in config.deployments:
        own = swept_names.get(name)
        known = _names(own, {}) if own else _names(config.deployments, swept_names)
        yield f"study.baseline, {name!r}, names no server that is measured. Choose one of: {known}."
    elif not mine & others:
        yield (
            f"study.baseline is {name!r}, and no other deployment shares a workload and a level with it. Give both a ladder with such "
            "levels, or remove baseline."
        )


def _hardware(config: Config) -> Iterator[str]:
    known = None
    try:
        known = accelerators(config.hardware)
        if config.decision.accelerator is not None:
            accelerator_named(config.decision.accelerator, known)
            engines = [config.engines[each.engine] for each in config.deployments.values() if each.engine in config.engines]
            if engines and all(engine.backend == "cpu" for engine in engines):
                yield (
                    f"decision.accelerator is {config.decision.accelerator!r}, but every engine of this study runs on a CPU, and its "
                    "price would be taken for the machine's. Remove it, and give the machine's price_per_hour instead."
                )
    except BenchError as error:
        yield f"decision.accelerator: {error}" if known else str(error)


def _unstartable(where: str, deployment: Deployment, engine: Engine, models: Mapping[str, Model]) -> Iterator[str]:
    if engine.source == "external":
        if deployment.router:
            yield (
                f"{where}.router: Saturate starts no router for running servers. Name theirs as engines.{deployment.engine}.base_url, "
                "and the servers as its workers."
            )
        return
    kind = managed(engine.kind)
    for flag in deployment.flags:
        plain = flag.lstrip("-").replace("_", "-")
        if plain == "port":
            yield f"{where}.flags.{flag}: every server gets a free port of its own when it starts. Remove the flag."
        elif key := kind.planned_by.get(plain):
            yield f"{where}.flags: the flag {flag} decides the planned memory, GPUs and costs; give the key {key} instead."
    if deployment.model is None:
        yield f"{where}.model is missing: a server that is started here needs one, a key of `models`."
    elif model := models.get(deployment.model):
        yield from _undealt(where, deployment, model)
        if model.gguf and not kind.gguf:
            yield (
                f"models.{deployment.model}.path is {shown(model.path or '')}, a GGUF file, which only llama.cpp reads. Give {where} "
                "an engine of `kind: llama.cpp`; or the folder of a checkpoint with its config.json."
            )
        elif refused := kind.refused(deployment, engine, model, None):
            yield f"{where}.{refused}."
    if engine.backend == "cpu" and deployment.kv_cache_memory is None:
        yield (
            f"{where}.kv_cache_memory is missing. On a CPU nothing else bounds the KV cache; say how much it gets, such as 64MiB."
        )


def _absent(config: Config) -> Iterator[str]:
    """An external server has its own checkpoint; of a pack, the files are elsewhere."""
    measured = {ladder.deployment for ladder in config.study.ladders}
    started = {
        each.model
        for name, each in config.deployments.items()
        if name in measured and each.engine in config.engines and config.engines[each.engine].source != "external"
    }
    for name, model in config.models.items():
        absent = model.here and not config.packed and not (isfile if model.gguf else isdir)(model.here)
        if not absent:
            yield from _shapeless(name, model, started=name in started, packed=config.packed)
        elif name in started:
            kind = "file" if model.gguf else "folder"
            yield (
                f"models.{name}.path is {shown(model.path)}: no such {kind}. Name the folder of a checkpoint, or a .gguf file; for "
                "random weights give catalogue or config in place of path."
            )


def _shapeless(name: str, model: Model, *, started: bool, packed: bool) -> Iterator[str]:
    """A config.json from which no shape follows; of a server that runs already, one that is not even JSON."""
    file = None if model.gguf or packed or not model.here else Path(model.here, "config.json")
    try:
        config = model.config or (config_at(file) if file and file.exists() else None)
        if started and model.config:
            geometry_of_model(model)
        elif started and config:
            geometry_of(config)
        if config and config.keys().isdisjoint(("model_type", "architectures")):
            yield f"models.{name}: its config.json has neither model_type nor architectures. Name a model's config.json."
    except BenchError as error:
        yield f"models.{name}: {error}"


def _undealt(where: str, deployment: Deployment, model: Model) -> Iterator[str]:
    """It is checked before a start, as vLLM would refuse the model minutes later."""
    parallel = Parallel(deployment.tensor_parallel, deployment.pipeline_parallel, deployment.data_parallel)
    if parallel.tensor == parallel.pipeline == 1:
        return
    try:
        geometry = geometry_of_model(model)
    except BenchError:
        return  # what its config.json lacks is a fault of the model
    if geometry is not None and (problem := parallel_problem(geometry, parallel)):
        yield f"{where}.{problem}"


def _unfit(config: Config, ladder: Ladder) -> Iterator[str]:
    model_name = config.deployments[ladder.deployment].model
    model = config.models.get(model_name) if model_name else None
    if model is None or model.context is None or config.packed:
        return
    try:
        tokens = max(longest_request(workload) for _, workload in swept(ladder, config.workloads[ladder.workload]))
    except BenchError as error:
        yield f"workloads.{ladder.workload}: {error}"
        return
    if tokens > model.context:
        yield (
            f"workloads.{ladder.workload}: its longest request, {tokens} tokens with its output, exceeds the context of "
            f"models.{model_name}, {model.context} tokens. Shorten the workload, or remove it from that model's ladder."
        )


def _of_tuning(config: Config, tune: Tune, swept_names: Swept) -> Iterator[str]:
    """Faults of its own names, then those of the study of its candidates."""
    names, known = tune.deployments, config.workloads
    faults = [
        *(
            fault
            for name in names
            for fault in _undefined("tune.deployments", name, "deployments", config.deployments, swept_names)
        ),
        *_undefined("tune.workload", tune.workload, "workloads", known),
    ]
    yield from faults
    if len(set(names)) < len(names):
        yield "tune.deployments names one twice. Remove it."
    if len(names) < _FEWEST_CANDIDATES:
        yield f"tune.deployments names only {names[0]}, but tuning needs two servers or more. Give it a sweep, or name another one."
    for name in names if tune.objective == "cost" else ():
        deployment = config.deployments.get(name)
        engine = deployment and config.engines.get(deployment.engine)
        if deployment and engine and engine.source == "external" and not deployment.model_fields_set & _PARALLEL:
            yield (
                f"tune.objective is cost, but the number of GPUs of deployments.{name} is not known. Give it tensor_parallel, or "
                "make the objective requests."
            )
    if tune.workload in known and (no_search := AXES[known[tune.workload].axis].no_search):
        yield (
            f"tune.workload is {tune.workload!r}, whose highest load cannot be searched for: {no_search.partition('. ')[0]}. Use an "
            "open loop, or arrival: closed without turns."
        )
    elif not faults:
        for fault in contradictions(competing(config, names), swept_names):
            yield re.sub(r"study\.ladders\[\d+\]", "tune", fault)

"""The session of a deployment: start, wait, warm up, measure what is missing, stop, whatever happens."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from bench.errors import BenchError, count_text, is_are
from bench.headers import filled_headers, own_headers
from bench.load.client import Load
from bench.load.introduction import introduce
from bench.load.target import Target
from bench.measure.exposition import engine_kind, find_metrics, kv_facts, worth_reading
from bench.measure.preflight import further_endpoints, hardware_of, refuse_others
from bench.measure.progress import Progress
from bench.measure.rounds import Rounds
from bench.measure.served import find_workers, held_together, version_of_all
from bench.measure.warmup import AT_ONCE, warm_up
from bench.runs.deployment import DeploymentFacts, Start
from bench.runs.environment import counted, redacted, redacted_command
from bench.runs.files import digest, read, record_digest, whole, write_record
from bench.runs.launch import Launch
from bench.runs.paths import Paths
from bench.runs.run import DECODE, RECORD, SessionHeader, of_role
from bench.runs.store import Store
from bench.servers.engines import managed
from bench.servers.facts import hardware, inherited, server_info
from bench.servers.fleet import server_of
from bench.servers.server import Server, ServerDied, blaming, refuse_dead, refuse_ended
from bench.servers.spec import DeploymentSpec
from bench.shipped import commit_of
from bench.study.plan import Plan
from bench.study.specs import PROTOCOL, RunSpec
from bench.study.state import kept_facts
from bench.workloads.prefix_cache import room_of

_STARTS = 2  # starts of a server that dies; convention
_KEPT = "What was measured is kept. If the server dies of a load that a search chose, lower search.highest."


class Search(Protocol):
    """What chooses its runs while it measures: the searches of a deployment."""

    def unfinished(self) -> Sequence[str]:
        """The searches that need a run that is not measured."""

    def first_runs(self) -> Sequence[RunSpec]:
        """Runs to warm up with."""

    def measure(self, rounds: Rounds) -> None:
        """Measure what it needs."""


def measure(
    plan: Plan,
    deployment: str,
    runs: Sequence[RunSpec],
    *,
    launch: Path,
    facts: Path,
    store: Store,
    say: Callable[[str], None],
    search: Search | None = None,
) -> None:
    """Measure those of `runs` that are not measured yet.

    What a run shows (saturation, failed requests, missed SLOs) is data; it never ends the session. Each finished run is kept
    at once, so that the next session goes on after it.

    Args:
        runs: those wanted, in the order in which they are measured.
        launch: the resolved launch. facts: where the session's facts go, beside `server.log`.
        say: takes progress lines. search: adaptive runs, measured after the fixed ones.

    Raises:
        BenchError: the server would not start, or died twice; the message holds its last words.
    """
    spec = plan.deployments[deployment]
    kept = kept_facts(spec, facts)
    if not kept.exists() and record_digest(facts) == spec.digest:  # results copied from elsewhere
        shutil.copy2(facts, kept)
    store.sweep()
    for run in runs:
        if store.holds(run) and not whole(store.folder(run), RECORD):  # copied from elsewhere in part
            say(f"{run.key}: files that its record names are missing or are others; it is measured again")
            store.discard(run)
    missing = [run for run in runs if not store.holds(run)]
    if held := len(runs) - len(missing):
        say(f"{deployment}: {count_text(held, 'run', of=len(runs))} {is_are(held)} measured already")
    resolved = read(Launch, launch)
    progress = Progress(spec, facts.with_name(Path(Paths.PROGRESS).name), runs=len(missing))
    starts = 0
    with progress.ending():
        while missing or not kept.exists() or (search and search.unfinished()):
            starts += 1
            try:
                _one_start(plan, spec, runs, resolved, store, kept, facts.parent / "server.log", progress, say, search)
            except ServerDied as death:
                if starts == _STARTS:
                    raise ServerDied(f"{deployment}: {death}\n{_KEPT}") from None
                say(f"{deployment}: {death}\n{deployment}: starting it once more")
            missing = [run for run in runs if not store.holds(run)]
    if record_digest(facts) != spec.digest or kept.stat().st_mtime > facts.stat().st_mtime:
        shutil.copy2(kept, facts)


def _one_start(
    plan: Plan,
    spec: DeploymentSpec,
    runs: Sequence[RunSpec],
    launch: Launch,
    store: Store,
    kept: Path,
    log: Path,
    progress: Progress,
    say: Callable[[str], None],
    search: Search | None,
) -> None:
    def tell(text: str) -> None:
        say(f"{spec.name}: {text}")

    missing = [run for run in runs if not store.holds(run)]
    progress.starting(len(missing))
    settings, d = plan.measurement, spec.deployment
    headers = filled_headers(spec.engine.headers, where=f"engines.{d.engine}.headers")
    here = spec.engine.source != "external"
    tell(
        f"starting {d.engine} for {_work(missing, search)}"
        if here
        else f"measuring {spec.engine.base_url}, {_work(missing, search)}"
    )
    on = hardware_of(spec)
    refuse_others(plan, spec, store, device=on)
    commit = commit_of()
    server = server_of(
        replace(launch, environment={**launch.environment, **d.environment}),  # with the secrets, which no file has
        cores=d.cores,
        workers=d.workers,
        log=log,
        ready_timeout_s=settings.ready_timeout_s,
        say=tell,
        headers=headers,
    )
    environment = inherited(spec, server.environment, os.environ)
    refuse_others(plan, spec, store, environment=environment)
    with server:
        tell(f"ready after {server.ready_s:.0f} s at {server.base_url}")
        ready = time.monotonic()
        progress.state("warming up")
        target = Target(
            server.base_url,
            spec.served_name,
            os.environ.get("OPENAI_API_KEY") or "none",
            headers,
            reuses=server.managed and not server.workers,
        )
        first = [*missing, *(search.first_runs() if search else ())]
        with blaming(server):
            # Reference loads are those of the deployment's first run, whatever is missing.
            asked = [*runs, *(search.first_runs() if search else ()), plan.first_run(spec.name)]
            answers: list[float] = []
            target = _introduced(target, spec, asked, launch, settings.request_timeout_s, tell, answers.append)
            warmup = warm_up(target, first, settings, launch)
        if warmup.stable is False:
            tell(f"TTFT was not stable after {len(warmup.ttft_s) - AT_ONCE} requests of warm-up; the first runs may show it")
        refuse_dead(server)
        served = any(ttft is not None for ttft in warmup.ttft_s)
        metrics = spec.engine.metrics if spec.engine.metrics != "none" else None
        named = _promises(spec, server)
        workers = find_workers(
            server.base_url, server.workers, headers, named=str(named), prefill=launch.prefill_workers, alike=_alike(launch)
        )
        readable = not workers and spec.engine.metrics != "none"
        found = find_metrics(server.base_url, metrics, headers, served=served) if readable else None
        own, text = own_headers(server.base_url, server.base_url, headers), found.text if found else ""
        own_kind = managed(launch.kind) if server.managed else None
        info = found.info if found else {"version": version_of_all(workers)} if workers else server_info(server.base_url, own)
        kv = held_together(of_role(workers, DECODE)) if workers else kv_facts(text, info, own_kind, alike=_alike(launch))
        words = log.read_text(encoding="utf-8", errors="replace") if own_kind and log.exists() else ""
        facts = DeploymentFacts(
            deployment=spec.name,
            digest=spec.digest,
            engine_version=info.get("version") or launch.engine_version,
            kind=launch.kind if own_kind else workers[0].kind if workers else engine_kind(text) if found else None,
            managed=server.managed,
            command=tuple(redacted_command(server.argv)),
            settings=launch.settings,
            environment=redacted(server.environment),
            router_version=server.router_version,
            ready_s=round(server.ready_s, 3),
            starts=tuple(_starts(kept, server, answers)),
            weight_gib=own_kind.weight_gib(words) if own_kind else None,
            step_tokens=own_kind.step_tokens(words) if own_kind else None,
            hardware=hardware(),
            inherited=environment,
            environment_digest=digest(counted(environment)),
            warmup=warmup,
            **vars(kv if kv.prefix_caching is not None else replace(kv, prefix_caching=launch.settings.prefix_caching)),
        )
        scraped = bool(workers) or (found is not None and worth_reading(found, named=named, say=tell))
        endpoints = further_endpoints(spec, server, settings.telemetry.values(), tell)
        refuse_others(plan, spec, store, engine_version=facts.engine_version, router_version=facts.router_version)
        write_record(facts, kept)
        rounds = Rounds(
            plan,
            spec,
            target,
            store,
            launch,
            header=SessionHeader(
                protocol=PROTOCOL,
                deployment_digest=spec.digest,
                engine_version=facts.engine_version,
                router_version=facts.router_version,
                device=on,
                commit=commit,
                environment=environment,
                environment_digest=facts.environment_digest,
                workers=workers,
            ),
            recording={
                "scrape_interval_s": settings.scrape_interval_s if scraped else None,
                "metrics": found.address if found else None,
                "metrics_headers": found.headers if found else {},
                "endpoints": endpoints,
                **_prefixes(facts, launch, facts.engines or d.data_parallel),
                "descends": spec.descends,
                "alive": partial(refuse_ended, server),
                "say": tell,
            },
            server=server,
            progress=progress,
            say=tell,
        )
        rounds.measure(missing)
        if search:
            search.measure(rounds)
        tell(progress.share_text(time.monotonic() - ready))


def _introduced(
    target: Target,
    spec: DeploymentSpec,
    runs: Sequence[RunSpec],
    launch: Launch,
    timeout_s: float,
    say: Callable[[str], None],
    answered: Callable[[float], None],
) -> Target:
    """The target, with the form of requests that it accepts at each endpoint of these runs."""
    for endpoint in dict.fromkeys(run.workload.endpoint for run in runs):
        workloads = [run.workload for run in runs if run.workload.endpoint == endpoint]
        target = introduce(
            target,
            endpoint,
            stream=any(workload.stream for workload in workloads),
            scripted=any(workload.scripted_chats for workload in workloads),
            vocabulary=launch.vocabulary or Load.vocabulary,
            omit=spec.engine.omit,
            timeout_s=timeout_s,
            say=say,
            answered=answered,
        )
    return target


def _starts(kept: Path, server: Server, answers: Sequence[float]) -> list[Start]:
    """The starts that were measured of this definition, this one last. Args: answers: TTFT of its first requests, in turn (s)."""
    try:
        earlier = list(read(DeploymentFacts, kept).starts) if kept.exists() else []
    except BenchError:  # a record that cannot be read is written anew
        earlier = []
    if not server.managed or not answers:
        return earlier
    return [*earlier, Start(ready_s=round(server.ready_s, 3), first_token_s=round(server.ready_s + answers[0], 3))]


def _work(missing: Sequence[RunSpec], search: Search | None) -> str:
    runs = count_text(len(missing), "run")
    if not (searches := len(search.unfinished()) if search else 0):
        return runs
    sought = "a search" if searches == 1 else f"{searches} searches"
    return f"{runs} and {sought}" if missing else sought


def _prefixes(facts: DeploymentFacts, launch: Launch, engines: int) -> dict[str, Any]:
    """The blocks in which prompts share prefixes, over how many caches (one an engine), and how much room there is; a slot is a cache
    of its own, which shares tokens. Where workers have roles that is not known: the facts are those of the ones that decode.
    """
    known = facts.prefix_caching is not None and not launch.prefill_workers
    size = None if not known else facts.block_size if facts.prefix_caching else 0
    if launch.settings.slots:
        size, engines = size and 1, facts.kv_blocks or engines
    return {"prefix_block_size": size, "engines": engines, "room": room_of(facts, launch, engines) if size else None}


def _alike(launch: Launch) -> bool:
    """Whether all of the model's layers keep the same tokens, as far as that is known."""
    return launch.plan is None or sum(count for _, count in launch.plan.kv_groups) == 1


def _promises(spec: DeploymentSpec, server: Server) -> str | None:
    """What says that there are metrics; None for an external server whose study does not say where."""
    if server.managed:
        return f"deployments.{spec.name}"
    keys = [key for key in ("workers", "metrics") if getattr(spec.engine, key)]
    return f"engines.{spec.deployment.engine}.{keys[0]}" if keys else None

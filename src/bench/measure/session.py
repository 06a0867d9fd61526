"""The session of a deployment: start, wait, warm up, measure what is missing, stop, whatever happens."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import requests

from bench.commit import commit_of
from bench.engine import Server, ServerDied, gather_facts, inherited, server_info
from bench.errors import BenchError
from bench.http import get
from bench.measure.comparable import (
    device_of,
    refuse_another_device,
    refuse_another_environment,
    refuse_another_version,
    refuse_strange_launch,
)
from bench.measure.devices import further_endpoints
from bench.measure.metrics import kv_facts, metric_names
from bench.measure.progress import Clock
from bench.measure.recording import record_run
from bench.measure.reference import reference_load
from bench.measure.state import facts_key, record_digest
from bench.measure.store import Store
from bench.study import DeploymentSpec, Plan, RunSpec, Workload
from bench.study.config import Measurement
from bench.study.environment import counted
from bench.study.plan import PROTOCOL, digest
from bench.telemetry import find_catalogue
from bench.workload import Load, Target, run_load, schedule

__all__ = ["measure"]

_STARTS = 2  # a server that dies is started once more
_AT_ONCE = 4  # requests with which a warm-up ends
_WARM_OUTPUT = 16  # most output tokens of a request of warm-up: TTFT is what has to become stable


def measure(
    plan: Plan,
    deployment: str,
    runs: Sequence[RunSpec],
    *,
    session: int = 1,
    launch: Path,
    facts: Path,
    store: Store,
    say: Callable[[str], None],
) -> None:
    """Measure those of `runs` that have no measurement with their digest, and put every run's files in place.

    What a run shows (saturation, failed requests, missed SLOs) is data; it never ends the session. Each finished run is kept
    at once, so that the next session goes on after it.

    Args:
        runs: the runs wanted, in the order in which they are measured. session: its number among those of the deployment.
        launch: the resolved launch. facts: where the session's facts go, beside `server.log`.
        say: takes progress lines.

    Raises:
        BenchError: the server would not start, or died twice; the message holds its last words.
    """
    spec = plan.deployments[deployment]
    key = facts_key(spec, session)
    store.sweep()
    for run in runs:
        if not store.holds(run.digest) and record_digest(run.record) == run.digest:
            store.adopt(run.digest, run.record.parent, last=run.record.name)
    if not store.holds(key) and record_digest(facts) == spec.digest:
        store.adopt(key, facts.parent, last=facts.name)
    missing = [run for run in runs if not store.holds(run.digest)]
    if len(missing) < len(runs):
        say(f"{deployment}: {len(runs) - len(missing)} of {len(runs)} runs are measured already")
    content = json.loads(launch.read_text())
    starts = 0
    while missing or not store.holds(key):
        starts += 1
        try:
            _measure_missing(plan, spec, missing, content, store, key, facts.parent / "server.log", say)
        except ServerDied as death:
            kept = len(runs) - sum(not store.holds(run.digest) for run in runs)
            if starts == _STARTS:
                raise BenchError(f"{deployment}: {death}\n{kept} of {len(runs)} runs are measured and kept.") from None
            say(f"{deployment}: {death}\n{deployment}: starting it once more")
        missing = [run for run in missing if not store.holds(run.digest)]
    for run in runs:
        store.place(run.digest, run.record.parent, last="run.json")
    store.place(key, facts.parent, last=facts.name)


def _measure_missing(
    plan: Plan,
    spec: DeploymentSpec,
    missing: Sequence[RunSpec],
    launch: dict[str, Any],
    store: Store,
    key: str,
    log: Path,
    say: Callable[[str], None],
) -> None:
    settings, d = plan.measurement, spec.deployment
    say(f"{spec.name}: starting {spec.deployment.engine} for {len(missing)} runs" if spec.engine.source != "external"
        else f"{spec.name}: measuring {spec.engine.base_url}, {len(missing)} runs")  # fmt: skip
    refuse_strange_launch(launch)
    device = device_of(spec)
    refuse_another_device(plan, spec, store, device)
    commit = commit_of()
    server = Server(
        launch | {"environment": {**launch.get("environment", {}), **d.environment}},  # with the secrets, which no file has
        cores=d.cores,
        workers=d.workers,
        log=log,
        ready_timeout_s=settings.ready_timeout_s,
        say=lambda text: say(f"{spec.name}: {text}"),
    )
    environment = inherited(spec, server.environment, os.environ)
    refuse_another_environment(plan, spec, store, environment)
    with server:
        say(f"{spec.name}: ready after {server.ready_s:.0f} s at {server.base_url}")
        ready = time.monotonic()
        target = Target(server.base_url, spec.served_name, os.environ.get("OPENAI_API_KEY", "none"))
        with _blaming(server):
            warmup = _warm_up(target, missing, settings, launch)
        if warmup["stable"] is False:
            say(
                f"{spec.name}: TTFT was not stable after {len(warmup['ttft_s']) - _AT_ONCE} requests of warm-up; "
                "the first runs may show it"
            )
        _alive(server)
        info, exposition = server_info(server.base_url), _exposition(server)
        facts = {
            "deployment": spec.name,
            "digest": spec.digest,
            **gather_facts(server, log, info),
            "inherited": environment,
            "environment_digest": digest(counted(environment)),
            **kv_facts(exposition, info),
            "warmup": warmup,
        }
        served = any(ttft is not None for ttft in warmup["ttft_s"])
        scraped = _tells_enough(server, exposition, facts["engine_version"], served, say)
        endpoints = further_endpoints(spec, server, settings.telemetry.values(), lambda text: say(f"{spec.name}: {text}"))
        refuse_another_version(plan, spec, store, facts["engine_version"])
        with store.adding(key) as folder:
            (folder / "deployment.json").write_text(json.dumps(facts, indent=2) + "\n")
        clock = Clock(missing)
        first = _load(plan.first_run(spec.name), launch, settings.request_timeout_s)
        reference: dict[str, Any] | None = None
        measured_round = 0
        for run in missing:
            place = plan.place_of(run)
            if settings.reference_requests and place.round != measured_round:
                measured_round = place.round
                reference = reference_load(target, first, settings.reference_requests, place.round, lambda: _alive(server))
                say(f"{spec.name}: round {place.round}, {_described(reference)}")
            load = _load(run, launch, settings.request_timeout_s)
            header = {
                "digest": run.digest,
                "protocol": PROTOCOL,
                "deployment_digest": spec.digest,
                "engine_version": facts["engine_version"],
                "device": device,
                "commit": commit,
                "environment": environment,
                "environment_digest": facts["environment_digest"],
                "round": place.round,
                "position": place.position,
                "session": place.session,
                "reference": reference,
                "definition": run.definition,
            }
            with store.adding(run.digest) as folder, _blaming(server):
                recording = record_run(
                    target,
                    load,
                    folder,
                    header=header,
                    scrape_interval_s=settings.scrape_interval_s if scraped else None,
                    endpoints=endpoints,
                    prefix_block_size=facts["block_size"] if facts["prefix_caching"] else None,
                    engines=facts["engines"] or d.data_parallel,
                    descends=_descends(spec),
                )
                if recording.failed:
                    _alive(server)  # a dead server's failures are not the run's
            say(clock.line(run, recording.requests, recording.tokens_per_s, recording.duration_s))
        say(f"{spec.name}: {clock.share(time.monotonic() - ready)}")


def _described(reference: dict[str, Any] | None) -> str:
    if reference is None:
        return "no reference load: a request of it failed"
    return "reference load " + ", ".join(f"{seconds:.2f}" for seconds in reference["seconds"]) + " s"


def _descends(spec: DeploymentSpec) -> bool:
    """Whether the server's processes descend from ours; those of docker and podman do not, an external server may run anywhere."""
    engine = spec.engine
    return engine.source in ("lock", "command") or (engine.source == "container" and engine.runtime == "apptainer")


@contextmanager
def _blaming(server: Server) -> Iterator[None]:
    """Where something fails because the server is dead, say that instead: it can be started again."""
    try:
        yield
    except BenchError:
        _alive(server)
        raise


def _alive(server: Server) -> None:
    """Raise ServerDied where the process is gone or no longer answers; a server that is dying is given the time to."""
    for _ in range(10):
        if not server.running():
            break
        if server.answers():
            return
        time.sleep(0.5)
    raise ServerDied(f"The server died while it was measured. {server.last_words()}")


def _exposition(server: Server) -> str:
    """What the server exposes; empty where it exposes nothing."""
    try:
        answer = get(f"{server.base_url}/metrics")
    except requests.RequestException:
        return ""
    return answer.text if answer.ok else ""


def _tells_enough(server: Server, exposition: str, version: str | None, served: bool, say: Callable[[str], None]) -> bool:
    """Whether the server is to be scraped: it exposes what one of its engine and version should. False for an external one that
    exposes nothing we know.

    Args:
        served: whether it answered a request yet. Some engines expose a metric only when there is something to tell.

    Raises:
        BenchError: it names the metrics that are missing, before any run is spent on them.
    """
    found = find_catalogue(metric_names(exposition), version)
    lacking = f"{server.base_url}/metrics lacks {'; '.join(found.missing)}"
    if found.engine is None and not server.managed:
        say(f"{lacking}; measuring without telemetry")
        return False
    if found.missing and (served or found.engine is None):
        raise BenchError(f"{lacking}. A metric that has another name there needs a line in src/bench/telemetry/engines.toml.")
    return True


def _load(run: RunSpec, launch: dict[str, Any], timeout_s: float) -> Load:
    return Load(
        workload=run.workload,
        level=run.level,
        seed=run.digest,
        schedule_seed=run.schedule_seed,
        vocabulary=launch["vocabulary"] or Load.vocabulary,
        timeout_s=timeout_s,
    )


def _warm_up(target: Target, missing: Sequence[RunSpec], settings: Measurement, launch: dict[str, Any]) -> dict[str, Any]:
    """Send prompts as long as the first run's first one, three by three, until TTFT is stable; then four at once.

    Returns:
        `ttft_s` of each (E2E where nothing streams; None where it failed), and whether three in a row were `stable`; None where there
        was no warm-up.

    Raises:
        BenchError: the first three failed, each of them: the server does not do what every run would ask of it.
    """
    if not missing or not settings.warmup_requests:
        return {"ttft_s": [], "stable": None}
    first = _load(missing[0], launch, settings.request_timeout_s)
    model = schedule(first.workload, first.level, first.schedule_seed)[0]
    told: list[float | None] = []
    stable = False

    def send(arrival: str, count: int) -> list[float | None]:
        workload = Workload.model_validate(
            {
                "arrival": arrival,
                "prompt_tokens": model.prompt_tokens,
                "output_tokens": min(model.output_tokens, _WARM_OUTPUT),
                "num_requests": count if arrival == "closed" else None,
                "endpoint": first.workload.endpoint,
                "stream": first.workload.stream,
            }
        )
        load = replace(
            first, workload=workload, level=1 if arrival == "closed" else count, seed=f"warm-up/{len(told)}/{first.seed}"
        )
        records = run_load(target, load).records
        if not told and all(record.outcome != "ok" for record in records):
            said = records[0].error
            raise BenchError(
                f"{target.base_url} answered none of the first {count} requests of warm-up: {records[0].outcome}"
                + (f", {said.rstrip('.')}" if said else "")
                + f". Check the model's name ({target.model!r}), OPENAI_API_KEY, and the lengths of {missing[0].workload_name}."
            )
        return [(r.e2e_s if r.ttft_s is None else r.ttft_s) if r.outcome == "ok" else None for r in records]

    while not stable and len(told) + 3 <= max(3, settings.warmup_requests):
        latest = send("closed", 3)
        told += latest
        known = sorted(value for value in latest if value is not None)
        stable = len(known) == 3 and known[2] - known[0] <= settings.warmup_spread * known[1]
    return {"ttft_s": told + send("burst", _AT_ONCE), "stable": stable}

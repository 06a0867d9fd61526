"""What is served before the first run: whether a server that is not started here is there, and what the engines behind a router report
and hold together.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import requests

from bench.errors import BenchError
from bench.headers import UNAUTHORIZED, filled_headers
from bench.http import api_root, get_models, problem
from bench.measure.exposition import engine_kind, find_metrics, kv_facts
from bench.runs.deployment import KvFacts
from bench.runs.run import DECODE, PREFILL, Worker
from bench.servers.kind import common, total
from bench.servers.spec import DeploymentSpec


def refuse_absent(spec: DeploymentSpec) -> None:
    """Ask an external server for its models. What it serves, its answer to the session's first request decides.

    Raises:
        BenchError: a variable of its headers is not set, nothing answers at its address, or it wants another key.
    """
    base, engine = api_root(str(spec.engine.base_url)), f"engines.{spec.deployment.engine}"
    headers = filled_headers(spec.engine.headers, where=f"{engine}.headers")
    where = f"{engine}.base_url"
    try:
        answer = get_models(base, key=os.environ.get("OPENAI_API_KEY"), headers=headers)
    except requests.RequestException as error:
        raise BenchError(
            f"{where}: no server answers at {base} ({problem(error)}). Start it, or correct the address."
        ) from None
    if answer.history or answer.is_redirect:
        raise BenchError(
            f"{where}: {base} redirects to {answer.headers.get('Location') or answer.url}, and redirections are not followed. Give "
            "the address that answers requests itself."
        )
    if answer.status_code in UNAUTHORIZED:
        raise BenchError(
            f"{where}: {base} answers {answer.status_code}: it wants an API key, or another one. Export it as OPENAI_API_KEY. Where "
            f"that goes into another header, name it and the variable that holds its value in {engine}.headers."
        )


def find_workers(
    base_url: str, addresses: Mapping[str, str], headers: Mapping[str, str], *, named: str, prefill: int = 0, alike: bool = True
) -> tuple[Worker, ...]:
    """Ask each worker once.

    Args:
        base_url: of the router. addresses: of the workers, by their names.
        headers: for the router; they go to no worker at another scheme, host or port.
        named: the key that names the workers. prefill: how many, the first ones, prefill for the others. alike: as of `kv_facts`.

    Raises:
        BenchError: one does not answer with an engine's metrics, they are of several engines, whose counts do not add up, or some
            should only prefill and are not vLLM.
    """
    workers = []
    for place, (name, address) in enumerate(addresses.items()):
        role = (PREFILL if place < prefill else DECODE) if prefill else None
        # Which of them the warm-up came to is not known: a metric may wait for a worker's first request.
        found = find_metrics(base_url, f"{address}/metrics", headers, alone=False)
        if found.why:
            raise BenchError(f"{named}: {address}: {found.why}.")
        workers.append(
            Worker(
                name=f"{name} ({role})" if role else name,
                role=role,
                endpoint=found.address,
                kind=engine_kind(found.text),
                engine_version=found.info.get("version"),
                **vars(kv_facts(found.text, found.info, alike=alike)),
            )
        )
    kinds = {worker.kind: worker.name for worker in workers}
    if len(kinds) > 1:
        mixed = " and ".join(f"{name} is {kind}" for kind, name in kinds.items())
        raise BenchError(
            f"{named}: {mixed}, and counts of different engines cannot be added up. Measure each engine behind its own router."
        )
    if prefill and (other := next((worker for worker in workers if worker.kind != "vllm"), None)):
        raise BenchError(
            f"{named}: {other.name} is {other.kind or 'of no engine that is known'}, but prefill_workers is {prefill}: only vLLM's "
            "counts can be summed by role. Remove prefill_workers."
        )
    return tuple(workers)


def held_together(workers: Sequence[Worker]) -> KvFacts:
    """The KV caches of all workers together; null where one worker does not report its own."""
    cached = [worker.prefix_caching for worker in workers]
    keys = set.intersection(*(set(worker.cache_config) for worker in workers))
    return KvFacts(
        engines=total([worker.engines for worker in workers]),
        kv_blocks=total([worker.kv_blocks for worker in workers]),
        block_size=common([worker.block_size for worker in workers]),
        kv_tokens=total([worker.kv_tokens for worker in workers]),
        prefix_caching=common(cached),
        cache_config={key: common([worker.cache_config[key] for worker in workers]) for key in sorted(keys)},
    )


def version_of_all(workers: Sequence[Worker]) -> str | None:
    """The version of every worker, or each that occurs; None where one does not report it."""
    versions = [worker.engine_version for worker in workers]
    known = sorted({version for version in versions if version is not None})
    return None if None in versions else ", ".join(known)

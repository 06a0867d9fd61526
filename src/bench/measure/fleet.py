"""The engines behind a router: what each reports before the first run, and what all of them hold together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.errors import BenchError
from bench.measure.exposition import engine_kind, find_metrics, kv_facts, worth_reading
from bench.runs.deployment import KvFacts
from bench.runs.run import DECODE, PREFILL, Worker
from bench.servers.kind import common, total


def find_workers(
    base_url: str,
    addresses: Mapping[str, str],
    headers: Mapping[str, str],
    *,
    named: str,
    prefill: int = 0,
    alike: bool = True,
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
        worth_reading(found, named=f"{named}: {address}", say=lambda _: None)
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
            f"{named}: {mixed}, and counts of different engines do not add up. Measure each engine behind a router of its own."
        )
    if prefill and (other := next((worker for worker in workers if worker.kind != "vllm"), None)):
        raise BenchError(
            f"{named}: {other.name} is {other.kind or 'of no engine that is known'}, and prefill_workers says that {prefill} of the "
            "workers only prefill: sums by role are known of vLLM alone. Remove prefill_workers."
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

"""A short load between the runs of a deployment, always the same: how fast the machine is now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import fmean

from bench.errors import BenchError
from bench.load.client import Load, run_load
from bench.load.target import Target
from bench.runs.request import RequestRecord
from bench.runs.run import ReferenceLoad
from bench.workloads.endpoints import ENDPOINTS
from bench.workloads.schedule import schedule

_IN_FLIGHT = 4  # requests of a reference load at once; convention
_TIMES = 2  # times that it is sent: the faster one counts, as what interrupts a machine for a moment is no drift; convention
_LONGEST_PROMPT = 256  # longest prompt of a reference load (tokens); convention
_LONGEST_OUTPUT = 32  # longest output of a reference load (tokens); convention
# longest reference load (s): a server for which a few short requests take so long has no second to spare; convention
_TIMEOUT_S = 60.0
_GIVEN_UP = 2  # reference loads that fail in a row until one a round is sent; convention


@dataclass
class Patience:
    """With a server that fails reference loads, each of which may take it a minute: after two in a row, it gets one a round."""

    _failed: int = 0  # in a row
    _latest: int | None = None  # round in which one was sent

    def sends(self, number: int) -> bool:
        """Whether a reference load is sent. Args: number: of the round."""
        return self._failed < _GIVEN_UP or number != self._latest

    def sent(self, number: int, reference: ReferenceLoad | None) -> None:
        """Note that one was sent. Args: number: of the round. reference: None where a request of it failed."""
        self._latest, self._failed = number, 0 if reference else self._failed + 1


def reference_load(
    target: Target, first: Load, requests: int, place: tuple[int, str | None], alive: Callable[[], None]
) -> ReferenceLoad | None:
    """Send the reference load twice.

    Lengths are those of `first`'s first request, bounded, so that it fits wherever the workload does; prompts of a file are the first
    ones of that run, each time.

    Args:
        first: the deployment's first run, whatever is measured now: it decides the lengths and the endpoint.
        requests: how many each time. place: the round, and when it began; None: now. alive: raises where the server is dead.

    Returns:
        None where a request failed.

    Raises:
        ServerDied: the server is dead.
    """
    started = datetime.now(UTC).isoformat(timespec="milliseconds")
    model = schedule(first.workload, first.level, first.schedule_seed)[0]
    alone = first.workload.of(model.request_class)
    asked = model.prompt_asked
    fewest = alone.prompts.fewest(ENDPOINTS[first.workload.endpoint], target.form(first.workload.endpoint))
    prompt = None if asked is None else max(min(asked, _LONGEST_PROMPT), fewest)
    output = model.output_tokens and min((asked or 0) - (prompt or 0) + model.output_tokens, _LONGEST_OUTPUT)
    in_flight = min(_IN_FLIGHT, requests)
    workload = alone.alike("closed", requests, prompt, output)
    load = replace(first, workload=workload, level=in_flight, timeout_s=min(first.timeout_s, _TIMEOUT_S))
    tokens = sum(request.tokens for request in schedule(workload, in_flight, load.schedule_seed))
    seconds = []
    for time in range(_TIMES):
        try:
            # The moment is in the seed: no prefix cache may know a prompt of an earlier reference.
            records = run_load(target, replace(load, seed=f"reference/{started}/{time}/{first.seed}")).records
        except BenchError:
            records = []
        took = _seconds(records)
        if took is None:
            alive()
            return None
        seconds.append(round(took, 6))
    return ReferenceLoad(
        round=place[0],
        since=place[1] or started,
        started=started,
        requests=requests,
        in_flight=in_flight,
        prompt_tokens=prompt,
        output_tokens=output,
        seconds=tuple(seconds),
        tokens_per_s=round(tokens / fmean(seconds), 3),
    )


def _seconds(records: list[RequestRecord]) -> float | None:
    """From the first request sent to the end of the last; None where one failed, or none was sent."""
    sent = [record.sent_s for record in records if record.sent_s is not None]
    ends = [record.end_s for record in records if record.end_s is not None]
    if not sent or not ends or any(record.outcome != "ok" for record in records):
        return None
    return max(ends) - min(sent)

"""`run.json`: how a run was measured, and the checksums of the files beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec

from bench.errors import BenchError
from bench.runs.deployment import KvFacts
from bench.runs.files import checked_names, checksum, read, typed
from bench.runs.request import RequestForm

PREFILL, DECODE = "prefill", "decode"  # roles of workers, where prefill and decode are disaggregated
RECORD, REQUESTS, TELEMETRY = "run.json", "requests.jsonl", "telemetry.jsonl.gz"


@dataclass(frozen=True, kw_only=True)
class _Definition:
    """What is computed from a definition, which is the study's own and has more than this."""

    workload: str
    axis: str
    level: float
    deployment: str | None = None
    run: str | None = None
    arrival: str | None = None
    family: str | None = None
    repeat: int | None = None
    seed: int | str | None = None
    turns: Mapping[str, Any] | None = None
    step: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class _Defined:
    definition: _Definition


#: Seconds, of which there are some; a record with others is refused when it is read.
Positive = Annotated[float, msgspec.Meta(gt=0)]


@dataclass(frozen=True, kw_only=True)
class ReferenceLoad:
    """A short load between runs, always the same: how fast the machine was. Runs that begin within seconds may share one.

    Attributes:
        round: its number. since: when the round, or the part of it that was measured together, began (ISO moment). started: ISO moment.
        requests, in_flight, prompt_tokens, output_tokens: what it sends each time.
        seconds: of each time, from the first request sent to the last one's end. tokens_per_s: output tokens over their mean.
    """

    round: int | None = None
    since: str | None = None
    started: str | None = None
    requests: int | None = None
    in_flight: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    seconds: tuple[Positive, ...] = ()
    tokens_per_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Client:
    """How the client fared: its own delays are part of every latency that it measures. Of several processes, the worst.

    Attributes:
        processes: how many sent. cpu_s: CPU time of all; cpu_share: of the duration, at the busiest (0–1). reads: pieces of answers.
        resent: requests sent again. loop_lag: how late ticks of a timer were served (s). schedule_delay: sent − due (s).
        send_spread_s: between the first request sent and the last. realtime: whether all had real-time priority.
        clock_skew_s: between a process's clock and the session's.
    """

    processes: int | None = None
    cpu_s: float | None = None
    cpu_share: float | None = None
    reads: int | None = None
    resent: int | None = None
    loop_lag_p50_s: float | None = None
    loop_lag_p99_s: float | None = None
    loop_lag_max_s: float | None = None
    schedule_delay_p50_s: float | None = None
    schedule_delay_p99_s: float | None = None
    schedule_delay_max_s: float | None = None
    send_spread_s: float | None = None
    realtime: bool | None = None
    clock_skew_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """What the server's prefix cache is expected to serve.

    Attributes:
        primed_tokens: tokens of the prompt that was sent ahead. expected_tokens: prompt tokens that the cache should serve; None where
            that depends on which of several engines a request comes to. lru_tokens: those that a cache of the server's size serves,
            which evicts what was used longest ago; None where its size or its rules are not known.
    """

    primed_tokens: int | None = None
    expected_tokens: int | None
    lru_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class Host:
    """Shares of the time of the cores that the session may use (0–1).

    Attributes:
        busy_share: not idle. steal_share: taken by another tenant of the machine. other_share: used by processes that are neither the
            session's nor the server's, or at least that much; None where the server's own cannot be distinguished from others'.
        clock_step_s: by how much the wall clock moved against the monotonic one meanwhile (s): the machine was suspended, or its time
            was set.
    """

    busy_share: float | None = None
    steal_share: float | None = None
    other_share: float | None = None
    clock_step_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Stopped:
    """A run that ended before all of its requests were sent. Those that were sent ended normally.

    Attributes:
        why: `overloaded`, requests piled up steadily. at_s: when, since the run's start. sent, planned: requests.
    """

    why: str
    at_s: float
    sent: int
    planned: int


@dataclass(frozen=True, kw_only=True)
class Worker(KvFacts):
    """One of the engines behind a router, as it was before the session's first run.

    Attributes:
        name: where it answers, or which replica it is. endpoint: of its metrics. kind: which engine it is, by name.
        engine_version: as it reports it. role: `PREFILL`: it prefills for others; `DECODE`: others prefill for it; None: it does both.
    """

    name: str
    endpoint: str
    kind: str | None = None
    engine_version: str | None = None
    role: str | None = None


def of_role(workers: Sequence[Worker], role: str) -> list[Worker]:
    """Those that do this part of the work. Args: role: `PREFILL` or `DECODE`."""
    return [worker for worker in workers if worker.role in (role, None)]


@dataclass(frozen=True, kw_only=True)
class SessionHeader:
    """What the records of one start of a server share.

    Attributes:
        protocol: of the measurement. deployment_digest: of the deployment's definition. engine_version: as the server reports it.
        router_version: of what stands in front of replicas; None where nothing does, or where it is not known.
        workers: the engines of a fleet; empty for a single server.
        device: name of what the server runs on; None for one that was not started here. commit: of the sources that measured.
        environment: the user's variables that reached the server, as recorded. environment_digest: of those that must be alike.
    """

    protocol: int | None = None
    deployment_digest: str | None = None
    engine_version: str | None = None
    router_version: str | None = None
    device: str | None = None
    commit: str | None = None
    environment: Mapping[str, str] | None = None
    environment_digest: str | None = None
    workers: tuple[Worker, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RunHeader(SessionHeader):
    """What is known of a run before it is measured.

    Attributes:
        digest: of the definition and all that decides the measurement. round, session, position: where it stands among its deployment's
            runs; the position is None where nothing planned one. reference: the load before it; None without one.
        definition: the workload, the level and the repeat, as the study has them.
    """

    digest: str
    round: int | None = None
    position: int | None = None
    session: int | None = 1
    reference: ReferenceLoad | None = None
    definition: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Refuse a definition that is none, before anything is measured. Raises: ValueError: it names the place."""
        typed(_Defined, {"definition": self.definition})


@dataclass(frozen=True, kw_only=True)
class RunRecord(RunHeader):
    """A run that was measured.

    Attributes:
        started: ISO moment. clock_start_s: the same on the clock of the scrapes. duration_s: to the end of the last request.
        form: how its requests were written.
        drain_s: from then until the server was empty. scrape_interval_s: None where nothing was scraped. scrape_endpoint: of the
            engine's metrics; None where these were not, and of a fleet, whose workers have one each.
        stopped: that it ended early, and why; None where all requests were sent.
        versions: of this package and what it builds on. files: SHA-256 of each file beside the record.
    """

    started: str
    clock_start_s: float
    duration_s: float | None = None
    drain_s: float
    scrape_interval_s: Positive | None
    scrape_endpoint: str | None
    client: Client
    prefix: Prefix
    host: Host
    form: RequestForm = field(default_factory=RequestForm)
    stopped: Stopped | None = None
    versions: Mapping[str, str | None] = field(default_factory=dict)
    files: Mapping[str, str]

    def __post_init__(self) -> None:
        """Refuse what no session writes. Raises: ValueError: it names it."""
        super().__post_init__()
        checked_names(self.files)


def read_run(folder: Path) -> RunRecord:
    """The record of the run in `folder`, after a check of its files against the checksums in it.

    Raises:
        BenchError: a file is missing, differs from what was measured, or is none that a session writes.
    """
    path = folder / RECORD
    if not path.exists():
        raise BenchError(f"{path}: no such file; the folder of a measured run holds {RECORD} and {REQUESTS}.")
    record = read_record(path)
    for name, expected in record.files.items():
        file = folder / name
        if not file.is_file():
            raise BenchError(f"{file}: missing. D{_again(folder)[1:]}")
        if checksum(file) != expected:
            raise BenchError(f"{file}: differs from what was measured. Restore it, or {_again(folder)}")
    return record


def read_record(path: Path) -> RunRecord:
    """The record in `path` alone, whatever became of the files beside it.

    Raises:
        BenchError: it names the file, the place in it and what is wrong.
    """
    return read(RunRecord, path, f"Restore it, or {_again(path.parent)}")


def _again(folder: Path) -> str:
    return f"discard the run (`bench runs --discard {folder.name}`) and measure it again."

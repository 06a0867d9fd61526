"""`bench workload`: send exactly specified load to any OpenAI-compatible server."""

from __future__ import annotations

import math
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench.cli.common import introduced, refuse_missing_gpus, refuse_wrong_address, requests_of, target_of
from bench.cli.output import print_json, progress
from bench.commit import commit_of
from bench.endpoints import ENDPOINTS
from bench.errors import BenchError
from bench.load.client import Load
from bench.load.schedule import PlannedRequest, schedule
from bench.load.target import Target
from bench.measure.exposition import find_metrics, worth_reading
from bench.measure.recording import Recording, record_run
from bench.measure.rounds import disturbed
from bench.records.run import RunHeader
from bench.study import Workload, load_workload
from bench.study.arrivals import GAPS
from bench.study.config import Thresholds
from bench.study.plan import file_digests
from bench.study.specs import PROTOCOL, digest, load_label
from bench.work import Work

__all__ = ["run"]

_SCRAPE_INTERVAL_S = 0.2
_NUMBERS = (
    *("num_requests", "prompt_length", "output_length", "concurrency", "request_rate", "duration", "time_scale", "burstiness"),
    *("processes", "timeout", "scrape_interval"),
)
_COUNT_MISSING = "--num-requests is missing: how many requests to send."
_TOO_MANY = "--concurrency is {level}, and --num-requests {count}: so many would never be in flight. Raise --num-requests."
_LOAD = ("num_requests", "duration_s")  # how much of a workload is sent, not what

# What belongs to one run in its folder: raw records, and what `bench parse` makes of them.
_OF_A_RUN = (
    *("run.json", "requests.jsonl", "telemetry.jsonl.gz"),
    *("requests.parquet", "telemetry.parquet", "metrics.csv", "summary.json"),
)


def _workload(options: SimpleNamespace) -> tuple[dict[str, Any], float]:
    """The workload that the options and `--workload` describe, as a configuration would say it, and its level.

    Raises:
        BenchError: options contradict each other, or one is missing.
    """
    for wrong, message in _contradictions(options):
        if wrong:
            raise BenchError(message)
    content = requests_of(
        options,
        stream=False if options.no_stream else None,
        honour_retry_after=options.honour_retry_after or None,
        cache=None if options.shared_prefix is None else "shared",
        shared_prefix=options.shared_prefix,
        arrival=_arrival(options),
        burstiness=options.burstiness,
        trace=options.trace,
        trace_unit=options.trace_unit,
        num_requests=options.num_requests,
        duration_s=options.duration,
    )
    for given, other in (("num_requests", "duration_s"), ("duration_s", "num_requests")):
        if getattr(options, given.removesuffix("_s")) is not None:
            content.pop(other, None)  # the file's
    arrival, count = content.get("arrival"), content.get("num_requests")
    if arrival is None:
        raise BenchError(f"--workload {options.workload} has no arrival: closed, or one of {', '.join(GAPS)}, say.")
    if arrival == "trace":
        return content, options.time_scale or 1.0
    if arrival not in ("burst", "closed"):
        return content, _given(options.request_rate, f"--request-rate is missing: requests a second of arrival {arrival}.")
    if arrival == "closed":
        held = "users, each in a conversation" if content.get("turns") else "requests in flight"
        level = _given(options.concurrency, f"--concurrency is missing: {held} of arrival closed.")
        if _given(count, _COUNT_MISSING) != "auto" and level > count:
            raise BenchError(_TOO_MANY.format(level=level, count=count))
        return content, level
    content.pop("num_requests", None)
    if count and options.concurrency and options.concurrency < count and options.workload:
        raise BenchError("--concurrency: a burst sends all of --num-requests at once. Leave one of them out.")
    return content, _given(count or options.concurrency, _COUNT_MISSING)


def _arrival(options: SimpleNamespace) -> str | None:
    """What options say of it; None where `--workload` does. Levels alone say it where no file is given."""
    if options.arrival or options.trace or options.burstiness is not None:
        return options.arrival or ("trace" if options.trace else "gamma")
    if options.workload:
        return None
    if options.request_rate is not None:
        return "poisson"
    return "closed" if options.concurrency and options.concurrency < options.num_requests else "burst"


def _given(value: Any, otherwise: str) -> Any:
    if value is None:
        raise BenchError(otherwise)
    return value


def _contradictions(options: SimpleNamespace) -> Iterator[tuple[bool, str]]:
    """(whether it is so, what to say) of every option that would otherwise be ignored, or is missing."""

    def given(*names: str) -> str:
        return " and ".join(f"--{name}" for name in names if getattr(options, name.replace("-", "_")) is not None)

    opened, replayed, filed = options.request_rate is not None, options.trace is not None, options.workload is not None
    open_only, lengths = given("arrival", "burstiness", "duration"), given("prompt-length", "output-length", "prompts")
    levels = given("concurrency", "request-rate", "trace")
    yield " and " in levels, f"{levels}: each is a load of its own. Leave one of them out."
    yield bool(open_only) and not opened, f"{open_only}: for an open loop only. Add --request-rate, or leave it out."
    replay_only = given("time-scale", "trace-unit")
    yield bool(replay_only) and not (replayed or filed), f"{replay_only}: for a trace only. Add --trace, or leave it out."
    yield replayed and filed, "--trace: --workload FILE says what is sent, a trace too. Leave one of them out."
    yield replayed and bool(given("num-requests")), "--num-requests: a trace sends what its file holds. Leave one of them out."
    yield replayed and bool(lengths), f"{lengths}: a trace has its own lengths. Leave one of them out."
    yield (
        options.burstiness is not None and options.arrival is not None and not GAPS[options.arrival].shaped,
        f"--burstiness shapes gamma gaps, and --arrival is {options.arrival}. Leave one of them out.",
    )
    yield (
        options.arrival is not None and GAPS[options.arrival].shaped and options.burstiness is None,
        f"--arrival {options.arrival} needs --burstiness, the shape of its gaps.",
    )
    yield (
        opened and not filed and (options.num_requests is None) == (options.duration is None),
        "--request-rate needs either --num-requests or --duration.",
    )
    yield not (opened or replayed or filed) and options.num_requests is None, _COUNT_MISSING
    yield (
        options.concurrency is not None and not filed and options.concurrency > (options.num_requests or 0),
        _TOO_MANY.format(level=options.concurrency, count=options.num_requests),
    )


def _at_least(planned: Sequence[PlannedRequest]) -> float:
    """Seconds that a load takes however fast the answers are: moments, and times to think."""
    earliest: list[float] = []
    for request in planned:
        earliest.append(request.due_s or 0.0 if request.after is None else earliest[request.after] + request.think_s)
    return max(earliest)


def run(options: SimpleNamespace) -> None:
    target, interval = _target(options), _scrape_interval(options)
    seed = options.seed or secrets.token_hex(8)
    content, level = _workload(options)
    workload = load_workload(content, source=str(options.workload or "bench workload"))
    if workload.num_requests == "auto":
        raise BenchError("--num-requests or --duration is missing: how much to send.")
    workload.prompts.check(ENDPOINTS[workload.endpoint])
    load = Load(
        workload=workload,
        level=level,
        seed=seed,
        schedule_seed=seed,
        vocabulary=options.vocabulary,
        timeout_s=options.timeout,
        processes=options.processes,
    )
    planned = schedule(workload, level, seed)
    seconds = _at_least(planned)
    output: Path = options.output_dir
    output.mkdir(parents=True, exist_ok=True)
    target = introduced(target, options, workload.endpoint, stream=workload.stream)
    found = find_metrics(target.base_url, options.metrics, target.headers, served=True) if interval else None
    named = "--metrics" if options.metrics else None
    read = found is not None and worth_reading(found, named=named, say=partial(print, file=sys.stderr))
    long = f", over {seconds:.0f} s or more" if seconds >= 1 else ""
    print(f"sending {len(planned)} requests to {target.base_url}{long}", file=sys.stderr, flush=True)
    definition = _definition(options, workload, level, seed)
    header = RunHeader(
        digest=digest([target.base_url, definition]),
        protocol=PROTOCOL,
        # Which metrics a server exposes depends on its version.
        engine_version=found.info.get("version") if found else None,
        commit=commit_of(),
        round=1,
        definition=definition,
    )
    # Aside at first, so that a run that fails leaves what was there before it.
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=output) as aside:
        with progress(f"{len(planned)} requests", seconds or None):
            recording = record_run(
                target,
                load,
                Path(aside),
                header=header,
                scrape_interval_s=interval if read or options.scrape_also else None,
                metrics=found.address if found and read else "none",
                metrics_headers=found.headers if found else {},
                endpoints=options.scrape_also,
                say=lambda text: print(text, file=sys.stderr),
            )
        _put_in_place(Path(aside), output)
    outcomes: Counter[str] = Counter(record.outcome for record in recording.requests)
    if options.json:
        print_json(
            {
                "output_dir": str(output),
                "requests": len(recording.requests),
                "outcomes": outcomes,
                "duration_s": round(recording.duration_s, 3),
                "tokens_per_s": round(recording.tokens_per_s, 1),
            }
        )
    else:
        _print(output, recording, outcomes, ENDPOINTS[workload.endpoint].work)
    if recording.failed:
        sys.exit(1)  # what came is kept; but a script must not take it for a measurement without a look


def _target(options: SimpleNamespace) -> Target:
    """The server, once every number among the options can be used.

    Raises:
        BenchError: one cannot.
    """
    for key in _NUMBERS:
        value = getattr(options, key)
        if value is not None and not 0 < value < math.inf:
            raise BenchError(f"--{key.replace('_', '-')} is {value}; it must be a number above 0.")
    if options.vocabulary < 16:
        raise BenchError(f"--vocabulary is {options.vocabulary}; prompts need 16 ids or more.")
    return target_of(options)


def _scrape_interval(options: SimpleNamespace) -> float | None:
    """Seconds between scrapes; None where nothing is scraped.

    Raises:
        BenchError: an option says how to scrape, but --scrape is missing; or there is no such GPU.
    """
    for option in ("scrape-also", "scrape-interval", "metrics"):
        given = getattr(options, option.replace("-", "_"))
        if given and not options.scrape:
            raise BenchError(f"--{option}: without --scrape nothing is scraped. Add it, or leave this out.")
    refuse_wrong_address(options.metrics)
    refuse_missing_gpus(options.scrape_also, option="--scrape-also")
    return options.scrape_interval or _SCRAPE_INTERVAL_S if options.scrape else None


def _definition(options: SimpleNamespace, workload: Workload, level: float, seed: str) -> dict[str, Any]:
    """What decides the run, as its record keeps it."""
    plain = workload.model_dump(mode="json", exclude_defaults=True)
    return {
        "deployment": options.model,
        "run": options.output_dir.resolve().name,
        # Alike in all but their load, runs stand on one curve; otherwise they must not.
        "workload": f"{load_label(workload)}_{digest({k: v for k, v in plain.items() if k not in _LOAD})[:4]}",
        **plain,
        **({"files": file_digests(workload)} if workload.files else {}),
        "axis": workload.axis,
        "level": level,
        "repeat": 1,
        "seed": seed,
    }


def _put_in_place(aside: Path, output: Path) -> None:
    """Replace the run in `output`, if there is one, with that in `aside`."""
    if (output / "run.json").exists():
        print(f"{output}: replaces the run that was there", file=sys.stderr)
    for name in _OF_A_RUN:
        (output / name).unlink(missing_ok=True)
    for file in aside.iterdir():
        file.rename(output / file.name)


def _print(folder: Path, recording: Recording, outcomes: Mapping[str, int], work: Work) -> None:
    print(f"{folder}/requests.jsonl: {len(recording.requests)} requests in {recording.duration_s:.2f} s, "
          f"{recording.tokens_per_s:.0f} {work.unit}/s; " + ", ".join(f"{n} {o}" for o, n in outcomes.items())
          + disturbed(recording.other_share, Thresholds().other_share, recording.busy_share))  # fmt: skip
    errors = {record.error for record in recording.requests if record.error}
    for words in sorted(errors)[:3]:
        print(f"  the server answered: {words}")

"""`bench workload`: send exactly specified load to any OpenAI-compatible server."""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from bench.cli import defaults
from bench.cli.checks import THRESHOLDS, keep_thresholds, refuse_missing_gpus, refuse_wrong_address, thresholds_of
from bench.cli.entry import command
from bench.cli.options import LOAD, Json, ThresholdValues, at_least_one, flag, option, positive
from bench.cli.output import print_json, progress
from bench.cli.sending import Sending
from bench.endpoints import ENDPOINTS
from bench.errors import BenchError
from bench.work import Work

if TYPE_CHECKING:
    from bench.measure.recording import Recording
    from bench.study import Workload as Sent

_METRICS = "Metrics of the server"
_SCRAPE_INTERVAL_S = 0.2
_COUNT_MISSING = "--num-requests is missing: how many requests to send."
_TOO_MANY = "{held} is {level}, and --num-requests {count}: so many would never be in flight. Raise --num-requests."
_LOAD = ("num_requests", "duration_s")  # how much of a workload is sent, not what

# What belongs to one run in its folder: raw records, and what `bench parse` makes of them.
_OF_A_RUN = (
    *("run.json", "requests.jsonl", "telemetry.jsonl.gz"),
    *("requests.parquet", "telemetry.parquet", "metrics.csv", "summary.json", THRESHOLDS),
)


@command(
    "bench workload --base-url http://127.0.0.1:8000 --model NAME --output-dir runs/one --num-requests 50 --prompt-length 128",
    "bench workload --base-url http://127.0.0.1:8000 --model NAME --output-dir runs/c8 --num-requests 200 --concurrency 8 "
    "--prompt-length 1000 --output-length 64 --scrape",
    "bench workload --base-url http://127.0.0.1:8000 --model NAME --output-dir runs/chat --archetype chat --request-rate 2 "
    "--duration 60",
    "bench workload --base-url http://127.0.0.1:8000 --model NAME --output-dir runs/own --prompts my/chats.jsonl --endpoint chat "
    "--natural --num-requests 200 --concurrency 8",
)
@dataclass(frozen=True, kw_only=True)
class Workload(Sending):
    """Requests have exact prompt lengths (token ids to /v1/completions, unique each time) and exact output lengths (ignore_eos), or
    prompts of your own (--prompts) and answers that end by themselves (--natural). Writes requests.jsonl, one line a request, and
    run.json; `bench parse` and `bench figures` go on from the folder. Without --concurrency, --request-rate or --trace, all requests
    leave at once. The API key is read from OPENAI_API_KEY.
    """

    output_dir: Annotated[Path, option("DIR", "Folder of the run; created if missing.")]
    num_requests: Annotated[
        int | None, option("N", "Requests to send; with turns, conversations.", LOAD, parser=at_least_one)
    ] = None
    concurrency: Annotated[int | None, option("N", "Hold N in flight until all are done.", LOAD, parser=at_least_one)] = None
    users: Annotated[
        int | None,
        option("N", "With turns: hold N users, each in a conversation, until all are done.", LOAD, parser=at_least_one),
    ] = None
    request_rate: Annotated[
        float | None,
        option("R", "Open loop: R requests a second, however slowly answers come.", LOAD, parser=positive),
    ] = None
    duration: Annotated[
        float | None,
        option("SECONDS", "Open loop: how long to send, instead of --num-requests.", LOAD, parser=positive),
    ] = None
    trace: Annotated[
        str | None,
        option(
            "FILE",
            "Replay a CSV, JSONL or Parquet file: arrival_s, prompt_tokens and output_tokens, or a published trace.",
            LOAD,
        ),
    ] = None
    trace_unit: Annotated[
        defaults.TraceUnit | None,
        option(None, "Unit of a trace's arrivals, where its publishers differ.", LOAD, default="its publisher's"),
    ] = None
    trace_block: Annotated[
        int | None,
        option("N", "Tokens of a block of a trace's hash_ids; 0: prompts share nothing.", LOAD, default="its publisher's"),
    ] = None
    time_scale: Annotated[float | None, option("X", "Replay a trace X times as fast.", LOAD, parser=positive, default="1")] = (
        None
    )
    seed: Annotated[
        str | None,
        option("TEXT", "Seed of prompts, gaps and lengths.", LOAD, default="a new one each time, so that no cache can help"),
    ] = None
    keep_answers: Annotated[
        bool,
        flag(
            "--keep-answers",
            "Keep the text of each answer in its record. Prompts of --prompts are sent as they are then, so that two servers' "
            "answers compare; a prefix cache may know them.",
        ),
    ] = False
    scrape: Annotated[bool, flag("--scrape", "Scrape URL/metrics meanwhile.", _METRICS)] = False
    metrics: Annotated[str | None, option("URL", "With --scrape, where the server's metrics are, if elsewhere.", _METRICS)] = (
        None
    )
    scrape_interval: Annotated[
        float | None, option("SECONDS", "Time between scrapes.", _METRICS, parser=positive, default=f"{_SCRAPE_INTERVAL_S}")
    ] = None
    scrape_also: Annotated[
        list[str] | None,
        option(
            "URL",
            "With --scrape, a further endpoint, or nvml: for this machine's GPUs (nvml:0,1 for two of them). Repeatable.",
            _METRICS,
        ),
    ] = None
    processes: Annotated[
        int | None, option("N", "Load processes.", parser=at_least_one, default="as many as the streams need")
    ] = None
    threshold: ThresholdValues = None
    json: Json = False

    def run(self) -> None:
        """Send the load, and print what came of it."""
        from bench.commit import commit_of
        from bench.errors import count_text
        from bench.load.client import Load
        from bench.load.schedule import at_least_s, schedule
        from bench.measure.exposition import find_metrics, worth_reading
        from bench.measure.recording import record_run
        from bench.records.run import RunHeader
        from bench.study.specs import PROTOCOL, digest

        target, interval, thresholds = self.target(), self._scrape_interval(), thresholds_of(self.threshold)
        seed = self.seed or secrets.token_hex(8)
        content, level = self._workload()
        workload = self.checked(content).with_block()
        if workload.num_requests == "auto":
            raise BenchError("--num-requests or --duration is missing: how much to send.")
        if self.users and not workload.turns:
            raise BenchError(
                "--users hold conversations, and this load has none. Give --concurrency, or turns in --workload FILE."
            )
        if why := workload.excess(level):
            raise BenchError(f"{why[0].upper()}{why[1:]}")
        load = Load(
            workload=workload,
            level=level,
            seed=seed,
            schedule_seed=seed,
            vocabulary=self.vocabulary,
            timeout_s=self.timeout,
            processes=self.processes,
        )
        planned = schedule(workload, level, seed)
        seconds = at_least_s(planned)
        output = self.output_dir
        output.mkdir(parents=True, exist_ok=True)
        target = self.introduced(target, workload)
        found = find_metrics(target.base_url, self.metrics, target.headers, served=True) if interval else None
        named = "--metrics" if self.metrics else None
        read = found is not None and worth_reading(found, named=named, say=partial(print, file=sys.stderr))
        long = f", over {seconds:.0f} s or more" if seconds >= 1 else ""
        drawn = "" if self.seed else f"; --seed {seed} would draw the same"
        print(f"sending {count_text(len(planned), 'request')} to {target.base_url}{long}{drawn}", file=sys.stderr, flush=True)
        definition = self._definition(workload, level, seed)
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
            with progress(count_text(len(planned), "request"), seconds or None):
                recording = record_run(
                    target,
                    load,
                    Path(aside),
                    header=header,
                    scrape_interval_s=interval if read or self.scrape_also else None,
                    metrics=found.address if found and read else "none",
                    metrics_headers=found.headers if found else {},
                    endpoints=self.scrape_also or [],
                    say=lambda text: print(text, file=sys.stderr),
                )
            keep_thresholds(self.threshold, Path(aside))
            _put_in_place(Path(aside), output)
        outcomes: Counter[str] = Counter(record.outcome for record in recording.requests)
        if self.json:
            print_json(
                {
                    "output_dir": str(output),
                    "requests": len(recording.requests),
                    "outcomes": outcomes,
                    "duration_s": round(recording.duration_s, 3),
                    "tokens_per_s": None if recording.tokens_per_s is None else round(recording.tokens_per_s, 1),
                }
            )
        else:
            _print(output, recording, outcomes, ENDPOINTS[workload.endpoint].work, thresholds.other_share)
        if recording.failed:
            sys.exit(1)  # what came is kept; but a script must not take it for a measurement without a look

    @property
    def _held(self) -> str:
        """The option that says how much is held in flight."""
        return "--users" if self.users else "--concurrency"

    def _workload(self) -> tuple[dict[str, Any], float]:
        """The workload that the options and `--workload` describe, as a configuration would say it, and its level.

        Raises:
            BenchError: options contradict each other, or one is missing.
        """
        from bench.study.arrivals import GAPS

        for wrong, message in self._contradictions():
            if wrong:
                raise BenchError(message)
        content = self.content(
            self._arrival(),
            trace=self.trace,
            trace_unit=self.trace_unit,
            trace_block=self.trace_block,
            num_requests=self.num_requests,
            duration_s=self.duration,
            keep_answers=self.keep_answers or None,
        )
        if self.keep_answers and self.prompts:
            content["cache"] = "as_is"
        for given, other in (("num_requests", "duration_s"), ("duration_s", "num_requests")):
            if getattr(self, given.removesuffix("_s")) is not None:
                content.pop(other, None)  # the file's
        held = self.users or self.concurrency
        arrival, count = content.get("arrival"), content.get("num_requests")
        if arrival is None:
            raise BenchError(f"--workload {self.workload} has no arrival: closed, or one of {', '.join(GAPS)}, say.")
        if arrival == "trace":
            return content, self.time_scale or 1.0
        if arrival in GAPS:
            return content, _given(self.request_rate, f"--request-rate is missing: requests a second of arrival {arrival}.")
        if arrival == "closed":
            what = "users, each in a conversation" if content.get("turns") else "requests in flight"
            level = _given(held, f"--concurrency is missing: {what} of arrival closed.")
            if _given(count, _COUNT_MISSING) != "auto" and level > count:
                raise BenchError(_TOO_MANY.format(held=self._held, level=level, count=count))
            return content, level
        if arrival != "burst":
            known = ", ".join(("burst", "closed", *GAPS, "trace"))
            raise BenchError(f"--workload {self.workload} has arrival {arrival!r}, which is not sent here. Known: {known}.")
        content.pop("num_requests", None)
        if count and held and held < count and self.workload:
            raise BenchError(f"{self._held}: a burst sends all of --num-requests at once. Leave one of them out.")
        return content, _given(count or held, _COUNT_MISSING)

    def _arrival(self) -> str | None:
        """What levels say of it; None where `--workload` does."""
        if self.trace:
            return "trace"
        if self.workload:
            return None
        if self.request_rate is not None:
            return "poisson"
        held = self.users or self.concurrency
        return "closed" if held and held < (self.num_requests or 0) else "burst"

    def _contradictions(self) -> Iterator[tuple[bool, str]]:
        """(whether it is so, what to say) of every option that would otherwise be ignored, or is missing."""

        def given(*names: str) -> str:
            return " and ".join(f"--{name}" for name in names if getattr(self, name.replace("-", "_")) is not None)

        held = self.users or self.concurrency
        opened, replayed, filed = self.request_rate is not None, self.trace is not None, self.workload is not None
        open_only, lengths = given("arrival", "burstiness", "duration"), given("prompt-length", "output-length", "prompts")
        levels = given("concurrency", "users", "request-rate", "trace")
        yield " and " in levels, f"{levels}: each is a load of its own. Leave one of them out."
        yield bool(open_only) and not opened, f"{open_only}: for an open loop only. Add --request-rate, or leave it out."
        replay_only = given("time-scale", "trace-unit", "trace-block")
        yield bool(replay_only) and not (replayed or filed), f"{replay_only}: for a trace only. Add --trace, or leave it out."
        yield replayed and filed, "--trace: --workload FILE says what is sent, a trace too. Leave one of them out."
        yield (
            replayed and bool(given("num-requests")),
            "--num-requests: a trace sends what its file holds. Leave one of them out.",
        )
        yield replayed and bool(lengths), f"{lengths}: a trace has its own lengths. Leave one of them out."
        yield (
            opened and not filed and (self.num_requests is None) == (self.duration is None),
            "--request-rate needs either --num-requests or --duration.",
        )
        yield not (opened or replayed or filed) and self.num_requests is None, _COUNT_MISSING
        yield (
            held is not None and not filed and held > (self.num_requests or 0),
            _TOO_MANY.format(held=self._held, level=held, count=self.num_requests),
        )

    def _scrape_interval(self) -> float | None:
        """Seconds between scrapes; None where nothing is scraped.

        Raises:
            BenchError: an option says how to scrape, but --scrape is missing; or there is no such GPU.
        """
        for name in ("scrape-also", "scrape-interval", "metrics"):
            if getattr(self, name.replace("-", "_")) and not self.scrape:
                raise BenchError(f"--{name}: without --scrape nothing is scraped. Add it, or leave this out.")
        refuse_wrong_address(self.metrics)
        refuse_missing_gpus(self.scrape_also or [], option="--scrape-also")
        return self.scrape_interval or _SCRAPE_INTERVAL_S if self.scrape else None

    def _definition(self, workload: Sent, level: float, seed: str) -> dict[str, Any]:
        """What decides the run, as its record keeps it."""
        from bench.study.plan import file_digests
        from bench.study.specs import digest, load_label

        plain = workload.model_dump(mode="json", exclude_defaults=True)
        return {
            "deployment": self.model,
            "run": self.output_dir.resolve().name,
            # Alike in all but their load, runs stand on one curve; otherwise they must not.
            "workload": f"{load_label(workload)}_{digest({k: v for k, v in plain.items() if k not in _LOAD})[:4]}",
            **plain,
            **({"files": file_digests(workload)} if workload.files else {}),
            "axis": workload.axis,
            "level": level,
            "repeat": 1,
            "seed": seed,
        }


def _given(value: Any, otherwise: str) -> Any:
    if value is None:
        raise BenchError(otherwise)
    return value


def _put_in_place(aside: Path, output: Path) -> None:
    """Replace the run in `output`, if there is one, with that in `aside`."""
    if (output / "run.json").exists():
        print(f"{output}: replaces the run that was there", file=sys.stderr)
    for name in _OF_A_RUN:
        (output / name).unlink(missing_ok=True)
    for file in aside.iterdir():
        file.rename(output / file.name)


def _print(folder: Path, recording: Recording, outcomes: Mapping[str, int], work: Work, other_share: float) -> None:
    from bench.errors import count_text, throughput_text
    from bench.measure.rounds import disturbed
    from bench.words.trust import accept_option

    print(f"{folder}/requests.jsonl: {count_text(len(recording.requests), 'request')} in {recording.duration_s:.2f} s, "
          f"{throughput_text(recording.tokens_per_s, work.unit)}; " + ", ".join(f"{n} {o}" for o, n in outcomes.items())
          + disturbed(recording.other_share, other_share, recording.busy_share))  # fmt: skip
    if allowed := accept_option(recording.other_share, other_share):
        print(f"  {allowed}")
    # Of other failures the words are Saturate's, about what it saw.
    errors = {
        f"the server answered: {record.error}" if record.outcome in ("http_error", "stream_error") else record.error
        for record in recording.requests
        if record.error
    }
    for words in sorted(errors)[:3]:
        print(f"  {words}")

"""`bench workload`: send exactly specified load to any OpenAI-compatible server."""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from bench.cli.entry import command
from bench.cli.options import (
    LOAD,
    Json,
    OutputDir,
    at_least_one,
    flag,
    option,
    positive,
    refuse_missing_gpus,
    refuse_wrong_address,
)
from bench.cli.output import print_json, progress
from bench.cli.sending import Sending, above, whole
from bench.errors import BenchError, shown
from bench.workloads.endpoints import ENDPOINTS
from bench.workloads.endpoints.kind import Work

if TYPE_CHECKING:
    from bench.measure.recording import Recording
    from bench.workloads.workload import Workload as Sent

_METRICS = "Metrics of the server"
_SCRAPE_INTERVAL_S = 0.2
_LOAD = ("num_requests", "duration_s")  # how much of a workload is sent, not what

# What belongs to one run in its folder: raw records, and what `bench parse` makes of them.
_OF_A_RUN = (
    *("run.json", "requests.jsonl", "telemetry.jsonl.gz"),
    *("requests.parquet", "telemetry.parquet", "metrics.csv", "summary.json"),
)


@command(
    "bench workload --base-url http://127.0.0.1:8000 --model NAME --output-dir runs/one --num-requests 50 --prompt-length 128",
    "bench workload --base-url http://127.0.0.1:8000 --model NAME --output-dir runs/c8 --num-requests 200 --concurrency 8 "
    "--prompt-length 1000 --output-length 64 --scrape",
    "bench workload --base-url http://127.0.0.1:8000 --model NAME --output-dir runs/chat --set archetype=chat --request-rate 2 "
    "--duration 60",
    "bench workload --base-url http://127.0.0.1:8000 --model NAME --output-dir runs/own --prompts my/chats.jsonl --num-requests 200 "
    "--concurrency 8 --set 'output_tokens={distribution: natural, max: 400}'",
    after="Exit status: 0 if every request was answered; 1 if some failed; 2 for what you can fix.",
)
@dataclass(frozen=True, kw_only=True)
class Workload(Sending):
    """Requests have exact prompt lengths (token ids to /v1/completions, unique each time) and exact output lengths (ignore_eos; 128
    tokens where nothing says them), or prompts of your own (--prompts). Writes requests.jsonl, one line a request, and run.json;
    `bench parse` and `bench figures` go on from the folder. Without --concurrency, --request-rate or a trace, all requests leave at
    once. The API key is read from OPENAI_API_KEY.

    Of --set, beside a workload's keys: time_scale (with trace=FILE, X times as fast), seed (of prompts, gaps and lengths; a new one
    each time, so that no cache can help), processes (load processes), vocabulary (1000: prompt ids are below it), timeout_s (600),
    omit (what to leave out of requests).
    """

    settings: ClassVar = {
        **Sending.settings,
        "time_scale": (None, above(0)),
        "seed": (None, str),
        "processes": (None, whole(1)),
    }
    output_dir: OutputDir
    num_requests: Annotated[
        int | None, option("N", "Requests to send; with turns, conversations.", LOAD, parser=at_least_one)
    ] = None
    concurrency: Annotated[
        int | None, option("N", "Hold N requests, or users with turns, in flight.", LOAD, parser=at_least_one)
    ] = None
    request_rate: Annotated[
        float | None, option("R", "Open loop: R requests a second, however slowly answers come.", LOAD, parser=positive)
    ] = None
    duration: Annotated[
        float | None, option("SECONDS", "Open loop: how long to send, instead of --num-requests.", LOAD, parser=positive)
    ] = None
    scrape: Annotated[bool, flag("--scrape", "Scrape the server's metrics meanwhile.", _METRICS)] = False
    scrape_also: Annotated[
        list[str] | None,
        option(
            "URL",
            "With --scrape, a further endpoint, or nvml: for this machine's GPUs (nvml:0,1 for two of them). Repeatable.",
            _METRICS,
        ),
    ] = None
    json: Json = False

    def run(self) -> None:
        """Send the load, and print what came of it."""
        from bench.errors import count_text, writing_to
        from bench.load.client import Load
        from bench.measure.exposition import find_metrics, worth_reading
        from bench.measure.recording import record_run
        from bench.runs.files import digest
        from bench.runs.run import RunHeader
        from bench.shipped import commit_of
        from bench.study.specs import PROTOCOL
        from bench.workloads.schedule import at_least_s, schedule

        target, interval = self.target(), self._scrape_interval()
        given = self.setting("seed")
        seed = given or secrets.token_hex(8)
        content, level = self._workload()
        workload = self.checked(content).with_block()
        if workload.num_requests == "auto":
            raise BenchError("--num-requests or --duration is missing: how much to send.")
        if why := workload.excess(level):
            raise BenchError(f"{why[0].upper()}{why[1:]}")
        load = Load(
            workload=workload,
            level=level,
            seed=seed,
            schedule_seed=seed,
            vocabulary=self.setting("vocabulary"),
            timeout_s=self.setting("timeout_s"),
            processes=self.setting("processes"),
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
        drawn = "" if given else f"; --set seed={seed} would draw the same"
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
        with writing_to(output), tempfile.TemporaryDirectory(prefix=".unfinished-", dir=output) as aside:
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
            _print(output, recording, outcomes, ENDPOINTS[workload.endpoint].work)
        if recording.failed:
            sys.exit(1)  # what came is kept; but a script must not take it for a measurement without a look

    def _workload(self) -> tuple[dict[str, Any], float]:
        """The workload that the options and `--workload` describe, as a configuration would say it, and its level."""
        from bench.workloads.gaps import GAPS

        given = {"concurrency": self.concurrency, "request_rate": self.request_rate, "time_scale": self.setting("time_scale")}
        traced = any(pair.startswith("trace=") for pair in self.set or [])
        content = self.content(
            "trace" if traced else "poisson" if self.request_rate is not None and not self.workload else None,
            num_requests=self.num_requests,
            duration_s=self.duration,
        )
        if self.num_requests is None or self.duration is None:  # one of them takes the place of the file's other
            for mine, other in ((self.num_requests, "duration_s"), (self.duration, "num_requests")):
                if mine is not None:
                    content.pop(other, None)
        count, held = content.get("num_requests"), self.concurrency
        if not self.workload:
            content.setdefault("arrival", "closed" if held and isinstance(count, int) and held < count else "burst")
        arrival = content.get("arrival")
        axes = {"burst": "concurrency", "closed": "concurrency", **dict.fromkeys(GAPS, "request_rate"), "trace": "time_scale"}
        if not isinstance(arrival, str) or arrival not in axes:
            raise BenchError(f"arrival {shown(arrival)} cannot be sent here. Known: {', '.join(axes)}.")
        axis = axes[arrival]
        if strange := next((name for name, value in given.items() if value is not None and name != axis), None):
            raise BenchError(f"--{strange.replace('_', '-')}: arrival {arrival} has {axis} as its load. Leave it out.")
        level = given[axis]
        if arrival == "burst":  # as many as the level, which a file may leave to --concurrency
            content.pop("num_requests", None)
            level = count if isinstance(count, int) else level if self.workload else None
        if level is None and arrival != "trace":
            name = "num-requests" if arrival == "burst" else axis.replace("_", "-")
            raise BenchError(f"--{name} is missing: the load of arrival {arrival}.")
        if held and ((arrival == "burst" and held != level) or (isinstance(count, int) and held > count)):
            raise BenchError(
                f"--concurrency is {held}, and --num-requests {count}: that many are not in flight. Leave one of them out."
            )
        return content, level or 1.0

    def _scrape_interval(self) -> float | None:
        """Seconds between scrapes; None where nothing is scraped."""
        for name in ("scrape-also", "metrics"):
            if getattr(self, name.replace("-", "_")) and not self.scrape:
                raise BenchError(f"--{name} needs --scrape. Add it, or leave this out.")
        refuse_wrong_address(self.metrics)
        refuse_missing_gpus(self.scrape_also or [], option="--scrape-also")
        return _SCRAPE_INTERVAL_S if self.scrape else None

    def _definition(self, workload: Sent, level: float, seed: str) -> dict[str, Any]:
        """What decides the run, as its record keeps it."""
        from bench.runs.files import digest
        from bench.study.plan import file_digests
        from bench.study.specs import load_label

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


def _put_in_place(aside: Path, output: Path) -> None:
    if (output / "run.json").exists():
        print(f"{output}: replaces the run that was there", file=sys.stderr)
    for name in _OF_A_RUN:
        (output / name).unlink(missing_ok=True)
    for file in aside.iterdir():
        file.rename(output / file.name)


def _print(folder: Path, recording: Recording, outcomes: Mapping[str, int], work: Work) -> None:
    from bench.errors import count_text, throughput_text
    from bench.measure.rounds import disturbed
    from bench.study.config import Thresholds

    print(f"{folder}/requests.jsonl: {count_text(len(recording.requests), 'request')} in {recording.duration_s:.2f} s, "
          f"{throughput_text(recording.tokens_per_s, work.unit)}; " + ", ".join(f"{n} {o}" for o, n in outcomes.items())
          + disturbed(recording.other_share, Thresholds().other_share))  # fmt: skip
    # Of other failures the words are Saturate's, about what it saw.
    errors = {
        f"the server answered: {record.error}" if record.outcome in ("http_error", "stream_error") else record.error
        for record in recording.requests
        if record.error
    }
    for words in sorted(errors)[:3]:
        print(f"  {words}")

"""`bench workload`: send exactly specified load to any OpenAI-compatible server."""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BeforeValidator, Field

from bench.axes import AXES
from bench.cli.entry import command
from bench.cli.options import LOAD, Json, OutputDir, at_least_one, flag, option, positive, refuse_missing_gpus
from bench.cli.output import note, print_json, progress
from bench.cli.sending import SCRAPE_INTERVAL_S, Above0, Further, Sending
from bench.errors import BenchError, count_text
from bench.workloads.endpoints import ENDPOINTS

if TYPE_CHECKING:
    from bench.measure.recording import Recording
    from bench.workloads.workload import Workload as Sent

_METRICS = "Metrics of the server"
_LOAD = ("num_requests", "duration_s")  # how much of a workload is sent, not what

# What belongs to one run in its folder: raw records, and what `bench parse` makes of them.
_OF_A_RUN = (
    *("run.json", "requests.jsonl", "telemetry.jsonl.gz"),
    *("requests.parquet", "telemetry.parquet", "metrics.csv", "summary.json"),
)


class FurtherOfWorkload(Further):
    """What `--set` says of a load."""

    time_scale: Above0 | None = None
    seed: Annotated[str, BeforeValidator(str)] | None = None
    processes: Annotated[int, Field(ge=1)] | None = None


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

    @cached_property
    def further(self) -> FurtherOfWorkload:
        """What `--set` says beside the keys of a workload. Raises: BenchError: a key or value is refused."""
        return self.of_set(FurtherOfWorkload)

    def run(self) -> None:
        """Send the load, and print what came of it."""
        from bench.errors import writing_to
        from bench.load.client import Load
        from bench.measure.recording import record_run
        from bench.runs.files import digest
        from bench.runs.run import RunHeader
        from bench.shipped import commit_of
        from bench.study.specs import PROTOCOL
        from bench.workloads.schedule import at_least_s, schedule

        target = self.target()
        self._refuse_unscraped()
        seed = self.further.seed or secrets.token_hex(8)
        workload, level = self.asked()
        workload = workload.with_block()
        if workload.num_requests == "auto":
            raise BenchError("--num-requests or --duration is missing: how much to send.")
        if why := workload.excess(level):
            raise BenchError(f"{why[0].upper()}{why[1:]}")
        load = Load(
            workload=workload,
            level=level,
            seed=seed,
            schedule_seed=seed,
            vocabulary=self.further.vocabulary,
            timeout_s=self.further.timeout_s,
            processes=self.further.processes,
        )
        planned = schedule(workload, level, seed)
        seconds, requests = at_least_s(planned), count_text(len(planned), "request")
        output = self.output_dir
        output.mkdir(parents=True, exist_ok=True)
        target = self.introduced(target, workload)
        info, scraping = self.scraping(target) if self.scrape else ({}, {"scrape_interval_s": None})
        if self.scrape_also:
            scraping = {"metrics": "none", **scraping, "scrape_interval_s": SCRAPE_INTERVAL_S, "endpoints": self.scrape_also}
        long = f", over {seconds:.0f} s or more" if seconds >= 1 else ""
        drawn = "" if self.further.seed else f"; --set seed={seed} would draw the same"
        note(f"sending {requests} to {target.base_url}{long}{drawn}")
        definition = self._definition(workload, level, seed)
        header = RunHeader(
            digest=digest([target.base_url, definition]),
            protocol=PROTOCOL,
            engine_version=info.get("version"),  # on which depends what metrics a server exposes
            commit=commit_of(),
            round=1,
            definition=definition,
        )
        # Aside at first, so that a run that fails leaves what was there before it.
        with writing_to(output), tempfile.TemporaryDirectory(prefix=".unfinished-", dir=output) as aside:
            with progress(requests, seconds or None):
                recording = record_run(target, load, Path(aside), header=header, **{"say": note, **scraping})
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
            _print(output, recording, outcomes, ENDPOINTS[workload.endpoint].work.unit)
        if recording.failed:
            sys.exit(1)  # what came is kept; but a script must not take it for a measurement without a look

    def asked(self) -> tuple[Sent, float]:
        """The workload that the options and `--workload` describe, and its level."""
        traced = any(pair.startswith("trace=") for pair in self.set or [])
        content = self.content(
            "trace" if traced else "poisson" if self.request_rate is not None and not self.workload else None,
            num_requests=self.num_requests,
            duration_s=self.duration,
        )
        if (self.num_requests is None) != (self.duration is None):  # it takes the place of the file's other
            content.pop("duration_s" if self.duration is None else "num_requests", None)
        count, held = content.get("num_requests"), self.concurrency
        if not self.workload:
            content.setdefault("arrival", "closed" if held and isinstance(count, int) and held < count else "burst")
        burst = content.get("arrival") == "burst"
        if burst:  # as many as the level, which a file may leave to --concurrency
            content.pop("num_requests", None)
        workload = self.checked(content)
        given = {"concurrency": held, "request_rate": self.request_rate, "time_scale": self.further.time_scale}
        axis = "concurrency" if AXES[workload.axis].held else workload.axis
        if strange := next((name for name, value in given.items() if value is not None and name != axis), None):
            raise BenchError(f"--{strange.replace('_', '-')}: arrival {workload.arrival} has {axis} as its load. Leave it out.")
        level = given[axis]
        if burst:
            level = count if isinstance(count, int) else level if self.workload else None
        if level is None and not workload.trace:
            name = "num-requests" if burst else axis.replace("_", "-")
            raise BenchError(f"--{name} is missing: the load of arrival {workload.arrival}.")
        if held and ((burst and held != level) or (isinstance(count, int) and held > count)):
            raise BenchError(
                f"--concurrency is {held}, and --num-requests {count}: that many are not in flight. Leave one of them out."
            )
        return workload, level or 1.0

    def _refuse_unscraped(self) -> None:
        for name, given in (("--scrape-also", self.scrape_also), ("--metrics", self.metrics)):
            if given and not self.scrape:
                raise BenchError(f"{name} needs --scrape. Add it, or leave this out.")
        refuse_missing_gpus(self.scrape_also or [], option="--scrape-also")

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
        note(f"{output}: replaces the run that was there")
    for name in _OF_A_RUN:
        (output / name).unlink(missing_ok=True)
    for file in aside.iterdir():
        file.rename(output / file.name)


def _print(folder: Path, recording: Recording, outcomes: Mapping[str, int], unit: str) -> None:
    from bench.errors import throughput_text
    from bench.measure.rounds import disturbed
    from bench.study.config import Thresholds

    print(f"{folder}/requests.jsonl: {count_text(len(recording.requests), 'request')} in {recording.duration_s:.2f} s, "
          f"{throughput_text(recording.tokens_per_s, unit)}; " + ", ".join(f"{n} {o}" for o, n in outcomes.items())
          + disturbed(recording.other_share, Thresholds().other_share))  # fmt: skip
    # Of other failures the words are Saturate's, about what it saw.
    errors = {
        f"the server answered: {record.error}" if record.outcome in ("http_error", "stream_error") else record.error
        for record in recording.requests
        if record.error
    }
    for words in sorted(errors)[:3]:
        print(f"  {words}")

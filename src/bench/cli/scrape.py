"""`bench scrape`: keep what a Prometheus endpoint exposes, on an exact schedule."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import requests

from bench.cli.common import headers_of, refuse_missing_gpus
from bench.cli.output import print_json
from bench.errors import BenchError, shown
from bench.http import get, leads_away, problem
from bench.parse.exposition import ExpositionError, reference_samples
from bench.records.environment import without_user
from bench.telemetry import is_nvml
from bench.telemetry.scraper import scrape

__all__ = ["run"]


def _fault(url: str, headers: Mapping[str, str]) -> str | None:
    """What is wrong with an endpoint's answer; None where it is an exposition, or where there is no answer yet."""

    try:
        answer = get(url, headers=headers)
        answer.raise_for_status()
        if target := leads_away(answer):
            return f"it answers {answer.status_code} and leads to another server, {shown(without_user(target), 200)}"
        return None if reference_samples(answer.text) else "there is no sample in it"
    except requests.HTTPError as error:
        return str(error)
    except requests.exceptions.SSLError as error:
        return problem(error)
    except requests.RequestException:
        return None
    except ExpositionError as error:
        return str(error)


def run(
    urls: Sequence[str], output_dir: Path, interval: float, duration: float | None, headers: Sequence[str], *, json: bool
) -> None:
    refuse_missing_gpus(urls, option="--url")
    own = headers_of(headers)
    for url in dict.fromkeys(urls):
        if not is_nvml(url) and (fault := _fault(url, own)):
            print(f"warning: {url} gives no Prometheus exposition: {fault}", file=sys.stderr)
    output_dir.mkdir(parents=True, exist_ok=True)
    output = output_dir / "telemetry.jsonl.gz"
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    begin = time.monotonic()
    if duration is not None:
        timer = threading.Timer(duration, ended.set)
        timer.daemon = True
        timer.start()

    def ready() -> None:
        print(f"scraping every {interval:g} s into {output}", file=sys.stderr)

    kept = scrape(urls, interval, output, ended=ended, ready=ready, headers=dict.fromkeys(urls, own))
    if not kept:
        raise BenchError(f"{', '.join(urls)}: no scrape succeeded; the errors are in {output}.")
    if json:
        print_json({"file": str(output), "scrapes": kept, "duration_s": round(time.monotonic() - begin, 3)})
    else:
        print(f"{output}: {kept} scrapes in {time.monotonic() - begin:.1f} s")

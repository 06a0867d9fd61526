"""`bench scrape`: keep what a Prometheus endpoint exposes, on an exact schedule."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from pathlib import Path

from bench.cli.common import Commands, print_json, refuse_missing_gpus
from bench.errors import BenchError

__all__ = ["add"]


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "scrape",
        help="scrape Prometheus endpoints into a file",
        description="Scrape endpoints on an absolute schedule and keep the raw text in DIR/telemetry.jsonl.gz, with the time of "
        "sending and receiving each. Ends after --duration, on Ctrl-C or SIGTERM.",
    )
    parser.add_argument(
        "--url",
        action="append",
        required=True,
        metavar="URL",
        help="endpoint, such as http://127.0.0.1:8000/metrics, or nvml: for this machine's GPUs (nvml:0,1 for two of them); "
        "repeatable",
    )
    parser.add_argument(
        "--interval", type=float, default=0.2, metavar="S", help="seconds between scrapes (default: %(default)s)"
    )
    parser.add_argument("--duration", type=float, metavar="S", help="seconds after which to end (default: until stopped)")
    parser.add_argument("--output-dir", type=Path, required=True, metavar="DIR", help="folder; made where missing")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=_run)


def _fault(url: str) -> str | None:
    """What is wrong with an endpoint's answer; None where it is an exposition, or where there is no answer yet."""
    import requests  # noqa: PLC0415

    from bench.http import get  # noqa: PLC0415
    from bench.parse.exposition import ExpositionError, reference_samples  # noqa: PLC0415

    try:
        answer = get(url)
        answer.raise_for_status()
        return None if reference_samples(answer.text) else "there is no sample in it"
    except requests.HTTPError as error:
        return str(error)
    except requests.RequestException:
        return None
    except ExpositionError as error:
        return str(error)


def _run(options: argparse.Namespace) -> None:
    from bench.telemetry import is_nvml  # noqa: PLC0415 - --help must not pay for it
    from bench.telemetry.scraper import scrape  # noqa: PLC0415

    if options.interval <= 0:
        raise BenchError(f"--interval is {options.interval}; it must be above 0.")
    refuse_missing_gpus(options.url, option="--url")
    for url in dict.fromkeys(options.url):
        if not is_nvml(url) and (fault := _fault(url)):
            print(f"warning: {url} gives no Prometheus exposition: {fault}", file=sys.stderr)
    options.output_dir.mkdir(parents=True, exist_ok=True)
    output = options.output_dir / "telemetry.jsonl.gz"
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    begin = time.monotonic()
    if options.duration is not None:
        timer = threading.Timer(options.duration, ended.set)
        timer.daemon = True
        timer.start()

    def ready() -> None:
        print(f"scraping every {options.interval:g} s into {output}", file=sys.stderr)

    kept = scrape(options.url, options.interval, output, ended=ended, ready=ready)
    if not kept:
        raise BenchError(f"{', '.join(options.url)}: no scrape succeeded; the errors are in {output}.")
    if options.json:
        print_json({"file": str(output), "scrapes": kept, "duration_s": round(time.monotonic() - begin, 3)})
    else:
        print(f"{output}: {kept} scrapes in {time.monotonic() - begin:.1f} s")

"""`bench scrape`: keep what a Prometheus endpoint exposes, on an exact schedule."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Mapping
from functools import partial
from typing import Annotated

from bench.cli.entry import command
from bench.cli.options import Headers, Json, OutputDir, headers_of, option, positive, refuse_missing_gpus
from bench.cli.output import note, print_json
from bench.errors import BenchError, writing_to


@command(
    "bench scrape --url http://127.0.0.1:8000/metrics --output-dir telemetry --duration 60",
    "bench scrape --url http://127.0.0.1:8000/metrics --url nvml: --output-dir telemetry",
)
def scrape(
    url: Annotated[
        list[str],
        option(
            "URL",
            "Endpoint, such as http://127.0.0.1:8000/metrics, or nvml: for this machine's GPUs (nvml:0,1 for two of them). Repeatable.",
        ),
    ],
    output_dir: OutputDir,
    interval: Annotated[float, option("SECONDS", "Time between scrapes.", parser=positive)] = 0.2,
    duration: Annotated[float | None, option("SECONDS", "When to end.", parser=positive, default="when stopped")] = None,
    header: Headers = None,
    json: Json = False,
) -> None:
    """On an absolute schedule, with the raw text and the time of sending and receiving each, in DIR/telemetry.jsonl.gz. Ends after
    --duration, on Ctrl-C or on SIGTERM. A --header goes to the server of the first --url alone: its scheme, host and port.
    """
    from bench.headers import same_server
    from bench.measure.scraper import scrape
    from bench.servers.gpu_metrics import is_nvml

    refuse_missing_gpus(url, option="--url")
    given = headers_of(header or [])
    addresses = [each for each in url if not is_nvml(each)]
    headers = {each: given for each in addresses if same_server(each, addresses[0])}  # a key is no other server's business
    for each in dict.fromkeys(addresses):
        if fault := _fault(each, headers.get(each, {})):
            note(f"warning: {each} gives no Prometheus exposition: {fault}")
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
    ready = partial(note, f"scraping every {interval:g} s into {output}")
    with writing_to(output):
        kept = scrape(url, interval, output, ended=ended, ready=ready, headers=headers)
    if not kept:
        raise BenchError(f"{', '.join(url)}: no scrape succeeded; the errors are in {output}.")
    if json:
        print_json({"file": str(output), "scrapes": kept, "duration_s": round(time.monotonic() - begin, 3)})
    else:
        print(f"{output}: {kept} scrapes in {time.monotonic() - begin:.1f} s")


def _fault(url: str, headers: Mapping[str, str]) -> str | None:
    """What is wrong with an endpoint's answer; None where it is an exposition, or where there is no answer yet."""
    import requests

    from bench.errors import shown
    from bench.http import get, leads_away, problem
    from bench.parse.exposition import ExpositionError, reference_samples
    from bench.runs.environment import without_user

    try:
        answer = get(url, headers=headers)
        answer.raise_for_status()
        if target := leads_away(answer):
            return f"it answers {answer.status_code} and leads to another server, {shown(without_user(target), 200)}"
        return None if reference_samples(answer.text) else "there is no sample in it"
    except (requests.HTTPError, ExpositionError) as error:
        return str(error)
    except requests.RequestException as error:
        return problem(error) if isinstance(error, requests.exceptions.SSLError) else None

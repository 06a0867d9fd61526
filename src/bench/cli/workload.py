"""`bench workload`: send exactly specified load to any OpenAI-compatible server."""

from __future__ import annotations

import argparse
import os
import secrets
import tempfile
from pathlib import Path

from bench.cli.common import Commands, print_json
from bench.errors import BenchError

__all__ = ["add"]

# What belongs to one run in its folder: raw records, and what `bench parse` makes of them.
_OF_A_RUN = (
    *("run.json", "requests.jsonl", "telemetry.jsonl.gz"),
    *("requests.parquet", "telemetry.parquet", "metrics.csv", "summary.json"),
)


def add(commands: Commands) -> None:
    parser = commands.add_parser(
        "workload",
        help="send load to a server and record every request",
        description="Send requests of exact prompt lengths (token ids to /v1/completions, unique each time) and exact output lengths "
        "(ignore_eos), and write requests.jsonl, one line a request, and run.json. With --scrape, also the server's "
        "/metrics meanwhile. `bench parse` and `bench figures` go on from the folder.",
    )
    parser.add_argument("--base-url", required=True, metavar="URL", help="server, such as http://127.0.0.1:8000")
    parser.add_argument("--model", required=True, metavar="NAME", help="model name as served")
    parser.add_argument("--num-requests", type=int, required=True, metavar="N", help="requests to send")
    parser.add_argument("--prompt-length", type=int, required=True, metavar="TOKENS", help="prompt tokens of each")
    parser.add_argument("--output-length", type=int, default=128, metavar="TOKENS", help="output tokens of each (default: 128)")
    parser.add_argument(
        "--concurrency", type=int, metavar="N", help="hold N in flight until all are done (default: all at once, a burst)"
    )
    parser.add_argument("--output-dir", type=Path, required=True, metavar="DIR", help="folder of the run; made where missing")
    parser.add_argument(
        "--vocabulary",
        type=int,
        default=1000,
        metavar="N",
        help="prompt ids lie below this (default: 1000, safe for real models)",
    )
    parser.add_argument(
        "--seed", metavar="TEXT", help="seed of the prompts (default: a new one each time, so no cache can help)"
    )
    parser.add_argument("--timeout", type=float, default=600.0, metavar="S", help="give up a request after S seconds")
    parser.add_argument(
        "--scrape", type=float, nargs="?", const=0.2, metavar="S", help="scrape URL/metrics every S seconds (default: 0.2)"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    # Here, so that `bench runs` and --help do not pay for the SDK.
    from bench.measure.recording import record_run  # noqa: PLC0415
    from bench.study.plan import PROTOCOL, digest  # noqa: PLC0415
    from bench.workload import Arrival, Load, Target  # noqa: PLC0415

    for key in ("num_requests", "prompt_length", "output_length", "concurrency"):
        value = getattr(options, key)
        if value is not None and value < 1:
            raise BenchError(f"--{key.replace('_', '-')} is {value}; it must be 1 or more.")
    base_url = options.base_url.rstrip("/").removesuffix("/v1")
    if not base_url.startswith(("http://", "https://")):
        raise BenchError(f"--base-url is {options.base_url!r}; it starts with http:// or https://.")
    if options.vocabulary < 16:
        raise BenchError(f"--vocabulary is {options.vocabulary}; prompts need 16 ids or more.")
    seed = options.seed or secrets.token_hex(8)
    arrival: Arrival = "closed" if options.concurrency and options.concurrency < options.num_requests else "burst"
    concurrency = options.concurrency if arrival == "closed" else options.num_requests
    definition = {
        "deployment": options.model,
        "run": options.output_dir.resolve().name,
        "workload": "workload",
        "arrival": arrival,
        "prompt_tokens": options.prompt_length,
        "output_tokens": options.output_length,
        "num_requests": options.num_requests,
        "concurrency": concurrency,
        "repeat": 1,
        "seed": seed,
    }
    load = Load(
        arrival=arrival,
        concurrency=concurrency,
        num_requests=options.num_requests,
        prompt_tokens=options.prompt_length,
        output_tokens=options.output_length,
        seed=seed,
        vocabulary=options.vocabulary,
        timeout_s=options.timeout,
    )
    header = {"digest": digest([base_url, definition]), "protocol": PROTOCOL, "definition": definition}
    output: Path = options.output_dir
    output.mkdir(parents=True, exist_ok=True)
    target = Target(base_url, options.model, os.environ.get("OPENAI_API_KEY", "none"))
    # Aside at first, so that a run that fails leaves what was there before it.
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=output) as aside:
        recording = record_run(target, load, Path(aside), header=header, scrape_interval_s=options.scrape)
        for name in _OF_A_RUN:
            (output / name).unlink(missing_ok=True)
        for file in Path(aside).iterdir():
            file.rename(output / file.name)
    outcomes: dict[str, int] = {}
    for record in recording.requests:
        outcomes[record.outcome] = outcomes.get(record.outcome, 0) + 1
    result = {
        "output_dir": str(options.output_dir),
        "requests": len(recording.requests),
        "outcomes": outcomes,
        "duration_s": round(recording.duration_s, 3),
        "tokens_per_s": round(recording.tokens_per_s, 1),
    }
    if options.json:
        print_json(result)
        return
    print(f"{options.output_dir}/requests.jsonl: {len(recording.requests)} requests in {recording.duration_s:.2f} s, "
          f"{recording.tokens_per_s:.0f} output tokens/s; " + ", ".join(f"{n} {o}" for o, n in outcomes.items()))  # fmt: skip
    errors = {record.error for record in recording.requests if record.error}
    for error in sorted(errors)[:3]:
        print(f"  the server said: {error}")

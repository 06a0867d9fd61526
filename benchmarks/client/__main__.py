"""Compare load-generating clients against a server of known truth: `python -m benchmarks.client`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.client.clients import CLIENTS
from benchmarks.client.scenario import Scenario, burst, open_loop
from benchmarks.client.table import report
from benchmarks.client.trial import run_trial, serving


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.client",
        description="Measure load-generating clients, each on one core, against a server of known truth on another: "
        "CPU a chunk, and what they report against what happened. Peers' environments are built when first needed.",
    )
    parser.add_argument("--clients", nargs="+", choices=list(CLIENTS), default=list(CLIENTS), metavar="NAME",
                        help=f"of {', '.join(CLIENTS)} (default: all)")  # fmt: skip
    parser.add_argument("--streams", nargs="*", type=int, default=[100, 600, 1200], metavar="N",
                        help="bursts of N requests × 64 chunks (default: 100 600 1200)")  # fmt: skip
    parser.add_argument("--rate", type=float, default=500.0, metavar="R",
                        help="open loop: R requests/s × 8 chunks; 0 leaves it out (default: 500)")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="open loop: for S seconds (default: 20)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="trials of each (default: 3)")
    parser.add_argument("--client-cores", metavar="LIST", help="as taskset takes it (default: the first core allowed)")
    parser.add_argument("--server-core", metavar="N", help="(default: the second core allowed)")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="S", help="end a trial after S seconds (default: 300)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="write every trial's numbers as JSON")
    return parser


def main() -> None:
    options = _parser().parse_args()
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        sys.exit("This needs two cores: one for the client, one for the server.")
    client_cores, server_core = options.client_cores or str(allowed[0]), options.server_core or str(allowed[1])
    scenarios = [burst(streams) for streams in options.streams]
    if options.rate:
        scenarios.append(open_loop(options.rate, options.seconds))
    trials: list[dict[str, Any]] = []
    usable = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.clients:
            try:
                CLIENTS[name].command(burst(1), "http://127.0.0.1", Path(scratch))  # which builds what it needs
                usable.append(name)
            except (RuntimeError, OSError) as error:
                trials += [{"client": name, "scenario": s.name, "repeat": 0, "error": f"not built: {error}"} for s in scenarios]
                print(f"{name} could not be built: {error}", flush=True)
    # What watches shares the server's core, so that the client has its own to itself.
    os.sched_setaffinity(0, {int(server_core)})
    # Interleaved: a machine that changes its speed meanwhile is unkind to all alike.
    plan = [(s, repeat, name) for s in scenarios for repeat in range(1, options.repeats + 1) for name in usable]
    begin = time.monotonic()
    try:
        for number, (scenario, repeat, name) in enumerate(plan, 1):
            print(f"[{number}/{len(plan)}, {time.monotonic() - begin:.0f} s] {scenario.name}, {name}: ", end="", flush=True)
            trial = _try(name, scenario, client_cores, server_core, options.timeout)
            trials.append(trial | {"repeat": repeat})
            print(trial["error"][:300] if "error" in trial else _line(trial), flush=True)
            _save(options, trials, client_cores, server_core)
    except KeyboardInterrupt:
        print("\ninterrupted; what was measured:")
    report(trials)
    if options.output:
        print(f"\nEvery trial: {options.output}")


def _try(name: str, scenario: Scenario, client_cores: str, server_core: str, timeout_s: float) -> dict[str, Any]:
    busy = os.getloadavg()[0]
    try:
        with serving(server_core) as server:
            trial = run_trial(CLIENTS[name], scenario, server, core=client_cores, timeout_s=timeout_s)
    except (RuntimeError, OSError) as error:
        trial = {"error": str(error)}
    return {"client": name, "scenario": scenario.name, **trial, "load_average_before": busy}


def _line(trial: dict[str, Any]) -> str:
    its, seen = trial["reported"], trial["server"]
    return (
        f"{trial['us_a_chunk']:.1f} µs a chunk, {its['wall_ms']:,.0f} ms reported, TTFT P50 {its['ttft_ms']['p50']:,.1f} reported / "
        f"{seen['ttft_ms']['p50']:,.1f} true, {seen['in_flight']} in flight, {its['completed']} of {trial['requests']} completed"
    )


def _save(options: argparse.Namespace, trials: list[dict[str, Any]], client_cores: str, server_core: str) -> None:
    """After each trial, so that an interrupted comparison keeps what it has."""
    if not options.output:
        return
    python = platform.python_version()
    host = {"cores": os.cpu_count(), "machine": platform.machine(), "kernel": platform.release(), "python": python}
    at, cores = datetime.now(UTC).isoformat(timespec="seconds"), {"client_cores": client_cores, "server_core": server_core}
    content = {"at": at, "host": host, **cores, "repeats": options.repeats, "trials": trials}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""How long commands take that compute little: their start is what a user waits for.

python -m benchmarks.startup                 # ten starts of each; exits 1 where a median is above its goal
python -m benchmarks.startup --repeats 30
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from statistics import median

COMMANDS = {  # arguments, and the goal (s of wall time on a quiet machine)
    "bench --help": (["--help"], 0.3),
    "bench plan --help": (["plan", "--help"], 0.8),
    "bench plan --model … --accelerator …": (["plan", "--model", "llama-3.1-8b", "--accelerator", "h100"], 0.8),
    "bench plan": (["plan"], 0.8),
}


def start(arguments: list[str]) -> tuple[float, float]:
    """Seconds of wall time and of CPU that one start takes."""
    before, began = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-m", "bench.cli", *arguments], stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - began, os.times()
    return wall, after.children_user + after.children_system - before.children_user - before.children_system


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    slow = False
    print(f"{'command':<38}{'wall s':>8}{'goal':>8}{'CPU s':>8}   medians of {options.repeats}")
    for name, (arguments, goal) in COMMANDS.items():
        start(arguments)  # what is compiled and cached once is not measured
        walls, cpus = zip(*(start(arguments) for _ in range(options.repeats)), strict=True)
        slow |= median(walls) > goal
        print(f"{name:<38}{median(walls):>8.2f}{goal:>8.2f}{median(cpus):>8.2f}", flush=True)
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())

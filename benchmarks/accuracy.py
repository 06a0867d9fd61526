"""The page of accuracy: referees are run, on a seed drawn now where they take one, and their tables are written as they come out.

python -m benchmarks.accuracy                    # all of them; half an hour on two cores
python -m benchmarks.accuracy capacity search    # these alone; the other sections stay as they are
"""

from __future__ import annotations

import argparse
import re
import secrets
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parent.parent / "docs/explanation/accuracy.md"
_HEAD = """# Accuracy

How often is what Saturate says right? Each section is what its command printed: made data whose truth is known, judged by the code
that judges yours. Seeds are drawn when a command is run, and what came out stands. `python -m benchmarks.accuracy NAME` renews a
section.
"""


class Section(NamedTuple):
    """A benchmark. Attributes: options: its size, and its seed if it takes one. about: what is planted, and what its columns mean."""

    question: str
    options: str
    about: str


REFEREES = {
    "capacity": Section(
        "Is the limit of a ladder right, and its cause?",
        "--servers 120 --seed {seed}",
        "Simulated servers, each measured as a study would. *−15 to +5 %*: the limit is that close to the truth. *levels hold* and "
        "*rps hold*: intervals that hold the truth, of those with an end. A cause is right if its relief raises the rate most, or "
        "within 10 % of that; *by telemetry alone*: as of a server whose limits are not known, without replays.",
    ),
    "search": Section(
        "Is the limit of a search right?",
        "--servers 80 --curves 40 --seed {seed}",
        "The same servers, and curves that no engine has to explain, beside three searches by point estimates on the same servers.",
    ),
    "compare": Section(
        "Are verdicts of a comparison right?",
        "--draws 40 --seed {seed}",
        "Studies in ABBA order on a machine whose speed varies: a baseline against itself, and planted effects.",
    ),
    "predict": Section(
        "How far are predictions off?",
        "--engines 20 --seed {seed}",
        "Engines of known step times, calibrated on three bursts and two closed loops, asked about other loads.",
    ),
    "tuning": Section(
        "Does a tuning find the best setting?",
        "--servers 60 --drawn --minutes 60 --seed {seed}",
        "Servers with 4 to 64 combinations of settings, a third of them without any effect.",
    ),
    "verdicts": Section(
        "Are invalid runs found, and sound ones left alone?",
        "--sound 550 --planted 50",
        "Engines of many speeds under sound loads, and with one fault each.",
    ),
    "stream_truth": Section(
        "Is TPOT right whatever a stream hides?",
        "--runs 50",
        "Streams made as bytes: hidden tokens, several tokens a chunk, speculation, proxies that gather.",
    ),
    "drifted": Section("Is a change in production found?", "--times 20", "Studies beside production that changed, or did not."),
    "gpu_memory": Section("Is vLLM's memory right?", "", "60 logged starts of vLLM; some of them were used for the fit."),
}


def section(name: str, commit: str) -> str:
    """What the benchmark `name` prints now, as a section of the page. Raises: CalledProcessError: it fails."""
    referee = REFEREES[name]
    command = ["-m", f"benchmarks.{name}", *referee.options.format(seed=secrets.randbits(31)).split()]
    print(f"python {' '.join(command)}", file=sys.stderr, flush=True)
    told = subprocess.run([sys.executable, *command], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    when = f"{datetime.now(UTC):%Y-%m-%d}, commit {commit}"
    return f"## {referee.question}\n\n{referee.about}\n\n    python {' '.join(command)}    # {when}\n\n{told}\n"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Run the referees that are named, and write the page after each, so that what has come out is kept."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(REFEREES)}; all by default")
    names = parser.parse_args().names or list(REFEREES)
    if unknown := [name for name in names if name not in REFEREES]:
        parser.error(f"there is no referee {unknown[0]}; there are {', '.join(REFEREES)}")
    if _git("status", "--porcelain", "src", "benchmarks", "tests/support"):
        parser.error("the code was changed since the last commit, which the page would name")
    commit = _git("rev-parse", "--short=8", "HEAD")
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    kept = {each.partition("\n")[0]: f"## {each.strip()}\n" for each in re.split(r"^## ", text, flags=re.MULTILINE)[1:]}
    for name in names:
        kept[REFEREES[name].question] = section(name, commit)
        sections = [kept[referee.question] for referee in REFEREES.values() if referee.question in kept]
        PAGE.write_text("\n".join([_HEAD, *sections]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

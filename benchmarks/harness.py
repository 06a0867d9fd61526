"""How a referee is run: its options, its draws in several processes, its tables and its file; and the code of other checkouts by it."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["RESULTS", "Referee", "print_table"]

RESULTS = Path(__file__).parent / ".results"
Job, Result = TypeVar("Job"), TypeVar("Result")


class Referee:
    """A benchmark that judges made data of known truth.

    Args:
        about: the module's text. seed: of its draws by default; None where it takes none. counts: options that are numbers, such as how
            many servers are drawn.
    """

    def __init__(self, about: str | None, *, seed: int | None = None, **counts: int) -> None:
        self._parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        for name, default in counts.items() if seed is None else {**counts, "seed": seed}.items():
            self.option(f"--{name}", type=int, default=default, help="(default: %(default)s)")
        self.option("--jobs", type=int, default=os.cpu_count(), help="processes (default: %(default)s)")
        self.option("--json", type=Path, metavar="FILE", help="write every result there")
        self.option("--source", type=Path, action="append", metavar="CHECKOUT",
                    help="judge the code of this checkout (default: this one); repeatable, on the same draws")  # fmt: skip

    def option(self, name: str, **kind: Any) -> None:
        """Add an option, as argparse takes it."""
        self._parser.add_argument(name, **kind)

    def options(self) -> argparse.Namespace:
        """The options. Where checkouts are named this judges the code of each in a process of its own, and exits."""
        os.environ.setdefault("POLARS_MAX_THREADS", "1")
        self._options = self._parser.parse_args()
        if self._options.source:
            sys.exit(max(map(self._judged, self._options.source)))
        return self._options

    def _judged(self, source: Path) -> int:
        """The exit status of this referee with the library of a checkout; JSON files get its name."""
        own = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        own.add_argument("--source", action="append")
        own.add_argument("--json", type=Path)
        told, rest = own.parse_known_args()
        if told.json:
            rest += ["--json", str(told.json.with_stem(f"{told.json.stem}-{source.resolve().name}"))]
        module = sys.modules["__main__"].__spec__
        assert module  # noqa: S101 - it was started as `python -m`
        print(f"\n{source}\n", flush=True)
        path = {"PYTHONPATH": str(source.resolve() / "src")}
        return subprocess.run([sys.executable, "-m", module.name, *rest], env={**os.environ, **path}).returncode

    def spread(self, judge: Callable[[Job], Result], jobs: Iterable[Job]) -> list[Result]:
        """What `judge` finds of each job, in their order. What is done is told on standard error, and kept in the file on the way."""
        whole, results, began = list(jobs), [], time.monotonic()
        with ProcessPoolExecutor(self._options.jobs) as pool:
            for result in pool.map(judge, whole):
                results.append(result)
                if len(results) % 20 == 0 or len(results) == len(whole):
                    spent = time.monotonic() - began
                    print(f"{len(results)} of {len(whole)} after {spent:.0f} s", file=sys.stderr, flush=True)
                    self.keep(results)
        return results

    def keep(self, content: Any) -> None:
        """Write the file of results, if one is asked for."""
        if self._options.json:
            self._options.json.write_text(json.dumps(content, indent=1, default=str, ensure_ascii=False) + "\n")


def print_table(heads: Sequence[str], rows: Iterable[Sequence[Any]], *, texts: int = 1) -> None:
    """A table in Markdown, each row as it is known. Args: heads: of the columns, of which the first `texts` are text."""
    print(f"| {' | '.join(heads)} |\n|{'---|' * texts}{'--:|' * (len(heads) - texts)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |", flush=True)

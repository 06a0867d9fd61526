"""What commands print: results on standard output, progress on standard error.

Rich is used, and imported, on a terminal alone. Anywhere else a table is plain text of its whole width, so that it can be searched,
compared and stored.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

_GAP = 2  # blanks between columns
_EVERY_S = 30  # seconds between two lines of progress where there is no terminal
_STYLES = {"measured": "green", "missing": "dim", "stale": "yellow", "invalid": "red", "better": "green", "worse": "red"}
T = TypeVar("T")


def print_json(content: Any) -> None:
    """Print a result for another program."""
    print(json.dumps(content, indent=2))


def print_table(rows: Sequence[Sequence[str]], align: str = "", *, head: bool = True) -> None:
    """Print rows in columns.

    Args:
        align: `<` or `>` for each column; without it, the first is left and the others right. head: whether the first row is one.
    """
    align = align or "<" + ">" * (len(rows[0]) - 1)
    if sys.stdout.isatty():
        _print_fitting(rows, align, head=head)
        return
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = (f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True))
        print((" " * _GAP).join(cells).rstrip())


def _print_fitting(rows: Sequence[Sequence[str]], align: str, *, head: bool) -> None:
    """Columns that do not fit beside the others follow below them, with the first column again."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for block, columns in enumerate(_blocks(widths, console.width)):
        table = Table(box=None, show_header=head, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
        for i in columns:
            table.add_column(
                Text(rows[0][i] if head else ""),
                justify="left" if align[i] == "<" else "right",
                no_wrap=align[i] == ">" and widths[i] < console.width,
                overflow="fold",
            )
        for row in rows[1:] if head else rows:
            table.add_row(*(Text(row[i], style=_STYLES.get(row[i], "")) for i in columns))
        if block:
            console.print()
        console.print(table)


def _blocks(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """Columns that fit side by side, the first one in each block."""
    block, used = [0], widths[0]
    for i, width in enumerate(widths[1:], 1):
        if len(block) > 1 and used + _GAP + width > room:
            yield block
            block, used = [0], widths[0]
        block.append(i)
        used += _GAP + width
    yield block


def tracked(items: Sequence[T], what: str) -> Iterable[T]:
    """The items, with a bar and the time left on a terminal."""
    if not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import track

    return track(items, description=what, console=Console(stderr=True), transient=True)


@contextmanager
def progress(what: str, seconds: float | None) -> Iterator[None]:
    """A bar on a terminal for as long as the context lasts: with the time left where it is known, else with the time so far.

    It is drawn once a second, since what is measured meanwhile needs the processor. Anywhere else it is a line each half a minute.
    """
    if not sys.stderr.isatty():
        passed = 0
        of = "" if seconds is None else f" of about {seconds:.0f}"

        def tell() -> None:
            nonlocal passed
            passed += 1
            if passed % _EVERY_S == 0:
                print(f"{what}: {passed}{of} s", file=sys.stderr, flush=True)

        with _every_second(tell):
            yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    clock = TimeElapsedColumn() if seconds is None else TimeRemainingColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), clock)
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=1) as bar:
        task = bar.add_task(what, total=seconds)
        with _every_second(lambda: bar.update(task, advance=1)):
            yield


@contextmanager
def _every_second(act: Callable[[], None]) -> Iterator[None]:
    import threading

    ended = threading.Event()

    def tick() -> None:
        while not ended.wait(1):
            act()

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def status() -> Iterator[Callable[[str], None]]:
    """Takes lines of progress: one after the other on a terminal's last line, anywhere else each on a line of its own."""
    if not sys.stderr.isatty():
        yield lambda text: print(text, file=sys.stderr, flush=True)
        return
    from rich.console import Console

    with Console(stderr=True).status("") as line:
        yield line.update

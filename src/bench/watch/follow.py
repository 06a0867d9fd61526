"""Look again and again, and show what was found: drawn where there is a terminal, as lines elsewhere."""

from __future__ import annotations

import json
import time
from pathlib import Path

from rich.console import Console
from rich.live import Live

from bench.watch.lines import as_json, news
from bench.watch.panel import draw
from bench.watch.sessions import Snapshot, Watcher

_UNSURE_S = 1.0  # between looks at a session whose state is not certain yet


def follow(root: Path, *, interval_s: float = 1.0, once: bool = False, as_lines_of_json: bool = False) -> None:
    """Show the sessions below `root` until Ctrl-C.

    Args:
        interval_s: between two looks. once: show what there is now, and return. as_lines_of_json: a JSON object a line.
    """
    watcher = Watcher(root)
    now = watcher.look()
    while once and now.unsure:
        time.sleep(_UNSURE_S)
        now = watcher.look()
    console = Console()
    if as_lines_of_json or not console.is_terminal:
        before: Snapshot | None = None
        while True:
            for line in [json.dumps(as_json(now))] if as_lines_of_json else news(before, now):
                print(line, flush=True)
            if once:
                return
            time.sleep(interval_s)
            before, now = now, watcher.look()
    if once:
        console.print(draw(now))
        return
    with Live(draw(now), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(interval_s)
            live.update(draw(watcher.look()), refresh=True)

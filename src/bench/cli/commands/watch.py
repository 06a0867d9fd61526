"""`bench watch`."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from bench.cli.entry import command
from bench.cli.options import Json, flag, option, positive


@command("bench watch", "bench watch --once", "bench watch --once --json")
def watch(
    once: Annotated[bool, flag("--once", "Show what there is now, and end.")] = False,
    interval: Annotated[float, option("SECONDS", "Time between two looks.", parser=positive)] = 1.0,
    json: Json = False,
) -> None:
    """Shows the run under way with what the server reports, the runs that are done, and the time left, until Ctrl-C. Without a
    terminal: one line for each change; with --json: one object for each look. Sessions on other machines are seen where they share the
    folder.

    It reads files that a session writes anyhow, at the lowest priority, and asks the server nothing. What the client measures (TTFT of
    each request) is in a file only when its run has ended.
    """
    with suppress(OSError):
        os.nice(19)  # before anything is imported: no measurement may wait for who watches it
    from bench.watch import follow

    with suppress(KeyboardInterrupt):
        follow(Path(), interval_s=interval, once=once, as_lines_of_json=json)

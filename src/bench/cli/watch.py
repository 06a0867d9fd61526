"""What `bench watch` does."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["run"]


def run(once: bool, interval_s: float, *, json: bool) -> None:
    """Watch the sessions of the working directory until Ctrl-C."""
    with suppress(OSError):
        os.nice(19)  # before anything is imported: no measurement may wait for who watches it
    from bench.watch import follow  # noqa: PLC0415

    with suppress(KeyboardInterrupt):
        follow(Path(), interval_s=interval_s, once=once, as_lines_of_json=json)

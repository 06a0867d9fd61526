"""Real-time priority for what measures: the load and the scrapes, not the server."""

from __future__ import annotations

import os


def ahead_of_the_server() -> bool:
    """Ask for the lowest real-time priority; whether the system gives it (root and CAP_SYS_NICE have it, users mostly not).

    Where the server's processes keep all cores busy, one that sleeps until an answer or a moment comes may wait tenths of a second
    for its turn, or several seconds.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except (AttributeError, OSError):
        return False
    return True


def like_all_others() -> None:
    """Give the real-time priority back."""
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))

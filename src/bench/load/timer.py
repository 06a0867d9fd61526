"""What the kernel gives the load process: priority over all others, and timerfd, a clock that an epoll loop can wait for to the
microsecond, where its own timeout counts milliseconds.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time


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


_LIBC = ctypes.CDLL(None, use_errno=True)


class Timer:
    """A file descriptor that is readable from a moment of CLOCK_MONOTONIC on, and again each `interval_s` after it.

    Python has it from 3.13 on (`os.timerfd_create`); this is the same call for those before.

    Raises:
        OSError: the system has no timerfd.
    """

    _ABSOLUTE = 1  # TFD_TIMER_ABSTIME

    def __init__(self) -> None:
        self.fd: int = _LIBC.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def set(self, moment: float, interval_s: float = 0.0) -> None:
        """Wake at `moment` (s; at once where it has passed), and then every `interval_s`."""
        # Two of C's `timespec`, seconds and nanoseconds each. A moment of zero would disarm it.
        parts = (part for s in (interval_s, max(moment, 1e-9)) for part in (int(s), int(s % 1 * 1e9)))
        if _LIBC.timerfd_settime(self.fd, self._ABSOLUTE, struct.pack("4l", *parts), None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def rings(self) -> int:
        """How often it has rung since it was last asked."""
        try:
            return int.from_bytes(os.read(self.fd, 8), "little")
        except BlockingIOError:
            return 0

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.fd)

"""Whether a failure is the server's: one that is dead can be started again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.errors import BenchError
from bench.servers.server import Server, ServerDied

_LOOKS = 10  # looks whether a server that may be dying is gone; convention
_BETWEEN_S = 0.5  # pause between them (s); convention


@contextmanager
def blaming(server: Server) -> Iterator[None]:
    """Where something fails because the server is dead, say that instead."""
    try:
        yield
    except BenchError:
        refuse_dead(server)
        raise


def refuse_dead(server: Server) -> None:
    """Raise ServerDied where the process is gone or no longer answers; a server that is dying is given the time to."""
    for _ in range(_LOOKS):
        if not server.running():
            break
        if server.answers():
            return
        time.sleep(_BETWEEN_S)
    how = server.ending() if not server.running() else "no longer answered"
    raise ServerDied(f"The server {how} while it was measured. {server.last_words()}")


def refuse_ended(server: Server) -> None:
    """Raise ServerDied where the process is gone; asks nothing of the server, so that it may be called during a load."""
    if not server.running():
        refuse_dead(server)

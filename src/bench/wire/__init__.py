"""The process that sends load: an event loop of its own over sockets, which stamps what comes and parses nothing until the end.

It imports the standard library, httptools and the record of a request alone, so that it starts in a tenth of a second and nothing of
the session's work shares its interpreter.
"""

from bench.wire.exchange import Exchange
from bench.wire.records import record_of

__all__ = ["Exchange", "record_of"]

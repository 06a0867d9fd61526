"""`engine.json`: an engine that is ready to start, and what it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class EngineRecord:
    """How an engine's server is started.

    Attributes:
        engine: key of the engine. source: as configured. device: the backend, as configured.
        command: the command that starts the server (`source: command`), or the interpreter that runs it (a lock, a container); None
            for an external server.
        locks: SHA-256 of each lock file by its path; None where the engine is not built from locks.
        freeze: packages of its environment, as `name==version`; None where the engine is not built from locks.
    """

    engine: str
    source: str
    device: str
    command: tuple[str, ...] | None = None
    locks: Mapping[str, str] | None = None
    freeze: tuple[str, ...] | None = None

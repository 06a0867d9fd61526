"""The server that load is sent to."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """An OpenAI-compatible server: `base_url` without `/v1`, and the name under which it serves the model."""

    base_url: str
    model: str
    api_key: str = "none"

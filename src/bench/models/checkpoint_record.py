"""`checkpoint.json`: where a model's files lie, and what its weights and KV cache are computed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Weights:
    """Parameters, and bytes where a checkpoint is loaded as it is, quantised or as GGUF; None where a server's own type decides."""

    parameters: int
    stored: int | None = None


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint that is ready to be served.

    Attributes:
        model: key of the model. source: the hub's id, the package, the path as configured, or `synthetic`. revision: the hub's commit.
        path: its folder, or its GGUF file; a link where the files lie elsewhere.
        config: the config.json from which its memory is computed. parameters: how many there are; None where that is not known.
        weight_bytes: of weights that are loaded as they are, quantised or a GGUF file; None where a server's own type decides.
    """

    model: str
    source: str
    revision: str | None = None
    path: str
    config: Mapping[str, Any]
    parameters: int | None
    weight_bytes: int | None = None

    @property
    def weights(self) -> Weights | None:
        """None where they are not known."""
        return Weights(self.parameters, self.weight_bytes) if self.parameters else None

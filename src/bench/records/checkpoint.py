"""`checkpoint.json`: where a model's files lie, and what its weights and KV cache are computed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.records.files import read_typed


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint that is ready to be served.

    Attributes:
        model: key of the model. source: the hub's id, the package, the path as configured, or `synthetic`. revision: the hub's commit.
        path: its folder, or its GGUF file; a link where the files lie elsewhere.
        config: the config.json from which its memory is computed. parameters: how many there are; None where they cannot be counted.
        weight_bytes: size of a real checkpoint's weight files; None where there are none.
    """

    model: str
    source: str
    revision: str | None = None
    path: str
    config: Mapping[str, Any]
    parameters: int | None
    weight_bytes: int | None = None


def read_checkpoint(path: Path) -> Checkpoint:
    """The record in `path`. Its `config` is as its publisher wrote it, be it with `Infinity`.

    Raises:
        BenchError: it names the file, the key and what is wrong.
    """
    return read_typed(Checkpoint, path, "Remove it, and the next workflow makes the checkpoint again.", constants=True)

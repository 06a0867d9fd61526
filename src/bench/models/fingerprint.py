"""What identifies a checkpoint's content, without reading hundreds of gigabytes each time that the configuration is read."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

# What an engine loads from a checkpoint's folder: not a README, nor folders below it.
_SUFFIXES = {*(".json", ".jinja", ".model", ".txt", ".py", ".tiktoken"), *(".safetensors", ".bin", ".pt", ".pth", ".gguf")}
_WHOLE = 1 << 20  # largest file that is read whole (bytes); convention
_END = 1 << 16  # bytes read at each end of a larger one; convention
_BLOCK = 1 << 12  # bytes of a block between them; convention
_BLOCKS = 16  # blocks between the ends; convention


@cache
def fingerprint(path: str) -> str | None:
    """A digest of the files of a checkpoint, a folder or one file; None where it cannot be read, or holds none.

    Of each file its name and size; all of it up to 1 MiB (config.json, tokenizers); of a larger one the first and the last 64 KiB (a
    safetensors file begins with the names, types and places of its tensors) and 16 blocks of 4 KiB, evenly spaced. That is 192 KiB a
    file, whatever its size: other weights of the same shape differ nearly everywhere. A file of which only a few tensors changed, in
    place, can go unnoticed. Times are left out, so that a copy is the same checkpoint.
    """
    try:
        beside = [Path(path)] if Path(path).is_file() else Path(path).iterdir()
        files = sorted(file for file in beside if file.suffix in _SUFFIXES and file.is_file())
        digest = hashlib.sha256()
        for file in files:
            size = file.stat().st_size
            digest.update(f"{file.name}\0{size}\0".encode(errors="surrogateescape"))
            with file.open("rb", buffering=0) as stream:
                for start, length in _parts(size):
                    stream.seek(start)
                    digest.update(stream.read(length))
    except (OSError, ValueError):  # ValueError: a null character in the path
        return None
    return digest.hexdigest() if files else None


def _parts(size: int) -> list[tuple[int, int]]:
    """Start and length of what is read of a file (bytes)."""
    if size <= _WHOLE:
        return [(0, size)]
    middle = [(size * i // (_BLOCKS + 1), _BLOCK) for i in range(1, _BLOCKS + 1)]
    return [(0, _END), *middle, (size - _END, _END)]

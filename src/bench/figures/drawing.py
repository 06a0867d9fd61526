"""Draw the figures of a study in one process, those alone that would come out otherwise than they are.

A process pays more for its imports and its first rendering than for most figures, so each figure has no job of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.figures.registry import load_figure
from bench.figures.results import Results
from bench.figures.save import KINDS, save_figure
from bench.study.plan import digest

__all__ = ["draw_figures"]

_EVERY_S = 10.0  # between two lines
_RECORD = ".drawn"  # beside the figures: what each was drawn from, and its files' checksums


def draw_figures(
    code: Mapping[str, str],
    results: Results,
    folder: Path,
    *,
    tables: Sequence[Path],
    calibration: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> list[str]:
    """Draw the figures named in `code` into `folder`; the names of those that were drawn, and not as they should be already.

    A figure is kept where its code, its tables, and what it uses of the decision are what it was drawn from, and its files are as they
    were written. Kept files are touched, as the workflow takes what is older than the tables for stale.

    Args:
        code: by figure, a digest of the code that decides it. tables: the files that hold `results`. calibration: the one with the
            models, for the figures that use it. say: takes a line now and then.

    Raises:
        BenchError: there is no such figure.
    """
    record = folder / _RECORD
    known = _known(record)
    read = [_checksum(table) for table in tables]
    drawn, begin = [], time.monotonic()
    said = begin
    for number, (name, source) in enumerate(code.items(), 1):
        given = results.given(load_figure(name).uses)
        of = digest(
            {
                "code": source,
                "tables": read,
                "decision": given.decision.model_dump(mode="json"),
                "device": given.device.model_dump(mode="json") if given.device else None,
                **({"calibration": _checksum(calibration)} if calibration and given.calibration else {}),
                **({"searches": [[name, asdict(found)] for name, found in given.searches]} if given.searches else {}),
            }
        )
        if known.get(name) == {"of": of, "files": _files(folder, name)}:
            for kind in KINDS:
                os.utime(folder / f"{name}.{kind}")
            continue
        save_figure(name, results, folder / name)
        drawn.append(name)
        known[name] = {"of": of, "files": _files(folder, name)}
        record.write_text(json.dumps(known, indent=2) + "\n")
        if number < len(code) and (now := time.monotonic()) - said > _EVERY_S:
            left_s = (now - begin) / number * (len(code) - number)
            say(f"{number} of {len(code)} figures, about {left_s:.0f} s left")
            said = now
    return drawn


def _known(record: Path) -> dict[str, Any]:
    """What the record has; nothing where there is none, or what stands there is not one: all is drawn then."""
    try:
        content = json.loads(record.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _files(folder: Path, name: str) -> dict[str, str]:
    """The checksum of each file of a figure that is there."""
    paths = {kind: folder / f"{name}.{kind}" for kind in KINDS}
    return {kind: _checksum(path) for kind, path in paths.items() if path.exists()}


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

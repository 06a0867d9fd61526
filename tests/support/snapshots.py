"""Texts that are kept in files: what a table of templates says, all of it, to be read as a whole."""

import os
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "snapshots"


def same(name, lines):
    """Compare lines with `snapshots/NAME.txt`; with RENEW=1 in the environment, write them there."""
    path, text = FOLDER / f"{name}.txt", "".join(f"{line}\n" for line in lines)
    if os.environ.get("RENEW"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), (
        f"RENEW=1 writes {path.name} anew: read its difference before you commit it"
    )

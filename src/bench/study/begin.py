"""Begin a study in a folder of its own: `bench init`."""

from __future__ import annotations

import shlex
from pathlib import Path

from bench.errors import BenchError
from bench.shipped import ROOT, installed_from

#: What a study can begin with, by the name of the template: the shipped file that it copies.
TEMPLATES = {
    "quick": "config/studies/quick.yaml",
    "sizing": "config/templates/sizing.yaml",
    "running-server": "config/templates/running-server.yaml",
    "two-settings": "config/templates/two-settings.yaml",
}

_SNAKEFILE = """\
# The workflow is Saturate's own, from the installed package: an upgrade of the package upgrades it.
from bench.shipped import SNAKEFILE

# A file given with --configfile stands alone: config/config.yaml is not mixed into it.
if "study" not in config:

    configfile: "config/config.yaml"


module saturate:
    snakefile:
        SNAKEFILE
    config:
        config


use rule * from saturate


# Snakemake starts no handler of a module by itself: without this, SIGTERM would not end a session, `bench` not know its study, and
# two workflows could run at once.
onstart:
    saturate.onstart()
"""

_README = """\
# A study with Saturate

    snakemake --cores 1 results/figures/all    # measures, then draws results/report.html and results/figures/
    bench runs                                 # lists every run and its state

`config/config.yaml` defines the study; `config/README.md` explains each key. After an edit, the first command measures only
the runs that are missing, and `snakemake -n` shows what it would do. `bench --help` lists the commands that compare, size and pack.

Both commands come with a Python package. Here it was installed from {origin}: `pip install {origin}`; with uv and without installing
it, put `uvx --from {origin}` before each.
"""

_GITIGNORE = """\
/results/
/logs/
/.snakemake/
/.snakemake.lock
"""

# What the templates say of a clone, as it is in a study's own folder.
_IN_OWN_FOLDER = {
    "Copy this file, change the lines marked CHANGE, then: make figures CONFIG=your-copy.yaml": (
        "Change the lines marked CHANGE, then: snakemake --cores 1 results/figures/all"
    ),
    "# yaml-language-server: $schema=../../workflow/schemas/config.schema.json\n": "",
    "start from config/studies/quick.yaml": "begin with `bench init FOLDER --template quick`",
}


def begin(folder: Path, template: str = "quick") -> tuple[list[str], list[str]]:
    """Write the files of a study into `folder`.

    Args:
        folder: it is new, empty, or a study of which some files are missing.
        template: key of TEMPLATES.

    Returns:
        Paths below `folder`: the files written, and those that were there and are left as they are.

    Raises:
        BenchError: `folder` holds something else, or cannot be written.
    """
    files = _files(template)
    try:
        _refuse_other(folder)
        kept = [name for name in files if (folder / name).exists()]
        written = [name for name in files if name not in kept]
        for name in written:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(files[name], encoding="utf-8")
    except OSError as error:
        raise BenchError(f"{error.filename or folder}: {error.strerror or error}. Name a writable folder.") from None
    return written, kept


def _files(template: str) -> dict[str, str]:
    config = _shipped(TEMPLATES[template])
    for clone, own in _IN_OWN_FOLDER.items():
        config = config.replace(clone, own)
    same = ["config/README.md", *(f"profiles/{name}/config.yaml" for name in ("default", "slurm", "slurm-no-accounting"))]
    return {
        "Snakefile": _SNAKEFILE,
        "config/config.yaml": f"# yaml-language-server: $schema=config.schema.json\n{config}",
        "config/config.schema.json": _shipped("workflow/schemas/config.schema.json"),
        **{name: _shipped(name) for name in same},
        "README.md": _README.format(origin=shlex.quote(installed_from())),
        ".gitignore": _GITIGNORE,
    }


def _shipped(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _refuse_other(folder: Path) -> None:
    if not folder.exists():
        return
    if not folder.is_dir():
        raise BenchError(f"{folder} is a file. Name a new or an empty folder.")
    files = {path.name for path in folder.iterdir()} - {".git"}
    snakefile = folder / "Snakefile"
    if files and not (snakefile.exists() and "saturate" in snakefile.read_text(encoding="utf-8", errors="replace")):
        raise BenchError(f"{folder} is not empty, and no study: it has {min(files)}. Name a new or an empty folder.")

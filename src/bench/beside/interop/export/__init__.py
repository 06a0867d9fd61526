"""A measured deployment in the forms in which servers are run (a command, a Compose file, a manifest of Kubernetes): what of it
goes to production, and what was held fixed while it was measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from bench.errors import BenchError, count_text
from bench.findings.capacity.words import limit, sustains
from bench.models.checkpoint_record import Checkpoint
from bench.report.render import render
from bench.results import Results
from bench.runs.deployment import DeploymentFacts
from bench.runs.environment import REDACTED, redacted, redacted_command
from bench.runs.files import read, read_known
from bench.runs.launch import Launch, flags_of
from bench.runs.paths import Paths
from bench.servers.engines import managed
from bench.servers.kind import Managed, arguments

# A path by itself, or a text in JSON or a list that begins like one; no address, and no id of the hub.
_PATH = re.compile(r"""(?:^|["'\s=:,])(?:\.{0,2}/|results/)\w""")
_ADDRESS = ("host", "port")  # flags in whose place each form puts its own
_CACHE = "/root/.cache/huggingface"  # where the hub's library keeps models in an image that runs as root


def read_exported(deployment: str) -> dict[str, Any]:
    """What the templates take of a deployment in this folder's results.

    Returns:
        `wanted`, what production names where the `model` has no id; `command`, what starts the server outside of an `image`, and
        `no_image`, the refusal where none is known; `flags`, without those of the address; `environment`, and `secrets`, names of
        variables whose values are not known here; `held`, what was held fixed and found; `notes`, what is left out or differs.

    Raises:
        BenchError: there is no such deployment, it was not started here, or no single command line starts it.
    """
    launch = _launch(deployment)
    kind = managed(launch.kind)
    production, inside = kind.production, "/model.gguf" if kind.gguf else "/model"
    image, argv = _uncontained(redacted_command(launch.argv or ()))
    head, words = _parts(deployment, argv)
    facts = read_known(DeploymentFacts, Paths.facts(deployment))
    if facts and launch.digest not in (None, facts.digest):
        facts = None
    version = (facts.engine_version if facts else None) or launch.engine_version
    model, revision, source, note = _model(launch)
    flags, left = _flags(kind, launch, flags_of(words))
    if revision and production.revision:
        flags = {production.revision: revision, **flags}
    environment = redacted(launch.environment)
    left += [
        f"{name}={environment.pop(name)}: {reason}." for name, reason in production.variables.items() if name in environment
    ]
    secrets = [name for name, value in environment.items() if value == REDACTED] + ["HF_TOKEN"] * bool(model)
    # Started by nothing but its engine's own command, or by what the benchmark starts in its place.
    names = [PurePosixPath(word).name for word in head]
    plain = names == list(production.command) or names[1:] == [PurePosixPath(word).name for word in kind.server]
    command = list(production.command) if plain else head
    published = image or (version and kind.image(version, launch.device))
    if not plain:
        why = (
            f"{deployment} was started by a command of its own, `{' '.join(command)}`, which an image need not have. Use --form "
            f"command; or measure it with `command: [{', '.join(production.command)}]`, and what it adds under `flags`."
        )
    else:
        unknown = (
            f"no image of {kind.title} {version} is published"
            if version
            else f"the version of {kind.title} is not known before a session has measured it"
        )
        why = "" if published else f"{deployment} has no image, as {unknown}. Use --form command."
    address = {"host": "0.0.0.0", "port": str(production.port)}  # noqa: S104 - of the container, which publishes its port alone
    name = re.sub(r"[^a-z0-9]+", "-", deployment.lower()).strip("-")[:40].strip("-")
    return {
        "deployment": deployment,
        "health": kind.health,
        "production": production,
        "wanted": "GGUF file" if kind.gguf else "folder of the model",
        "model": model,
        "gpus": launch.gpus or 0,
        "command": command,
        "image": published,
        "no_image": why,
        "built": "" if image else f"The image {published} has the same version as what was measured, and is another build.",
        "environment": {name: value for name, value in environment.items() if value != REDACTED},
        "secrets": list(dict.fromkeys(secrets)),
        "named": " ".join(kind.model("\0", command)).replace("\0", '"$MODEL"'),
        "flags": [arguments({name: value}) for name, value in flags.items()],
        "words": [*kind.model(model or inside, production.command), *arguments({**address, **flags})],
        "inside": inside,
        "cache": _CACHE,
        "name": name if name[:1].isalpha() else f"model-{name}".rstrip("-"),  # a Service's name begins with a letter
        "held": [
            f"engine: {kind.title} {version or '(version not known)'}, on {'a CPU' if launch.device == 'cpu' else 'GPUs'}",
            f"model: {source}",
            f"cores of a worker: {launch.configured.get('cores', 'not known')} (0: not pinned, one thread)"
            if launch.device == "cpu"
            else f"GPUs of an instance: {'not known' if launch.gpus is None else launch.gpus}",
            f"machine: {facts.hardware.in_short}" if facts else "",
            f"digest of the deployment: {launch.digest or 'not recorded'}",
            f"image: {image}" if image else "",
            *_measured(deployment, facts),
        ],
        "notes": [note, *left],
    }


def _launch(deployment: str) -> Launch:
    file = Path(Paths.LAUNCH.format(deployment=deployment))
    known = sorted(each.parent.name for each in Path().glob(Paths.LAUNCH.format(deployment="*")))
    if deployment not in known:
        there = (
            f"There are: {', '.join(known)}" if known else "There are none: run this in a study's folder, after its workflow"
        )
        raise BenchError(f"{file}: no such deployment in {Path.cwd()}. {there}.")
    launch = read(Launch, file)
    if launch.argv is None:
        raise BenchError(
            f"{deployment}: the server at {launch.base_url} was not started here, so its command line is not known. Export a "
            "deployment whose engine has `source: lock` or `command`."
        )
    if launch.replicas > 1:
        raise BenchError(
            f"{deployment}: it has {launch.replicas} replicas behind a router, but an export starts one server. Export a "
            "deployment with one replica, and scale that."
        )
    return launch


def _uncontained(argv: list[str]) -> tuple[str | None, list[str]]:
    """The image, None where no container runs it, and the command line in it."""
    if PurePosixPath(argv[0]).name in ("docker", "podman") and "--entrypoint" in argv:
        at = argv.index("--entrypoint")
        return argv[at + 2], [argv[at + 1], *argv[at + 3 :]]
    return None, argv


def _parts(deployment: str, argv: list[str]) -> tuple[list[str], list[str]]:
    """What of a command line starts the server, and what follows the model."""
    if "--model" in argv:
        at = argv.index("--model")
        return argv[:at], argv[at + 2 :]
    if "serve" in argv:  # which takes the model by position
        at = argv.index("serve") + 1
        return argv[:at], argv[at + 1 :]
    file = Paths.LAUNCH.format(deployment=deployment)
    raise BenchError(f"{file}: its `argv` names no model. Remove it, and the next workflow resolves the deployment again.")


def _model(launch: Launch) -> tuple[str | None, str | None, str, str]:
    """The model's id on the hub and its commit, both None without; what it is in words; and a note where production has to name it."""
    file = Path(Paths.CHECKPOINT.format(model=launch.model))
    checkpoint: Checkpoint | None = read(Checkpoint, file) if launch.model and file.exists() else None
    if checkpoint and checkpoint.revision:
        return checkpoint.source, checkpoint.revision, f"{checkpoint.source} at {checkpoint.revision}", ""
    parameters = launch.plan.parameters if launch.plan else None
    size = f" ({parameters:,} parameters)" if parameters else ""
    if launch.settings.random_weights:
        source = f"{launch.model}{size}, with random weights"
        return None, None, source, "What was measured had random weights: name a model of the same shape."
    source = f"{launch.model}{size}, from {checkpoint.source}" if checkpoint else f"{launch.model}{size}; {file} is not here"
    return None, None, source, "The model lies on the machine that was measured: name where production has it."


def _flags(kind: Managed, launch: Launch, flags: Mapping[str, str | bool]) -> tuple[dict[str, str | bool], list[str]]:
    kept: dict[str, str | bool] = {}
    left: list[str] = []
    reasons = kind.production.left_out
    for given, value in flags.items():
        name = given.replace("_", "-")
        shown = f"--{name}" if isinstance(value, bool) else f"--{name} {value}"
        if name in _ADDRESS:
            continue
        if isinstance(value, str) and REDACTED in value:
            left.append(f"--{name}: its value is a secret; give it as production does.")
        elif reason := reasons.get(name) or reasons.get(f"{name}={value}"):
            left.append(f"{shown}: {reason}.")
        elif name == kind.production.named and value == launch.deployment:
            left.append(f"{shown}: the benchmark's name for it; without this flag, the model's own counts.")
        else:
            kept[name] = value
            if isinstance(value, str) and _PATH.search(value):
                left.append(f"{shown} names a path of the machine that was measured: put the file there, or change it.")
    return kept, left


def _measured(deployment: str, facts: DeploymentFacts | None) -> Iterator[str]:
    if facts is None:
        yield "measured: not yet as it is defined now, or not in this folder"
        return
    results = Results.open() if Path(Paths.SUMMARY).exists() else None
    if results and len(started := results.runs.filter(deployment=deployment)["started"].drop_nulls().sort()):
        days = dict.fromkeys(str(each)[:10] for each in (started[0], started[-1]))
        yield f"measured: {' to '.join(days)}, {count_text(len(started), 'run')}"
    if results is None or not Path(Paths.ANALYSED.format(table="capacity.parquet")).exists():
        yield "limit: not known; the study's workflow has not ended, or has no results/analysis"
        return
    for row in results.analysis("capacity").filter(deployment=deployment).iter_rows(named=True):
        slos = ", ".join(row["slos"]) or "none"
        ends = f"; limit: {found}" if (found := limit(row)) else ""
        yield f"workload {row['workload']}, SLOs {slos}: sustains {sustains(row)}{ends}"


#: The forms, each a template.
FORMS = ("command", "compose", "kubernetes")


def written(exported: Mapping[str, Any], form: str) -> str:
    """The deployment in a form. Args: exported: of `read_exported`.

    Sources: the Compose specification (compose-spec.json); Kubernetes' API of a Deployment (apps/v1) and a Service.

    Raises:
        BenchError: the form starts an image, and none is known of it.
    """
    if form != "command" and exported["no_image"]:
        raise BenchError(f"--form {form}: {exported['no_image']}")
    return render("bench.beside.interop.export", f"{form}.j2", **exported)

"""What of a measured deployment goes to production, and what was held fixed while it was measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bench.errors import BenchError, count_text
from bench.findings.analysis import read_analysis
from bench.findings.capacity.words import limit, sustains
from bench.models.checkpoint_record import Checkpoint
from bench.runs.deployment import DeploymentFacts
from bench.runs.engine import EngineRecord
from bench.runs.environment import REDACTED, redacted, redacted_command, shown_settings
from bench.runs.files import read
from bench.runs.launch import Launch, flags_of
from bench.runs.paths import Paths
from bench.runs.summary import read_summary
from bench.runs.tuning import TuningRecord
from bench.search.tuning_words import found_line
from bench.servers.engines import Managed, managed

# A path by itself, or a text in JSON or a list that begins like one; no address, and no id of the hub.
_PATH = re.compile(r"""(?:^|["'\s=:,])(?:\.{0,2}/|results/)\w""")
_CONTAINERS = ("docker", "podman")
_ADDRESS = ("host", "port")  # flags in whose place each form puts its own


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A deployment as production runs it.

    Attributes:
        deployment: its key. kind: its engine. device: `cpu` or `cuda`. gpus: of one instance; 0 on a CPU.
        command: what starts its server outside of an image. own_command: whether that is the user's own, which no image is known to
            have. image: its image; None where none is known, for `no_image`. built: how the image differs from what was measured.
        model: its id on the hub; None where it has none, and production names one. revision: its commit there.
        flags: the server's flags by name, the commit among them, without those of its address. environment: variables of the server.
        secrets: names of variables whose values are not known here.
        cores: that a CPU engine computes on. pinned: whether each worker was measured on its own of them; else it had one thread, on
            any core. memory_bytes: that a server takes of its machine, as planned; None where not known.
        held: what was held fixed, and what was found. notes: what is left out or differs from what was measured.
    """

    deployment: str
    kind: Managed
    device: str
    gpus: int
    command: tuple[str, ...]
    own_command: bool = False
    image: str | None = None
    no_image: str = ""
    built: str = ""
    model: str | None = None
    revision: str | None = None
    flags: Mapping[str, str | bool]
    environment: Mapping[str, str]
    secrets: tuple[str, ...] = ()
    cores: int
    pinned: bool
    memory_bytes: int | None = None
    held: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def wanted(self) -> str:
        """What production names where the model has no id."""
        return "GGUF file" if self.kind.gguf else "folder of the model"

    def needs_image(self, form: str) -> str:
        """Its image, with its tag.

        Raises:
            BenchError: none is known, or its command is one that no image is known to have.
        """
        if self.own_command:
            own, known = " ".join(self.command), ", ".join(self.kind.production.command)
            raise BenchError(
                f"{self.deployment}: it was started by a command of its own, `{own}`, which an image need not have. Use --form "
                f"command; or measure it with `command: [{known}]`, and what it adds under `flags`."
            )
        if self.image is None:
            raise BenchError(f"{self.deployment}: --form {form} needs an image, and {self.no_image}. Use --form command.")
        return self.image


def read_exported(deployment: str) -> Exported:
    """What the results of this folder hold of a deployment.

    Raises:
        BenchError: there is no such deployment, it was not started here, or no single command line starts it.
    """
    launch = _launch(deployment)
    kind, argv = managed(launch.kind), redacted_command(launch.argv or ())
    wrapped, image, argv = _uncontained(argv)
    head, words = _parts(deployment, argv)
    facts, stale = _facts(launch)
    version = (facts.engine_version if facts else None) or launch.engine_version
    model, revision, source, note = _model(launch)
    flags, left = _flags(kind, launch, flags_of(words))
    if revision and kind.production.revision:
        flags = {kind.production.revision: revision, **flags}
    environment = redacted(launch.environment)
    left += [
        f"{name}={environment[name]}: {reason}." for name, reason in kind.production.variables.items() if name in environment
    ]
    kept = {name: value for name, value in environment.items() if name not in kind.production.variables}
    plain = _is_plain(kind, head)
    published, no_image, built = _image(kind, launch, version, image, wrapped=wrapped)
    tokens = ("HF_TOKEN",) if model else ()
    plan, gpus = launch.plan, launch.gpus or 0
    memory = None if plan is None else plan.needed_bytes if launch.device == "cpu" else (plan.weight_bytes or 0) * gpus or None
    workers = (launch.tensor_parallel or 1) * (launch.pipeline_parallel or 1) * (launch.data_parallel or 1)
    return Exported(
        deployment=deployment,
        kind=kind,
        device=launch.device,
        gpus=gpus,
        command=tuple(kind.production.command if plain else head),
        own_command=not plain,
        image=published,
        no_image=no_image,
        built=built,
        model=model,
        revision=revision,
        flags=flags,
        environment={name: value for name, value in kept.items() if value != REDACTED},
        secrets=tuple(dict.fromkeys([*(name for name, value in kept.items() if value == REDACTED), *tokens])),
        cores=workers * int(launch.configured.get("cores") or 1),
        pinned=launch.configured.get("cores") != 0,
        memory_bytes=memory,
        held=(
            *_held(launch, kind, facts, version, source),
            *([f"image: {image}"] if image else []),
            *_measured(deployment, facts, stale),
        ),
        notes=tuple(filter(None, (note, *left))),
    )


def _launch(deployment: str) -> Launch:
    file = Path(Paths.LAUNCH.format(deployment=deployment))
    known = sorted(each.parent.name for each in Path().glob(Paths.LAUNCH.format(deployment="*")))
    if deployment not in known:
        there = (
            f"There are: {', '.join(known)}." if known else "There are none: run this in a study's folder, after its workflow."
        )
        raise BenchError(f"{file}: no such deployment in {Path.cwd()}. {there}")
    launch = read(Launch, file)
    if launch.argv is None:
        raise BenchError(
            f"{deployment}: the server at {launch.base_url} was not started here, so its command line is not known. Export a "
            "deployment whose engine has `source: lock`, `command` or `container`."
        )
    if launch.replicas > 1:
        raise BenchError(
            f"{deployment}: it is {launch.replicas} replicas behind a router, and a form starts one server. Export a deployment of "
            "one, and scale that."
        )
    return launch


def _uncontained(argv: list[str]) -> tuple[bool, str | None, list[str]]:
    """Whether a container runs it, the image, and the command line in it."""
    runtime = PurePosixPath(argv[0]).name
    if runtime in _CONTAINERS:
        at = argv.index("--entrypoint")
        return True, argv[at + 2], [argv[at + 1], *argv[at + 3 :]]
    if runtime == "apptainer":
        at = argv.index("--pwd")
        return True, argv[at + 2].removeprefix("docker://"), argv[at + 3 :]
    return False, None, argv


def _parts(deployment: str, argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """What of a command line starts the server, and what follows the model."""
    if "--model" in argv[:-1]:
        at = argv.index("--model")
        return list(argv[:at]), list(argv[at + 2 :])
    if "serve" in argv[:-1]:  # takes its model by position
        at = argv.index("serve")
        return list(argv[: at + 1]), list(argv[at + 2 :])
    file = Paths.LAUNCH.format(deployment=deployment)
    raise BenchError(f"{file}: its `argv` names no model. Remove it, and the next workflow resolves the deployment again.")


def _is_plain(kind: Managed, head: Sequence[str]) -> bool:
    """Whether a server is started by nothing but its engine's own command, or by what the benchmark starts in its place."""
    names = [PurePosixPath(word).name for word in head]
    ours = [PurePosixPath(word).name for word in kind.server]
    return names == list(kind.production.command) or names[1:] == ours


def _facts(launch: Launch) -> tuple[DeploymentFacts | None, bool]:
    """What was running, and whether there are facts of another definition alone."""
    file = Paths.facts(launch.deployment)
    facts = read(DeploymentFacts, file) if file.exists() else None
    stale = facts is not None and launch.digest is not None and facts.digest != launch.digest
    return (None if stale else facts), stale


def _model(launch: Launch) -> tuple[str | None, str | None, str, str]:
    """The model's id on the hub and its commit, both None without; what it is in words; and a note where production has to name it."""
    file = Path(Paths.CHECKPOINT.format(model=launch.model))
    checkpoint: Checkpoint | None = read(Checkpoint, file, constants=True) if launch.model and file.exists() else None
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


def _image(
    kind: Managed, launch: Launch, version: str | None, image: str | None, *, wrapped: bool
) -> tuple[str | None, str, str]:
    """The image, why there is none, and how it differs from what was measured."""
    if wrapped:
        if image and (image.endswith(".sif") or image.startswith(("/", "./"))):
            return None, f"{image} is a file of Apptainer", ""
        return image, "", ""
    if version is None:
        return None, f"the version of {kind.title} is not known before a session has measured it", ""
    published = kind.image(version, launch.device)
    if published is None:
        return None, f"{kind.title} {version} is no release of which one is published", ""
    file = Path(Paths.ENGINE.format(engine=launch.engine))
    source = read(EngineRecord, file).source if launch.engine and file.exists() else None
    what = {"lock": "an environment of locked packages", "command": "a command of the machine"}.get(source or "", "no image")
    return published, "", f"Measured was {what}, not the image {published}: the same version, and another build."


def _held(launch: Launch, kind: Managed, facts: DeploymentFacts | None, version: str | None, source: str) -> Iterator[str]:
    yield f"engine: {kind.title} {version or '(version not known)'}, on {'a CPU' if launch.device == 'cpu' else 'GPUs'}"
    yield f"model: {source}"
    if launch.device == "cpu":
        cores = launch.configured.get("cores", "not known")
        yield f"cores of a worker: {'not pinned, one thread' if cores == 0 else cores}"
    else:
        parallel = ((name, getattr(launch, f"{name}_parallel")) for name in ("tensor", "pipeline", "data"))
        kinds = ", ".join(f"{name} parallel {size}" for name, size in parallel if size and size > 1)
        yield f"GPUs of an instance: {launch.gpus if launch.gpus is not None else 'not known'}" + (
            f" ({kinds})" if kinds else ""
        )
    if facts:
        yield f"machine: {facts.hardware.in_short}"
        if facts.inherited:
            shown = ", ".join(f"{name}={value}" for name, value in shown_settings(facts.inherited).items())
            yield f"variables of the user that reached the server: {shown}"
    yield f"digest of the deployment: {launch.digest or 'not recorded'}"


def _measured(deployment: str, facts: DeploymentFacts | None, stale: bool) -> Iterator[str]:
    if facts is None:
        yield "measured: " + ("under another definition; run the workflow again" if stale else "not yet, or not in this folder")
        return
    summary = Path(Paths.SUMMARY)
    if summary.exists():
        started = read_summary(summary).filter(deployment=deployment)["started"].drop_nulls().sort()
        if len(started):
            days = dict.fromkeys(str(each)[:10] for each in (started[0], started[-1]))
            yield f"measured: {' to '.join(days)}, {count_text(len(started), 'run')}"
    if Path(Paths.TUNING).exists() and (line := found_line(read(TuningRecord, Path(Paths.TUNING)), deployment)):
        yield line
    if not Path(Paths.ANALYSED.format(table="capacity.parquet")).exists():
        yield "limit: not known; the study's workflow has not ended, or has no results/analysis"
        return
    for row in read_analysis(Path(Paths.ANALYSIS)).capacity.filter(deployment=deployment).iter_rows(named=True):
        slos = ", ".join(row["slos"]) or "none"
        ends = f"; limit: {found}" if (found := limit(row)) else ""
        yield f"workload {row['workload']}, SLOs {slos}: sustains {sustains(row)}{ends}"

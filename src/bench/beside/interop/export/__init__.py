"""A measured deployment in the forms in which servers are run: a command, a Compose file, a manifest of Kubernetes."""

from __future__ import annotations

import re

from bench.beside.interop.export.exported import Exported, read_exported
from bench.report.render import render
from bench.servers.kind import arguments

__all__ = ["FORMS", "Exported", "read_exported", "written"]

#: The forms, each a template.
FORMS = ("command", "compose", "kubernetes")
_CACHE = "/root/.cache/huggingface"  # where the hub's library keeps models in an image that runs as root
_GIB = 2**30  # bytes of a GiB; convention
_PROCESSES_GIB = 8  # GiB of a GPU server's processes beside its weights; convention
_PROCESSES = 2  # cores of a GPU server beside one for each GPU; source: vLLM, docs/configuration/optimization.md


def written(exported: Exported, form: str) -> str:
    """The deployment in a form.

    Sources: the Compose specification (compose-spec.json); Kubernetes' API of a Deployment (apps/v1) and a Service.

    Raises:
        BenchError: the form starts an image, and none is known of it.
    """
    production, kind = exported.kind.production, exported.kind
    inside = "/model.gguf" if kind.gguf else "/model"
    address = {"host": "0.0.0.0", "port": str(production.port)}  # noqa: S104 - of the container, which publishes its port alone
    own = f"It was measured on cores of its own, {exported.cores} in all; Compose does not pin it."
    name = re.sub(r"[^a-z0-9]+", "-", exported.deployment.lower()).strip("-")[:40].strip("-")
    memory = -(-(exported.memory_bytes or 0) // _GIB) + (_PROCESSES_GIB if exported.gpus else 0)
    return render(
        "bench.beside.interop.export",
        f"{form}.j2",
        x=exported,
        image="" if form == "command" else exported.needs_image(form),
        port=production.port,
        entrypoint=production.entrypoint,
        shared_memory=production.shared_memory,
        named=" ".join(kind.model("\0", exported.command)).replace("\0", '"$MODEL"'),
        flags=[arguments({name: value}) for name, value in exported.flags.items()],
        words=[*kind.model(exported.model or inside, production.command), *arguments({**address, **exported.flags})],
        inside=inside,
        cache=_CACHE,
        cores="" if exported.gpus else own if exported.pinned else "It was measured with one thread, pinned to no core.",
        name=name if name[:1].isalpha() else f"model-{name}".rstrip("-"),  # a Service's name begins with a letter
        cpu=exported.gpus + _PROCESSES if exported.gpus else exported.cores,
        memory=max(1, memory),
    )

"""A measured deployment as a Docker Compose file."""

from __future__ import annotations

from typing import Any

import yaml

from bench.export.comments import head
from bench.export.exported import Exported
from bench.servers.kind import arguments

_CACHE = "/root/.cache/huggingface"  # where the hub's library keeps models in an image that runs as root


def compose_file(exported: Exported) -> str:
    """The file, with one service.

    Source: the Compose specification (compose-spec.json); GPUs as in Docker's documentation, compose/how-tos/gpu-support.

    Raises:
        BenchError: no image is known of it.
    """
    image, production = exported.needs_image("compose"), exported.kind.production
    inside = "/model.gguf" if exported.kind.gguf else "/model"
    address = {"host": "0.0.0.0", "port": str(production.port)}  # noqa: S104 - of the container, which publishes its port alone
    words = [*exported.kind.model(exported.model or inside, production.command), *arguments({**address, **exported.flags})]
    service: dict[str, Any] = {
        "image": _literal(image),
        "entrypoint": list(production.entrypoint),
        "command": [_literal(word) for word in words],
        "ports": [f"${{PORT:-{production.port}}}:{production.port}"],
        "volumes": [f"hf-cache:{_CACHE}" if exported.model else f"${{MODEL:?Set it to the {exported.wanted}.}}:{inside}:ro"],
        "restart": "unless-stopped",
        "healthcheck": {
            "test": ["CMD", "curl", "--fail", "--silent", f"http://localhost:{production.port}{exported.kind.health}"],
            "interval": "10s",
            "start_period": "30m",
        },
    }
    # Without a value a variable has that of the shell that starts Compose.
    variables = {**{name: _literal(value) for name, value in exported.environment.items()}, **dict.fromkeys(exported.secrets)}
    if variables:
        service["environment"] = variables
    if production.shared_memory:
        service["ipc"] = "host"
    if exported.gpus:
        gpu = {"driver": "nvidia", "count": exported.gpus, "capabilities": ["gpu"]}
        service["deploy"] = {"resources": {"reservations": {"devices": [gpu]}}}
    content = {"services": {exported.deployment: service}, **({"volumes": {"hf-cache": None}} if exported.model else {})}
    secrets = [f"{', '.join(exported.secrets)}: taken from the shell that starts Compose."] if exported.secrets else []
    own = f"It was measured on cores of its own, {exported.cores} in all; Compose does not pin it."
    none = "It was measured with one thread, pinned to no core."
    cores = [] if exported.gpus else [own if exported.pinned else none]
    return head(exported, exported.built, *secrets, *cores) + yaml.safe_dump(content, sort_keys=False, width=120)


def _literal(text: str) -> str:
    """Compose reads variables in a text where $ is single."""
    return text.replace("$", "$$")

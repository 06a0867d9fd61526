"""A measured deployment as a shell script."""

from __future__ import annotations

import shlex

from bench.export.comments import comment, head
from bench.export.exported import Exported
from bench.servers.kind import arguments


def script(exported: Exported) -> str:
    """The script: it starts the server in its place, so that signals reach it."""
    production = exported.kind.production
    model = (
        f"MODEL={shlex.quote(exported.model)}" if exported.model else f'MODEL="${{MODEL:?Set it to the {exported.wanted}.}}"'
    )
    named = " ".join(exported.kind.model("\0", exported.command)).replace("\0", '"$MODEL"')
    parts = [f"exec {shlex.join(exported.command)} {named}", '--host "$HOST"', '--port "$PORT"']
    parts += [shlex.join(arguments({name: value})) for name, value in exported.flags.items()]
    secrets = [f"Export {name} beforehand, where it is needed; its value is not recorded." for name in exported.secrets]
    lines = [
        "#!/bin/sh",
        head(exported, "0.0.0.0 serves every machine that reaches this one; HOST=127.0.0.1 this one alone.") + "set -eu",
        *(f"export {name}={shlex.quote(value)}" for name, value in exported.environment.items()),
        *([comment(secrets).rstrip()] if secrets else []),
        model,
        'HOST="${HOST:-0.0.0.0}"',
        f'PORT="${{PORT:-{production.port}}}"',
        " \\\n  ".join(parts),
    ]
    return "\n".join(lines) + "\n"

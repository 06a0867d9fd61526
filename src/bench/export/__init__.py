"""A measured deployment in the forms in which servers are run: a command, a Compose file, values of a Helm chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.export.command import script
from bench.export.compose import compose_file
from bench.export.exported import Exported, read_exported
from bench.export.helm import helm_values

__all__ = ["FORMS", "Exported", "read_exported"]

#: What writes each form.
FORMS: Mapping[str, Callable[[Exported], str]] = {"command": script, "compose": compose_file, "helm": helm_values}

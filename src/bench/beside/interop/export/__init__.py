"""A measured deployment in the forms in which servers are run: a command, a Compose file, a manifest of Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.beside.interop.export.exported import read_exported
from bench.errors import BenchError
from bench.report.render import render

__all__ = ["FORMS", "read_exported", "written"]

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

"""What the endpoints of pooling models share: answers come whole, and hold no tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from bench.runs.form import Omissible
from bench.workloads.endpoints.choices import error_of
from bench.workloads.endpoints.kind import Endpoint


class Pooled(Endpoint):
    """An endpoint of a pooling model. There is no output to time."""

    limits = ()
    lacks: ClassVar[tuple[Omissible, ...]] = ("ignore_eos", "stream_options", "max_tokens", "temperature")
    reasons = False

    def usage(self, content: Mapping[str, Any]) -> Any:
        return content.get("usage")

    def error(self, content: Mapping[str, Any]) -> Any:
        return error_of(content)

    def text(self, content: Mapping[str, Any]) -> str:  # noqa: ARG002 - numbers spell nothing
        return ""

"""An exposition as prometheus_client reads it: all of it, or none."""

from __future__ import annotations

import io
from collections.abc import Iterator

from prometheus_client.parser import text_fd_to_metric_families
from prometheus_client.samples import Sample


class ExpositionError(ValueError):
    """The text is not an exposition; the message holds the line and its number."""


def reference_samples(text: str) -> list[Sample]:
    """The samples of one exposition, by prometheus_client. Raises ExpositionError where it is malformed."""
    number, line = 0, ""

    def lines() -> Iterator[str]:
        nonlocal number, line
        for number, line in enumerate(io.StringIO(text), 1):  # noqa: B007 - for the message about where reading stops
            yield line

    try:
        return [sample for family in text_fd_to_metric_families(lines()) for sample in family.samples]  # type: ignore[arg-type]
    except (ValueError, LookupError, OverflowError) as error:
        raise ExpositionError(f"line {number}, {line.strip()[:200]!r}: {error or 'malformed'}") from None

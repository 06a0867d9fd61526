"""Prometheus exposition text to samples, scrape after scrape, exactly as prometheus_client reads them.

A server's expositions are nearly alike: the same series in the same order, most values as before. So the reference parser reads each
wording once, and afterwards only the lines that changed are looked at.
"""

from __future__ import annotations

import io
import json
import re
from array import array
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.parser import text_fd_to_metric_families
from prometheus_client.samples import Sample


class ExpositionError(ValueError):
    """The text is not an exposition; the message holds the line and its number, which is `line`, too."""

    def __init__(self, line: int, text: str, why: object) -> None:
        super().__init__(f"line {line}, {text.strip()[:200]!r}: {why}")
        self.line = line


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
        raise ExpositionError(number, line, str(error) or "malformed") from None


# Name and labels of a sample.
Series = tuple[str, str]

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
# A sample up to its value, where that end is beyond doubt. The labels are left to the reference parser.
_HEAD = re.compile(rf'(?:{_NAME})?\{{(?:[^"\\}}]|"(?:[^"\\]|\\.)*")*\}}|{_NAME}[ \t]')


class ExpositionReader:
    """Reads the expositions of one endpoint, in their order.

    Args:
        code: gives a series its number, the same one each time.
    """

    def __init__(self, code: Callable[[Series], int]) -> None:
        self._code = code
        self._lines: list[str] = []  # of the newest text
        # Of each line what stands before its value, and its sample's place in these; None: only the reference reads it.
        self._heads: list[tuple[str, int] | None] = []
        self._codes, self._values = array("I"), array("d")

    def read(self, text: str) -> tuple[array[int], array[float]]:
        """The series' numbers and the values of each sample, in the text's order; valid until the next call.

        Raises:
            ExpositionError: the text is malformed.
        """
        lines = text.split("\n")
        if not self._updated(lines):
            self._lines = []  # some values may be new already
            samples = reference_samples(text)
            try:
                self._values = array("d", (float(sample.value) for sample in samples))
            except OverflowError as error:
                raise ExpositionError(1, text, error) from None
            self._codes = array("I", (self._code((sample.name, _labels(sample.labels))) for sample in samples))
            self._learn(lines)
        return self._codes, self._values

    def _updated(self, lines: list[str]) -> bool:
        """Take the values of another text; False if more than values may have changed."""
        if len(lines) != len(self._lines):
            return False
        for line, before, known in zip(lines, self._lines, self._heads, strict=True):
            if line != before:
                head, place = known or ("", 0)
                value = _value(line[len(head) :]) if head and line.startswith(head) else None
                if value is None:
                    return False
                self._values[place] = value
        self._lines = lines
        return True

    def _learn(self, lines: list[str]) -> None:
        """Find the values of a text that the reference has read."""
        heads: list[tuple[str, int] | None] = []
        place = 0
        for line in lines:
            sample = bool(line.strip()) and not line.lstrip().startswith("#")
            match = _HEAD.match(line) if sample else None
            heads.append((match.group(), place) if match else None)
            place += sample
        if place == len(self._values):
            self._lines, self._heads = lines, heads


def _value(text: str) -> float | None:
    """The value after a head; None of one with a timestamp, an exemplar and anything else that is not a number."""
    try:
        return None if "_" in text else float(text)  # Python's float() takes it, the reference does not
    except ValueError:
        return None


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sorted(labels.items()))

"""Prometheus exposition text to samples, scrape after scrape, exactly as prometheus_client reads them.

A server's expositions are nearly alike: the same series in the same order, most values as before. So the reference parser
reads each wording once, with its values left out, and afterwards only the lines that changed are looked at.
"""

from __future__ import annotations

import io
import json
import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

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


# Name and labels of a sample.
Series = tuple[str, str]

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
# A sample up to its value, where that end is beyond doubt. The labels are left to the reference parser.
_HEAD = re.compile(rf'(?:{_NAME})?\{{(?:[^"\\}}]|"(?:[^"\\]|\\.)*")*\}}|{_NAME}[ \t]')
_FAMILY_LIKE = re.compile(r"#\s*(?:HELP|TYPE)\b")
_FAMILY = re.compile(rf"# (?:HELP|TYPE) ({_NAME})(?: |$)")


class _NotSimpleError(Exception):
    """Beyond the fast path; the reference parser decides."""


@dataclass
class _Wording:
    """One way in which an endpoint was seen to word its exposition, and its newest values.

    Attributes:
        lines: the newest text's lines.
        heads: for each line, what stands before its value; None for a comment or a blank line.
        positions: for each line, its sample's place in `codes` and `values`.
        codes: the samples' series. values: their values.
    """

    lines: list[str]
    heads: list[str | None]
    positions: list[int]
    codes: array[int]
    values: array[float]

    def update(self, lines: list[str]) -> bool:
        """Take the values of another text; False, and nothing may be read from this any more, if more than values changed."""
        if len(lines) != len(self.lines):
            return False
        for i, (line, before) in enumerate(zip(lines, self.lines, strict=True)):
            if line != before:
                head = self.heads[i]
                if head is None or not line.startswith(head):
                    return False
                self.values[self.positions[i]] = _value(line[len(head) :])
        self.lines = lines
        return True


class ExpositionReader:
    """Reads the expositions of one endpoint, in their order.

    Args:
        code: gives a series its number, the same one each time.
    """

    def __init__(self, code: Callable[[Series], int]) -> None:
        self._code = code
        self._wording: _Wording | None = None
        self._blocks: dict[tuple[str, ...], list[int]] = {}

    def read(self, text: str) -> tuple[array[int], array[float]]:
        """The series' numbers and the values of each sample, in the text's order; valid until the next call.

        Raises:
            ExpositionError: the text is malformed.
        """
        lines = text.split("\n")
        try:
            if self._wording is None or not self._wording.update(lines):
                self._wording = None
                self._wording = self._new_wording(lines)
        except _NotSimpleError:
            self._wording = None
            samples = reference_samples(text)
            try:
                values = array("d", (float(s.value) for s in samples))
            except OverflowError as error:
                raise ExpositionError(str(error)) from None
            return array("I", (self._code(_series(s)) for s in samples)), values
        return self._wording.codes, self._wording.values

    def _new_wording(self, lines: list[str]) -> _Wording:
        heads = [_head(line) for line in lines]
        wording = _Wording(lines, heads, [], array("I"), array("d"))
        for line, head in zip(lines, heads, strict=True):
            wording.positions.append(len(wording.values))
            if head is not None:
                wording.values.append(_value(line[len(head) :]))
        blocks = {}
        for block in _blocks(line if head is None else f"{head} 0" for line, head in zip(lines, heads, strict=True)):
            if block not in blocks:
                blocks[block] = self._blocks[block] if block in self._blocks else self._block_codes(block)
            wording.codes.extend(blocks[block])
        self._blocks = blocks  # those of the newest wording: label sets that keep changing must not fill the memory
        return wording

    def _block_codes(self, block: tuple[str, ...]) -> list[int]:
        try:
            samples = reference_samples("\n".join(block))
        except ExpositionError:
            raise _NotSimpleError from None
        if len(samples) != sum(bool(line.strip()) and not line.startswith("#") for line in block):
            raise _NotSimpleError
        return [self._code(_series(s)) for s in samples]


def _head(line: str) -> str | None:
    if line.startswith("#"):
        # The reference splits at any blanks, and what it takes for a family decides about the names below it.
        if _FAMILY_LIKE.match(line) and not _FAMILY.match(line):
            raise _NotSimpleError
        return None
    if not line.strip():
        return None
    match = _HEAD.match(line)
    if not match:
        raise _NotSimpleError
    return match.group()


def _value(text: str) -> float:
    """The value after a head; a timestamp, an exemplar and anything else that is not a number are not simple."""
    try:
        if "_" not in text:  # Python's float() takes it, the reference does not
            return float(text)
    except ValueError:
        pass
    raise _NotSimpleError


def _blocks(lines: Iterator[str]) -> Iterator[tuple[str, ...]]:
    """Cut an exposition where another family's HELP or TYPE begins: there the reference forgets all that came before."""
    block: list[str] = []
    family: str | None = None
    for line in lines:
        match = _FAMILY.match(line)
        if match and match.group(1) != family:
            if block:
                yield tuple(block)
            block, family = [], match.group(1)
        block.append(line)
    yield tuple(block)


def _series(sample: Sample) -> Series:
    return sample.name, _labels(sample.labels)


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sorted(labels.items()))

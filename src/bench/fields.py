"""Types of the fields that configuration files have in common: strict models, counts, sizes and addresses."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    WithJsonSchema,
)

# The most that one client sends, so that a slip of the hand is refused before anything is planned.
# requests of a run; each takes about 5 µs and 450 bytes to plan, before the first is sent; convention
MOST_REQUESTS = 1_000_000
# requests/s of a run; at 0.1 ms of CPU each, ten cores do nothing but send; convention
MOST_RATE = 100_000.0
# seconds of a run, or of one wait in it; 30 days, beyond what a cluster gives a job; convention
MOST_S = 30 * 86_400.0
# tokens of a prompt or an answer; the longest context of any published model; convention
MOST_TOKENS = 10_000_000

MOST_RUNS = 100_000  # runs of a study; convention
LONGEST_NAME = 60  # most characters of a name, which becomes a folder; convention
# Names become folders, wildcards and `_`-separated parts of a run's name: hence no underscore, no slash, no upper case.
NAME = r"^[a-z0-9][a-z0-9.-]*$"
Name = Annotated[str, StringConstraints(pattern=NAME, max_length=LONGEST_NAME)]

# Beyond 10¹⁵ a count is a slip of the hand, and a float no longer holds it exactly.
Count = Annotated[int, Field(ge=1, le=10**15)]
Requests = Annotated[int, Field(ge=1, le=MOST_REQUESTS)]
Seconds = Annotated[float, Field(gt=0, le=MOST_S)]
Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]


#: What pydantic names the two kinds of an `or_auto` in the place of a fault; no key has a bracket.
KINDS = ("[values]", "[word]")


def or_auto(values: Any) -> Any:
    """A type of `values`, or of the word `auto`: a text is compared with the word, anything else with the values."""
    kinds = Annotated[values, Tag(KINDS[0])] | Annotated[Literal["auto"], Tag(KINDS[1])]
    return Annotated[kinds, Discriminator(lambda value: KINDS[isinstance(value, str)])]


#: Of a list of texts, which one text may stand for.
LISTED = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)


class Strict(BaseModel):
    """Unknown keys, silent conversions, infinities and NaN are refused: a typo must not cost GPU hours."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


_MOST_BYTES = 2**50


def _size(value: Any) -> str:
    """A size as it is written; a longer one would not fit into a float."""
    if isinstance(value, int):
        value = min(value, 2 * _MOST_BYTES)  # thousands of digits are not written as text
    text = str(value)[:40].strip() if isinstance(value, int | float | str) else ""
    if not re.fullmatch(r"\d+(\.0)?|\d+(\.\d+)?\s*[KMG]i?B", text, re.ASCII):
        raise ValueError("a size is a whole number of bytes or a text such as 64MiB or 1.5GiB")
    return text


def _possible(size: ByteSize) -> ByteSize:
    if size > _MOST_BYTES:
        raise ValueError(f"no memory has more than {_MOST_BYTES // 2**30:,} GiB; check the number and its unit")
    return size


#: Bytes, or a text such as `64MiB`.
Size = Annotated[
    ByteSize,
    BeforeValidator(_size),
    AfterValidator(_possible),
    Field(gt=0),
    WithJsonSchema({"type": ["string", "integer"], "examples": ["64MiB", "1.5GiB"]}),
]


# What an address must not end in, as requests add it: the paths of `bench.workloads.endpoints`.
_ENDPOINT = re.compile(r"(?:/v\d+)?/(?:chat/)?completions|/v\d+/(?:responses|messages|embeddings|rerank|models)", re.IGNORECASE)


def checked_address(value: str, *, of_metrics: bool = False) -> str:
    """`value`, if it is an address of a server.

    Args:
        of_metrics: then `?model=NAME` may follow, as llama.cpp's router wants it. Any other query could be a secret.

    Raises:
        ValueError: it is not `http(s)://host[:port][/path]`.
    """
    try:
        url = urlsplit(value)
        host, port = url.hostname or "", url.port  # a port beyond 65535 raises
        host.encode("idna")  # as looking it up does: an empty or overlong part raises
    except ValueError as error:
        why = "" if "@" in value else f" ({error})"  # which may quote a password
        raise ValueError(f"not an address{why}; write http://HOST:PORT, such as http://127.0.0.1:8000") from None
    if url.username is not None or url.password is not None:
        raise ValueError("contains a user or a password; export a key as OPENAI_API_KEY instead")
    path = url.path.rstrip("/")
    if not of_metrics and (end := _ENDPOINT.search(path)) and end.end() == len(path):
        more = " and what follows it" if url.query or url.fragment else ""
        raise ValueError(f"requests add the endpoint's path themselves; leave out {end[0].removeprefix('/v1')}{more}")
    asked = url.query and not (of_metrics and re.fullmatch(r"model=[^&=]+", url.query))
    odd = (
        asked or (port is None and url.netloc.endswith(":")) or url.fragment or re.search(r"[^\x21-\x7e]|[<>\"{}|\\^`]", value)
    )
    if url.scheme not in ("http", "https") or not host or odd:
        raise ValueError("not an address; write http://HOST:PORT, such as http://127.0.0.1:8000, with at most a path")
    return value

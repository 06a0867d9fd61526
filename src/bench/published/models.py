"""The model catalogue: published models by name, from `models.yaml` beside this file."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from bench.errors import BenchError, shown
from bench.fields import Count, Strict
from bench.yaml_file import read_yaml

__all__ = ["CatalogueEntry", "catalogue", "catalogue_key", "context_of", "decoder_part"]

_MOST_TOKENS = 10**9
_FILE = Path(__file__).with_name("models.yaml")


class CatalogueEntry(Strict):
    """One published model: where it is, and the keys of its config.json from which its memory follows."""

    hub: str = Field(description="Hugging Face id.")
    licence: str = Field(description="Licence, as the model's card names it.")
    source: str = Field(description="Address of the published config.json.")
    parameters: Count = Field(description="Published count of parameters, every tensor once.")
    config: dict[str, Any] = Field(description="Keys of the published config.json.")


@cache
def catalogue() -> Mapping[str, CatalogueEntry]:
    """Every entry by its key.

    Raises:
        BenchError: the file is missing or an entry is wrong.
    """
    try:
        return {key: CatalogueEntry.model_validate(entry) for key, entry in read_yaml(_FILE).items()}
    except ValidationError as error:
        raise BenchError(f"{_FILE}: {error}") from None


def catalogue_key(key: str) -> str:
    """`key`, if the catalogue has it.

    Raises:
        ValueError: it has not; the message names those that are most like it.
    """
    if key in catalogue():
        return key
    close = difflib.get_close_matches(key.lower(), catalogue(), n=3, cutoff=0.4)
    hint = f"the nearest are {', '.join(close)}" if close else f"it has {', '.join(catalogue())}"
    raise ValueError(f"the catalogue has no such model; {hint}")


def decoder_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What of a config.json describes the decoder: all of it, or `text_config` where the model also sees or hears.

    Raises:
        BenchError: `text_config` is no object.
    """
    part = config.get("text_config", config)
    if not isinstance(part, Mapping):
        raise BenchError(f"config.json: text_config is {shown(part)}; it is an object with the decoder's keys")
    return part


def context_of(config: Mapping[str, Any]) -> int | None:
    """Longest sequence (tokens) that a config.json states; None where it states none.

    Raises:
        BenchError: what it states is no number of tokens.

    Source: vLLM takes the same key as the longest `--max-model-len` that it allows.
    """
    part = decoder_part(config)
    key = "max_position_embeddings" if "max_position_embeddings" in part else "n_positions"
    stated = part.get(key)
    whole = isinstance(stated, int | float) and math.isfinite(stated) and 1 <= stated <= _MOST_TOKENS
    if stated is not None and not whole:
        raise BenchError(f"config.json: {key} is {shown(stated)}; it is the longest sequence, a whole number of tokens")
    return None if stated is None else int(stated)

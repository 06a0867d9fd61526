"""The model catalogue: published models by name, from `catalogue.yaml` beside this file."""

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

_MOST_TOKENS = 10**9
_CONTEXTS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length", "max_sequence_length"),
    *("max_seq_length", "seq_len"),
)
_FILE = Path(__file__).with_name("catalogue.yaml")


class CatalogueEntry(Strict):
    """One published model: where it is, and the keys of its config.json from which its memory follows."""

    hub: str = Field(description="Hugging Face id.")
    licence: str = Field(description="Licence, as the model's card names it.")
    source: str = Field(description="Address of the published config.json.")
    parameters: Count = Field(description="Published count of parameters, every tensor once.")
    weight_bytes: Count | None = Field(default=None, description="Bytes of a quantised checkpoint's weights.")
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
    """`key`, if the catalogue has it; the error for another one, a ValueError, names those that are most like it."""
    if key in catalogue():
        return key
    close = difflib.get_close_matches(key.lower(), catalogue(), n=3, cutoff=0.4)
    hint = f"the nearest are {', '.join(close)}" if close else f"it has {', '.join(catalogue())}"
    raise ValueError(f"the catalogue has no such model; {hint}")


# Keys under which models that also see or hear keep their decoder. Source: the configurations of transformers 5 and of vLLM 0.32.
DECODER_KEYS = (
    *("text_config", "llm_config", "language_config", "language_model_config", "thinker_config", "lm_config", "llm"),
    *("language_model", "text_model_config", "decoder", "decoder_config"),
)


def decoder_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What of a config.json describes the decoder: all of it, or what stands under one of `DECODER_KEYS`, at any depth.

    Raises:
        BenchError: `text_config` is no object.
    """
    while True:
        text = config.get("text_config")
        if text is not None and not isinstance(text, Mapping):
            raise BenchError(f"config.json: text_config is {shown(text)}; it is an object with the decoder's keys")
        inner = next((part for key in DECODER_KEYS if isinstance(part := config.get(key), Mapping) and part), None)
        if inner is None:
            return config
        config = inner


def context_of(config: Mapping[str, Any]) -> int | None:
    """Longest sequence (tokens) that a config.json states; None where it states none.

    Raises:
        BenchError: what it states is no number of tokens.

    Source: vLLM takes the smallest of the same keys as the longest `--max-model-len` that it allows (0.32).
    """
    part, found = decoder_part(config), []
    for key in _CONTEXTS:
        stated = part.get(key)
        if stated is None:
            continue
        if not (isinstance(stated, int | float) and math.isfinite(stated) and 1 <= stated <= _MOST_TOKENS):
            raise BenchError(f"config.json: {key} is {shown(stated)}; it is the longest sequence, a whole number of tokens")
        found.append(int(stated))
    return min(found, default=None)

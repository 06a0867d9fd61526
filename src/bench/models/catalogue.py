"""GPUs and models as published, by name, from `accelerators.yaml` and `catalogue.yaml` beside this file."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError

from bench.errors import BenchError, shown
from bench.fields import Count, Size, Strict
from bench.yaml_file import read_yaml

_ACCELERATORS = Path(__file__).with_name("accelerators.yaml")
_Positive = Annotated[float, Field(gt=0)]
_LEAST = 2**30
_YEAR = 365  # days; convention


def _whole(size: int) -> int:
    if size < _LEAST:
        raise ValueError("less than 1 GiB is no GPU's memory; a number alone counts bytes, so write 80GiB")
    return size


class Accelerator(Strict):
    """One kind of GPU."""

    title: str = Field(description="What it is.")
    memory: Annotated[Size, AfterValidator(_whole)] = Field(description="Memory, as `nvidia-smi` tells it, such as `79.65GiB`.")
    bandwidth_tb_s: Annotated[float, Field(gt=0, le=100)] = Field(description="Memory bandwidth (10¹² bytes/s).")
    bf16_tflops: _Positive = Field(description="Dense BF16 with float32 sums (10¹² FLOP/s).")
    fp8_tflops: _Positive | None = Field(
        default=None, description="Dense FP8 likewise (10¹² FLOP/s); none where the device has none."
    )
    power_w: _Positive = Field(description="Board power (W).")
    source: str = Field(description="Where these are printed.")
    price_per_hour: _Positive | None = Field(default=None, description="Price of one device for an hour (USD).")
    price_source: str | None = Field(default=None, description="Where the price is printed.")
    price_date: date | None = Field(default=None, description="When it was printed, at the latest: `2026-11-29`.")

    @property
    def bandwidth(self) -> float:
        """Bytes/s."""
        return self.bandwidth_tb_s * 1e12

    def price_remark(self, today: date) -> str:
        """Where its price is from, of when, and whether that is more than a year before `today`; empty without a price."""
        if self.price_per_hour is None:
            return ""
        dated = f", {self.price_date:%Y-%m} at the latest" if self.price_date else ""
        old = self.price_date is not None and (today - self.price_date).days > _YEAR
        aged = ", more than a year old: look it up and give your own price_per_hour" if old else ""
        return f"{self.price_source or 'without a source'}{dated}{aged}"

    def flops(self, *, fp8: bool = False) -> float:
        """Dense FLOP/s; those of BF16 where FP8 is asked for and the device has none, as engines then compute in 16 bit."""
        return (self.fp8_tflops if fp8 and self.fp8_tflops else self.bf16_tflops) * 1e12


@cache
def _shipped() -> Mapping[str, Mapping[str, Any]]:
    return read_yaml(_ACCELERATORS)


def accelerators(own: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, Accelerator]:
    """Every accelerator by its key.

    Args:
        own: entries that replace shipped ones key by key, or add to them. A price of one's own drops the shipped price's source.

    Raises:
        BenchError: an entry is wrong, or a new one lacks a key.
    """
    entries = {key: dict(entry) for key, entry in _shipped().items()}
    for key, entry in (own or {}).items():
        if not isinstance(entry, Mapping):
            raise BenchError(f"hardware.{key} is {entry!r}; it is a mapping, such as `{{price_per_hour: 2.5}}`.")
        priced = {"price_source": "your own", "price_date": None} if "price_per_hour" in entry else {}
        entries[key] = {**entries.get(key, {}), **priced, **entry}
    found = {}
    for key, entry in entries.items():
        try:
            found[key] = Accelerator.model_validate(entry)
        except ValidationError as error:
            faults = "; ".join(
                f"{'.'.join(map(str, each['loc']))} is "
                + ("missing" if each["type"] == "missing" else f"{shown(each['input'])}: {each['msg']}".replace("Input", "it"))
                for each in error.errors()
            )
            raise BenchError(f"hardware.{key}: {faults}. {_ACCELERATORS} says what each key means.") from None
    return found


def accelerator_named(key: str, known: Mapping[str, Accelerator]) -> Accelerator:
    """The accelerator called `key`; the error for an unknown one names those that are most like it."""
    if key.lower() in known:
        return known[key.lower()]
    raise BenchError(f"no accelerator is called {key}; {_nearest(key, known)}.")


def _nearest(key: str, known: Iterable[str]) -> str:
    names = list(known)
    close = difflib.get_close_matches(key.lower(), names, n=3, cutoff=0.4)
    return f"the nearest are {', '.join(close)}" if close else f"there are {', '.join(names)}"


_MOST_TOKENS = 10**9
_CONTEXTS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length", "max_sequence_length"),
    *("max_seq_length", "seq_len"),
)
_MODELS = Path(__file__).with_name("catalogue.yaml")


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
    """Every entry by its key."""
    return {key: CatalogueEntry.model_validate(entry) for key, entry in read_yaml(_MODELS).items()}


def catalogue_key(key: str) -> str:
    """`key`, if the catalogue has it; the error for another one, a ValueError, names those that are most like it."""
    if key not in catalogue():
        raise ValueError(f"the catalogue has no such model; {_nearest(key, catalogue())}")
    return key


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
            raise BenchError(f"config.json: text_config is {shown(text)}; it must be an object with the decoder's keys")
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
            raise BenchError(
                f"config.json: {key} is {shown(stated)}; it must be a whole number of tokens, the longest sequence"
            )
        found.append(int(stated))
    return min(found, default=None)

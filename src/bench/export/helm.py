"""A measured deployment as values of vLLM's production stack, the Helm chart `vllm/vllm-stack`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml

from bench.errors import BenchError
from bench.export.comments import head
from bench.export.exported import Exported
from bench.servers.kind import arguments

_GIB = 2**30  # bytes of a GiB; convention
_PROCESSES_GIB = 8  # GiB of a GPU server's processes beside its weights; convention
_PROCESSES = 2  # cores of a GPU server beside one for each GPU; source: vLLM, docs/configuration/optimization.md


def _integer(text: str | bool) -> int | None:
    return int(text) if isinstance(text, str) and re.fullmatch(r"[0-9]{1,15}", text) else None


def _switch(value: str | bool) -> bool | None:
    return value if isinstance(value, bool) else None


def _share(text: str | bool) -> float | None:
    return float(text) if isinstance(text, str) and re.fullmatch(r"[0-9]*\.?[0-9]+", text) else None


def _word(text: str | bool) -> str | None:
    return text if isinstance(text, str) else None


# Keys of `vllmConfig` that the chart's templates/deployment-vllm-multi.yaml reads, by flag. Source: chart 0.1.12.
_KEYS: dict[str, tuple[str, Callable[[str | bool], Any]]] = {
    "max-model-len": ("maxModelLen", _integer),
    "dtype": ("dtype", _word),
    "tensor-parallel-size": ("tensorParallelSize", _integer),
    "max-num-seqs": ("maxNumSeqs", _integer),
    "gpu-memory-utilization": ("gpuMemoryUtilization", _share),
    "enable-prefix-caching": ("enablePrefixCaching", _switch),
    "enable-chunked-prefill": ("enableChunkedPrefill", _switch),
}


def helm_values(exported: Exported) -> str:
    """The values: one entry of `servingEngineSpec.modelSpec`.

    Source: the chart's values.yaml and templates, version 0.1.12 (github.com/vllm-project/production-stack).

    Raises:
        BenchError: the chart cannot run this engine, or no image is known of it.
    """
    if exported.kind.name != "vllm":
        raise BenchError(
            f"{exported.deployment}: vLLM's production stack runs vLLM alone, and this is {exported.kind.title}. Use --form compose or "
            "--form command."
        )
    repository, tag = _tagged(exported.needs_image("helm"))
    # The chart switches it off where the key is missing; vLLM's own default is on.
    config: dict[str, Any] = {"enablePrefixCaching": True}
    others: dict[str, str | bool] = {}
    for flag, value in exported.flags.items():
        if flag == exported.kind.production.revision and exported.revision:
            continue  # the chart's modelRevision
        key, read = _KEYS.get(flag, ("", _word))
        if key and (known := read(value)) is not None:
            config[key] = known
        else:
            others[flag] = value
    config.setdefault("tensorParallelSize", 1)  # with it the chart mounts shared memory
    if others:
        config["extraArgs"] = arguments(others)
    memory = -(-(exported.memory_bytes or 0) // _GIB) + (_PROCESSES_GIB if exported.gpus else 0)
    model: dict[str, Any] = {
        "name": _name(exported.deployment),
        "repository": repository,
        "tag": tag,
        "modelURL": exported.model or "CHANGE-ME",
        **({"modelRevision": exported.revision} if exported.revision else {}),
        "replicaCount": 1,
        "requestCPU": exported.gpus + _PROCESSES if exported.gpus else exported.cores,
        "requestMemory": f"{max(1, memory)}Gi",
        "requestGPU": exported.gpus,
        **({} if exported.gpus else {"runtimeClassName": ""}),  # the chart's default, nvidia, is not on nodes without GPUs
        "env": [{"name": name, "value": value} for name, value in exported.environment.items()],
        "vllmConfig": config,
    }
    notes = [
        "helm repo add vllm https://vllm-project.github.io/production-stack; helm install vllm vllm/vllm-stack -f THIS-FILE",
        "requestCPU and requestMemory were not measured: they follow from the model's size and the number of GPUs or cores.",
    ]
    if not exported.model:
        notes.append(
            "modelURL: CHANGE-ME stands for the model's id on the hub, or its path in a volume (pvcStorage, extraVolumes)."
        )
    if exported.secrets:
        notes.append(
            f"{', '.join(exported.secrets)}: no value is recorded. Put what the server needs into a Secret, and name it: "
            "`envFromSecret: {name: …}`; the hub's token: `hf_token: {secretName: …, secretKey: …}`."
        )
    content = {"servingEngineSpec": {"enableEngine": True, "modelSpec": [model]}}
    return head(exported, exported.built, *notes) + yaml.safe_dump(content, sort_keys=False, width=120)


def _tagged(image: str) -> tuple[str, str]:
    """Repository and tag, between which the chart puts a colon; of a digest, what stands on either side of its own."""
    repository, colon, tag = image.rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (image, "latest")


def _name(deployment: str) -> str:
    """A name that Kubernetes takes, for objects that the chart names after it."""
    return re.sub(r"[^a-z0-9]+", "-", deployment.lower()).strip("-")[:40].rstrip("-") or "model"

"""How replicas of vLLM pass KV caches on, where some prefill and the others decode.

Source: `KVTransferConfig` (vllm/config/kv_transfer.py) and the connectors (vllm/distributed/kv_transfer/kv_connector/v1), 0.32.
"""

from __future__ import annotations

import json

from bench.engines.asked import Deployment, Engine, Flag
from bench.records.run import DECODE, PREFILL

_FLAG = "kv-transfer-config"
# Of both it is known how replicas find one another: by a port of their own, and by a folder that all of them have.
_NIXL, _EXAMPLE = "NixlConnector", "ExampleConnector"
_ROLES = {PREFILL: "kv_producer", DECODE: "kv_consumer"}
_CHUNKS = "enable-chunked-prefill"
_FURTHER, _FOLDER = "kv_connector_extra_config", "shared_storage_path"


def transfer_problem(deployment: Deployment, engine: Engine) -> str | None:
    """Why replicas cannot pass KV caches on as the deployment says; None where they can, or need not."""
    if not deployment.prefill_replicas:
        return None
    given = deployment.flags.get(_FLAG)
    example = f'`flags: {{{_FLAG}: \'{{"kv_connector": "{_NIXL}"}}\'}}`'
    if given is None:
        return f"prefill_replicas: no connector passes KV caches on; add {example}"
    try:
        config = json.loads(str(given))
    except ValueError:
        config = None
    where = f"flags.{_FLAG}"
    if not isinstance(config, dict) or not isinstance(config.get(_FURTHER, {}), dict):
        return f"{where}: no JSON object as vLLM takes it; give {example}"
    if "kv_role" in config:
        return f"{where}: kv_role follows from prefill_replicas; remove it"
    if config.get("kv_connector") not in (_NIXL, _EXAMPLE):
        return (
            f"{where}: how replicas find one another is known of the kv_connector {_NIXL} and {_EXAMPLE}, not of "
            f"{config.get('kv_connector')}; give one of them, or measure servers that you start, with `source: external`"
        )
    if _FOLDER in config.get(_FURTHER, {}):
        return f"{where}: {_FOLDER} is a new folder at each start; remove it"
    return _example_problem(deployment, engine) if config["kv_connector"] == _EXAMPLE else None


def _example_problem(deployment: Deployment, engine: Engine) -> str | None:
    """Why replicas cannot pass KV caches on in a folder; None where they can."""
    if engine.source == "container":
        return (
            f"flags.{_FLAG}: {_EXAMPLE} passes KV caches on in a folder, which replicas in containers were not tried with; "
            f"give {_NIXL}, or another source"
        )
    chunks = next((flag for flag in deployment.flags if _plain(flag).removeprefix("no-") == _CHUNKS), None)
    return chunks and f"flags.{chunks}: {_EXAMPLE} takes prompts that are computed whole, so it is off; remove it"


def unchunked_problem(deployment: Deployment, longest: int | None) -> str | None:
    """Why prompts cannot be computed whole, as `ExampleConnector` needs them; None where they can, or where that is not known.

    Source: vLLM refuses to start then (`SchedulerConfig`, vllm/config/scheduler.py).

    Args:
        longest: sequence that the server takes (tokens), where the deployment's flags do not say it.
    """
    if not deployment.prefill_replicas or json.loads(str(deployment.flags[_FLAG]))["kv_connector"] != _EXAMPLE:
        return None
    given = {_plain(flag): value for flag, value in deployment.flags.items()}
    tokens, most = given.get("max-num-batched-tokens"), given.get("max-model-len", longest)
    if not isinstance(tokens, int) or not isinstance(most, int) or tokens >= most:
        return None
    return (
        f"flags.max-num-batched-tokens: {tokens} is less than the longest sequence, {most} tokens, and {_EXAMPLE} takes prompts "
        f"that are computed whole; give {most} or more, or a shorter max-model-len"
    )


def _plain(flag: str) -> str:
    """A flag's name in the spelling of vLLM's documentation."""
    return flag.lstrip("-").replace("_", "-")


def transfer_flags(deployment: Deployment, role: str) -> dict[str, Flag]:
    """The deployment's connector, with the role of a replica, and for ExampleConnector with the folder `{shared}`.

    What that connector finds in its folder it takes as computed, so that each start needs an empty one. Of a prompt that is computed in
    chunks it writes the first alone, and the replica that reads it dies: with 0.32, at eight prompts of 390 tokens at once.
    """
    config = {**json.loads(str(deployment.flags[_FLAG])), "kv_role": _ROLES[role]}
    if config["kv_connector"] != _EXAMPLE:
        return {_FLAG: json.dumps(config)}
    config[_FURTHER] = {**config.get(_FURTHER, {}), _FOLDER: "{shared}"}
    return {_FLAG: json.dumps(config), _CHUNKS: False}


def transfer_variables(deployment: Deployment) -> dict[str, str]:
    """Variables of a replica: for NixlConnector where the others reach it, `{host}`, and at which port, `{channel}`."""
    if not deployment.prefill_replicas or json.loads(str(deployment.flags[_FLAG]))["kv_connector"] != _NIXL:
        return {}
    return {"VLLM_NIXL_SIDE_CHANNEL_HOST": "{host}", "VLLM_NIXL_SIDE_CHANNEL_PORT": "{channel}"}

"""Which of this process's variables a server that is started here gets."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NOT_FOR_THE_ENGINE = (
    # Snakemake sets these to the job's threads for every child; the engine chooses its own.
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "PYTHONPATH"),
    # Images of containers often set it; then each of the engine's processes would compile all that it imports at each start.
    "PYTHONDONTWRITEBYTECODE",
)
# Kubernetes gives every pod these for each Service of its namespace; Docker's links are the last three kinds alone. A Service called
# `vllm` sets VLLM_PORT=tcp://…, at which vLLM ends, and `llama-arg` sets LLAMA_ARG_PORT, `master` MASTER_PORT.
# Source: Kubernetes, docs/concepts/services-networking/service (environment variables).
_LINK = re.compile(r"(?:tcp|udp|sctp)://\S+")
_OF_A_SERVICE = r"_(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"
_CLUSTER = "KUBERNETES"  # the cluster's own: by it programs know that they run in one


def for_a_server(exported: Mapping[str, str]) -> dict[str, str]:
    """The variables that a server inherits: all but those that are meant for others.

    Proxies, paths of libraries and settings of engines are the user's, so they are kept, and recorded if they can change results.
    """
    dropped = {*_NOT_FOR_THE_ENGINE, *service_variables(exported)}
    return {name: value for name, value in exported.items() if name not in dropped}


def service_variables(exported: Mapping[str, str]) -> list[str]:
    """Variables by which Kubernetes or Docker announces other services, in order."""
    announced = {name.removesuffix("_SERVICE_HOST") for name in exported if name.endswith("_SERVICE_HOST")}
    announced = {name for name in announced if f"{name}_SERVICE_PORT" in exported}
    announced |= {
        name.removesuffix("_PORT") for name, value in exported.items() if name.endswith("_PORT") and _LINK.fullmatch(value)
    }
    return sorted(
        name
        for name, value in exported.items()
        for service in announced - {_CLUSTER, ""}
        if name.startswith(service)
        and re.fullmatch(_OF_A_SERVICE, name.removeprefix(service))
        # A port alone may be a setting that only looks like a Service's: VLLM_PORT=8000.
        and (name != f"{service}_PORT" or _LINK.fullmatch(value))
    )

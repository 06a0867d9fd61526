"""Architecture facts: what a model's weights and KV cache weigh, and checkpoints made from them."""

from bench.models.checkpoint import write_checkpoint
from bench.models.geometry import (
    DTYPE_BYTES,
    architecture_of_config,
    kv_bytes_per_token,
    parameters,
    predicted_saturation,
)

__all__ = [
    "DTYPE_BYTES",
    "architecture_of_config",
    "kv_bytes_per_token",
    "parameters",
    "predicted_saturation",
    "write_checkpoint",
]

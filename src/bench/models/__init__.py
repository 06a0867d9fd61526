"""What a model's weights, KV cache and states weigh, from its config.json, and checkpoints made from that."""

from bench.models.checkpoint import write_checkpoint
from bench.models.config_json import (
    config_at,
    config_of,
    geometry_at,
    geometry_of,
    geometry_of_entry,
    geometry_of_model,
    served_model,
    stated_weights,
)
from bench.models.geometry import (
    BLOCK_BYTES,
    DTYPE_BYTES,
    Geometry,
    kv_bytes_of_sequence,
    kv_bytes_per_token,
    state_bytes_per_sequence,
    weight_bytes,
)
from bench.models.memory import KvPool, kv_pool, predicted_saturation
from bench.models.model import UNNAMED, Architecture, Model
from bench.models.plan import choices, plan
from bench.models.remarks import weights_unknown
from bench.models.roofline import Roofline
from bench.models.setting import WEIGHTS, Demand, Setting, served_dtype
from bench.models.stages import Parallel, Stage, layers_of_stages, parallel_problem, stages_of, tensor_parallel_sizes

__all__ = [
    "BLOCK_BYTES",
    "DTYPE_BYTES",
    "UNNAMED",
    "WEIGHTS",
    "Architecture",
    "Demand",
    "Geometry",
    "KvPool",
    "Model",
    "Parallel",
    "Roofline",
    "Setting",
    "Stage",
    "choices",
    "config_at",
    "config_of",
    "geometry_at",
    "geometry_of",
    "geometry_of_entry",
    "geometry_of_model",
    "kv_bytes_of_sequence",
    "kv_bytes_per_token",
    "kv_pool",
    "layers_of_stages",
    "parallel_problem",
    "plan",
    "predicted_saturation",
    "served_dtype",
    "served_model",
    "stages_of",
    "state_bytes_per_sequence",
    "stated_weights",
    "tensor_parallel_sizes",
    "weight_bytes",
    "weights_unknown",
    "write_checkpoint",
]

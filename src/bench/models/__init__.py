"""What a model's weights and KV cache weigh, from its config.json, and checkpoints made from that."""

from bench.models.checkpoint import write_checkpoint
from bench.models.config_json import config_of, geometry_at, geometry_of, geometry_of_model
from bench.models.geometry import DTYPE_BYTES, Geometry, kv_bytes_of_sequence, kv_bytes_per_token, weight_bytes
from bench.models.memory import KvPool, cuda_overhead_bytes, kv_pool, predicted_saturation
from bench.models.plan import choices, plan, tensor_parallel_sizes
from bench.models.roofline import Roofline
from bench.models.setting import WEIGHTS, Demand, Setting

__all__ = [
    "DTYPE_BYTES",
    "WEIGHTS",
    "Demand",
    "Geometry",
    "KvPool",
    "Roofline",
    "Setting",
    "choices",
    "config_of",
    "cuda_overhead_bytes",
    "geometry_at",
    "geometry_of",
    "geometry_of_model",
    "kv_bytes_of_sequence",
    "kv_bytes_per_token",
    "kv_pool",
    "plan",
    "predicted_saturation",
    "tensor_parallel_sizes",
    "weight_bytes",
    "write_checkpoint",
]

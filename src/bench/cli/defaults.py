"""Defaults and choices that the help shows.

They are those of the study's models, copied because reading them there would cost `bench --help` half a second; a test compares them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from bench.workloads.endpoints import ENDPOINTS

GPU_MEMORY_UTILIZATION = 0.9
TENSOR_PARALLEL = 1
MAX_NUM_SEQS = 256

# In the order of `bench.study`: equal Literals are one object, so that another order here would also be the configuration's.
if TYPE_CHECKING:
    Endpoint = str
else:
    Endpoint = Literal[tuple(ENDPOINTS.every())]
WeightDtype = Literal["bfloat16", "float16", "float32", "fp8", "int8", "int4"]
KvDtype = Literal["float32", "bfloat16", "float16", "fp8"]

"""GPUs that are planted below NVIDIA's binding, for the tests of this folder."""

from tests.support.nvml import planted, without_nvml  # noqa: F401

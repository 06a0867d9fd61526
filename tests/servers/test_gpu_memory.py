"""The memory of the GPUs that a server gets; an instance of a GPU that is divided is a device of its own memory."""

from bench.servers.gpus import least_memory

MIB = 2**20
COMMON = {"watts": 90.0, "utilisation": 0, "used": 0, "free": 0}
WHOLE = {**COMMON, "uuid": "GPU-aaaa", "name": "NVIDIA H100 80GB HBM3", "total": 81559 * MIB, "mig": 0}
# `nvidia-smi --query-gpu=memory.total` says 81559 MiB of this one, too.
CUT = {**WHOLE, "uuid": "GPU-bbbb", "mig": 1, "instances": ["MIG-4g", "MIG-1g"], "slices": [40448 * MIB, 9984 * MIB]}
OLD = {**COMMON, "uuid": "GPU-cccc", "name": "Tesla T4", "total": 15360 * MIB}


def test_the_memory_that_a_server_gets(planted):
    for gpus, shown, mib in (
        ([WHOLE], None, 81559),
        ([OLD, WHOLE], None, 15360),
        ([OLD, WHOLE], "1", 81559),
        ([OLD, WHOLE], "GPU-aa", 81559),
        ([CUT], None, 9984),
        ([CUT], "MIG-4g", 40448),
        ([CUT], "MIG-1g", 9984),
        ([CUT], "0", 9984),
        ([WHOLE, CUT], "0", 81559),
        ([WHOLE, CUT], "0,-1,1", 81559),
        ([{**CUT, "instances": [], "slices": []}], None, None),  # in MIG mode and not divided: CUDA shows nothing
        ([WHOLE], "", None),
        ([{**WHOLE, "instances": ["MIG-4g"], "slices": [MIB]}], None, 81559),  # no longer in MIG mode
    ):
        planted(*gpus)
        environment = {} if shown is None else {"CUDA_VISIBLE_DEVICES": shown}
        assert least_memory(environment) == (None if mib is None else mib * MIB), (gpus, shown)

"""NVIDIA's own binding on a library of known truth: this folder stands before the others on the path of a process that looks at GPUs.

The binding is the installed one, run in this module; only the C library below it is replaced. GPUs are planted in the environment, as
JSON in FAKE_NVML: a list of `uuid`, `name`, `watts`, `utilisation` (percent), `used` and `free` (bytes), and, where wanted, `refuses`
(functions of the library that answer "not supported"), `instances` (UUIDs of MIG instances, of which each holds a quarter), `mig`
(whether the GPU is in MIG mode), `total` and `slices` (memory of the GPU and of each instance, in bytes). A GPU's
energy counter is its watts times CLOCK_MONOTONIC. `lacks` in the first one names functions that an old library does not have.
"""

import ctypes
import importlib.metadata
import json
import os
import time
from pathlib import Path

_REAL = Path(str(importlib.metadata.distribution("nvidia-ml-py").locate_file("pynvml.py")))
exec(compile(_REAL.read_text(), str(_REAL), "exec"))  # noqa: S102 - the installed binding itself

_DONE, _INVALID, _NOT_SUPPORTED, _NOT_FOUND = 0, 2, 3, 6  # codes of NVML's
_HELD, _RESERVED = 40, 2**20

# What is told of a whole GPU alone, and of an instance too: fields of the structure that the last argument points to.
_OF_A_GPU = {
    "nvmlDeviceGetUtilizationRates": lambda gpu: {"gpu": gpu["utilisation"], "memory": _HELD},
    "nvmlDeviceGetPowerUsage": lambda gpu: {"value": round(1000 * gpu["watts"])},
    "nvmlDeviceGetTotalEnergyConsumption": lambda gpu: {"value": round(1000 * gpu["watts"] * time.monotonic())},
    "nvmlDeviceGetClockInfo": lambda _gpu: {"value": 1980},
    "nvmlDeviceGetTemperature": lambda _gpu: {"value": 61},
    "nvmlDeviceGetMaxMigDeviceCount": lambda _gpu: {"value": 7},
}
_OF_BOTH = {
    # The first version counts what the driver reserves as used.
    "nvmlDeviceGetMemoryInfo": lambda gpu: {
        "used": gpu["used"] + _RESERVED,
        "free": gpu["free"],
        "total": gpu.get("total", 80 * 2**30),
    },
    "nvmlDeviceGetMemoryInfo_v2": lambda gpu: {"used": gpu["used"], "free": gpu["free"], "reserved": _RESERVED},
}


class _Library:
    """The functions of libnvidia-ml.so that are asked for, for the GPUs in the environment."""

    def __init__(self, gpus):
        self._gpus = gpus
        self._handles = [(gpu, None) for gpu in gpus] + [(gpu, uuid) for gpu in gpus for uuid in gpu.get("instances", [])]

    def __getattr__(self, function):
        if function.startswith("__") or function in self._gpus[0].get("lacks", []):
            raise AttributeError(function)
        plain = {
            "nvmlInitWithFlags": lambda _flags: _DONE,
            "nvmlDeviceGetCount_v2": lambda where: _put(where, value=len(self._gpus)),
            "nvmlDeviceGetHandleByIndex_v2": lambda index, where: self._handle(self._gpus, index, None, where),
        }
        return plain.get(function) or (lambda handle, *rest: self._of(function, handle, *rest))

    def _of(self, function, handle, *rest):
        gpu, instance = self._handles[ctypes.cast(handle, ctypes.c_void_p).value - 1]
        if function in gpu.get("refuses", []) or (instance and function in _OF_A_GPU):
            return _NOT_SUPPORTED
        if function == "nvmlDeviceGetUUID":
            return _text(rest[0], instance or gpu["uuid"])
        if function == "nvmlDeviceGetName":
            return _text(rest[0], gpu["name"])
        if function == "nvmlDeviceGetGpuInstanceId":
            return _put(rest[-1], value=3 + gpu["instances"].index(instance))
        if function == "nvmlDeviceGetMigDeviceHandleByIndex":
            return self._handle(gpu.get("instances", []), *rest[:1], gpu, rest[-1])
        if function == "nvmlDeviceGetMigMode":  # now, and after the next reset
            return _put(rest[0], value=gpu["mig"]) or _put(rest[1], value=gpu["mig"]) if "mig" in gpu else _NOT_SUPPORTED
        share = {**gpu, "used": gpu["used"] // 4} if instance else gpu
        if instance and "slices" in gpu:
            share["total"] = gpu["slices"][gpu["instances"].index(instance)]
        return _put(rest[-1], **{**_OF_A_GPU, **_OF_BOTH}[function](share))

    def _handle(self, among, index, gpu, where):
        if index.value >= len(among):
            return _NOT_FOUND if gpu else _INVALID
        of = (gpu, among[index.value]) if gpu else (among[index.value], None)
        number = 1 + self._handles.index(of)
        ctypes.cast(ctypes.byref(where._obj), ctypes.POINTER(ctypes.c_void_p)).contents.value = number
        return _DONE


def _put(where, **fields):
    for name, value in fields.items():
        setattr(where._obj, name, value)
    return _DONE


def _text(buffer, text):
    buffer.value = text.encode()
    return _DONE


nvmlLib = _Library(json.loads(os.environ["FAKE_NVML"]))

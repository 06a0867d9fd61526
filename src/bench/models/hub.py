"""A checkpoint on the Hugging Face hub, before it is fetched: its shape and its weights, and whether it can be fetched."""

from __future__ import annotations

import shutil
from fnmatch import fnmatch
from pathlib import Path

from bench.errors import BenchError, shown_size
from bench.models.checkpoint_record import weights_of
from bench.models.config_json import config_at, geometry_of, of_heads
from bench.models.geometry import Geometry
from bench.models.model import Model

FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]


def geometry_on_hub(name: str) -> Geometry:
    """The geometry of a checkpoint on the hub, by its config.json and the heads of its safetensors files; no weights are fetched.

    Raises:
        BenchError: the hub does not give them, or the model is not one that is read here.
    """
    from huggingface_hub import HfApi, constants, get_safetensors_metadata, hf_hub_download  # noqa: PLC0415
    from huggingface_hub.errors import NotASafetensorsRepoError  # noqa: PLC0415

    try:
        HfApi().model_info(name, timeout=constants.HF_HUB_ETAG_TIMEOUT)  # ahead of downloads, which try again for half a minute
        config = config_at(Path(hf_hub_download(name, "config.json")))
        files = list(get_safetensors_metadata(name).files_metadata.values())
    except NotASafetensorsRepoError:
        files = []
    except BenchError:
        raise
    except Exception as error:  # whatever its transport raises
        raise BenchError(
            f"{name}: the hub does not return its config.json and the headers of its weights ({type(error).__name__}). Check the id, "
            "the network and HF_TOKEN; or name a config.json on this machine, with --parameters."
        ) from None
    tensors = [(key, tensor.dtype, tensor.shape) for file in files for key, tensor in file.tensors.items()]
    return geometry_of(config, weights_of(tensors, *of_heads(config)) if tensors else None)


def refuse_unfetchable(name: str, model: Model) -> None:
    """Ask the hub whether this user may have the checkpoint, and the disk whether it has room; nothing where it is here already.

    Raises:
        BenchError: the hub does not answer, does not have it, or does not give it to this user; or the disk is too small.
    """
    # The workflow reads configurations without it.
    from huggingface_hub import HfApi, constants, snapshot_download  # noqa: PLC0415
    from huggingface_hub.errors import LocalEntryNotFoundError  # noqa: PLC0415

    hub, commit = model.on_hub
    try:
        snapshot_download(hub, revision=commit, allow_patterns=FILES, local_files_only=True)
        return
    except LocalEntryNotFoundError:
        pass
    where, api = f"models.{name}.hub", HfApi()
    try:
        info = api.model_info(hub, revision=commit, files_metadata=True, timeout=constants.HF_HUB_ETAG_TIMEOUT)
        if info.gated:
            api.auth_check(hub)
    except Exception as error:  # whatever its transport raises
        why = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise BenchError(
            f"{where}: {constants.ENDPOINT} does not give {hub} at {commit} ({why}). Check the id, the commit and the network; of a "
            "gated model accept the terms on its page, and export that account's token as HF_TOKEN; or give `path`."
        ) from None
    files = [file for file in info.siblings or () if any(fnmatch(file.rfilename, pattern) for pattern in FILES)]
    size = sum(file.size or 0 for file in files)
    cache = Path(constants.HF_HUB_CACHE)
    folder = next(place for place in (cache, *cache.parents) if place.exists())
    free = shutil.disk_usage(folder).free
    if size > free:
        raise BenchError(
            f"{where}: {hub} takes {shown_size(size)}, and {cache} has {shown_size(free)} free. Make room, or set HF_HOME to a "
            "folder on another disk."
        )

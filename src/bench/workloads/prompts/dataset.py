"""A file of a data set on a hub, at a pinned revision."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from bench.errors import BenchError

DATASET = r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$"  # an owner and a name
REVISION = r"^[0-9a-f]{40}$"  # a commit: a branch or a tag may move


def fetch_dataset(dataset: str, revision: str, path: str, target: Path) -> None:
    """Put the file at `path` of a data set there, whole or not at all: as the hub at HF_ENDPOINT has it at that commit.

    Raises:
        BenchError: the hub does not answer, or does not give it.
    """
    # The workflow reads configurations without it.
    from huggingface_hub import hf_hub_download  # noqa: PLC0415
    from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415

    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    what = f"prompts.dataset: the hub at {hub}", f"{path} of {dataset} at {revision}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        try:
            file = hf_hub_download(dataset, path, repo_type="dataset", revision=revision, endpoint=hub, local_dir=scratch)
        except HfHubHTTPError as error:
            raise BenchError(
                f"{what[0]} does not give {what[1]}: {str(error).strip().splitlines()[-1]} Check the names and the revision; of a data "
                "set with terms accept these, and export a token of that account as HF_TOKEN."
            ) from None
        except Exception as error:  # whatever its transport raises
            raise BenchError(
                f"{what[0]} does not answer ({type(error).__name__}), and {what[1]} is not on this machine. Check the network, or give "
                "the file itself."
            ) from None
        Path(file).replace(target)

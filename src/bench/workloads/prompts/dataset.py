"""A file of a data set on a hub, at a pinned revision."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from bench.errors import BenchError

DATASET = r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$"  # an owner and a name
REVISION = r"^[0-9a-f]{40}$"  # a commit: a branch or a tag may move


def fetch_dataset(dataset: str, revision: str, path: str, target: Path) -> None:
    """Put the file at `path` of a data set there, whole or not at all: as the commit has it, by the hash that the hub says.

    The hub is the one at HF_ENDPOINT; HF_TOKEN opens what is given to its account alone.

    Raises:
        BenchError: the hub does not answer, does not give it, or gives something else.
    """
    # The workflow reads configurations without it.
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url  # noqa: PLC0415
    from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415

    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    where = f"{path} of {dataset} at {revision}"
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        try:
            said = get_hf_file_metadata(
                hf_hub_url(dataset, path, repo_type="dataset", revision=revision, endpoint=hub), endpoint=hub
            )
            file = Path(hf_hub_download(dataset, path, repo_type="dataset", revision=revision, endpoint=hub, local_dir=scratch))
        except HfHubHTTPError as error:
            raise BenchError(
                f"prompts.dataset: the hub at {hub} does not give {where}: {str(error).strip().splitlines()[-1]} Check the names and "
                "the revision; of a data set with terms accept these, and export a token of that account as HF_TOKEN."
            ) from None
        except Exception as error:  # whatever its transport raises
            raise BenchError(
                f"prompts.dataset: the hub at {hub} does not answer ({type(error).__name__}), and {where} is not on this machine. "
                "Check the network, or give the file itself."
            ) from None
        content = file.read_bytes()
        if said.commit_hash != revision or said.etag not in _hashes(content):
            raise BenchError(
                f"prompts.dataset: the hub at {hub} gave another file than {where}: it says commit {said.commit_hash} and hash "
                f"{said.etag}, which are not those of the file. Try again, or another hub (HF_ENDPOINT)."
            )
        file.replace(target)


def _hashes(content: bytes) -> set[str]:
    """By what a hub knows a file: its SHA-256 in large file storage, else that of git."""
    of_git = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
    return {hashlib.sha256(content).hexdigest(), of_git.hexdigest()}

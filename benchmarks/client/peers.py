"""The peers' environments: pinned, each of its own, built when first needed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

from bench.models.checkpoint import write_checkpoint
from bench.models.model import Model
from bench.runs.files import read
from bench.runs.launch import EngineRecord

__all__ = ["AIPERF", "FOLDER", "GUIDELLM", "VLLM_RS", "environment", "tokenizer", "vllm_python"]

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "benchmarks" / ".peers"
GUIDELLM = "guidellm==0.8.1"
AIPERF = "aiperf==0.13.0"
VLLM_RS = "vllm==0.32.0"
_VLLM_ENGINE = "results/engines/vllm-cpu/engine.json"


def environment(requirement: str, *further: str, dependencies: bool = True) -> Path:
    """The `bin` folder of a virtual environment that holds `requirement`, which names it, and `further` ones; built where missing.

    Args:
        dependencies: False installs the packages alone (vLLM's wheel holds a Rust binary that needs nothing else of it).

    Raises:
        RuntimeError: the installation failed; it says why.
    """
    folder = FOLDER / requirement.replace("==", "-")
    ready = folder / "ready"
    if not ready.exists():
        print(f"building the environment of {requirement}", flush=True)
        begin = time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)
        uv = str(Path(sys.executable).parent / "uv")
        _call([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
        install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(folder / "bin" / "python")]
        _call([*install, *([] if dependencies else ["--no-deps"]), requirement, *further])
        ready.touch()
        print(f"built in {time.monotonic() - begin:.0f} s", flush=True)
    return folder / "bin"


def vllm_python() -> Path:
    """The Python of the default study's engine, built by the workflow's rule where it is missing.

    Raises:
        RuntimeError: the rule failed.
    """
    record = ROOT / _VLLM_ENGINE
    if not record.exists():
        print("building vLLM's environment with the workflow's rule (a minute or two)", flush=True)
        _call([str(Path(sys.executable).parent / "snakemake"), "--nolock", "--cores", "1", _VLLM_ENGINE])
    return ROOT / (read(EngineRecord, record).command or ("",))[0]


def tokenizer() -> Path:
    """A local tokenizer and model configuration, which every peer wants and no client here needs."""
    record = FOLDER / "checkpoint" / "checkpoint.json"
    if not record.exists():
        config = {
            "model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 1,
            "head_dim": 16, "intermediate_size": 64, "vocab_size": 1024, "max_position_embeddings": 4096,
        }  # fmt: skip
        write_checkpoint("truth", Model(config=config), record)
    return record.parent / "model"


def _call(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name} failed: {done.stderr.strip()[-800:]}")

"""When measuring changes, old runs no longer compare: somebody must say so."""

import hashlib

from pydantic import BaseModel

from bench.models import Model
from bench.study.config import Deployment, Engine
from bench.study.plan import PROTOCOL, digest
from bench.study.workload import Workload
from tests.support.study import ROOT

# What decides a measurement. A change here that alters what is measured or how it is stamped raises PROTOCOL (all runs are measured
# again); one that does not, such as a comment, only renews the digest below: `pytest tests/study/test_protocol.py` prints it.
MODULES = [
    *(
        str(file.relative_to(ROOT))
        for room in ("endpoints", "prompts")
        for file in sorted((ROOT / "src/bench" / room).glob("*.py"))
    ),
    "src/bench/engine/fleet.py",
    "src/bench/engine/launch.py",
    "src/bench/engine/server.py",
    "src/bench/engines/llama_server.py",
    "src/bench/engines/llamacpp.py",
    "src/bench/engines/vllm.py",
    "src/bench/load/__main__.py",
    "src/bench/load/answer.py",
    "src/bench/load/arrivals.py",
    "src/bench/load/client.py",
    "src/bench/load/connection.py",
    "src/bench/load/events.py",
    "src/bench/load/exchange.py",
    "src/bench/load/introduction.py",
    "src/bench/load/loop.py",
    "src/bench/load/mixture.py",
    "src/bench/load/overload.py",
    "src/bench/load/payload.py",
    "src/bench/load/records.py",
    "src/bench/load/response.py",
    "src/bench/load/schedule.py",
    "src/bench/load/sdk.py",
    "src/bench/load/timer.py",
    "src/bench/models/checkpoint.py",
    "src/bench/models/config_json.py",
    "src/bench/models/gguf.py",
    "src/bench/models/tokenizer.py",
    "src/bench/records/form.py",
    "src/bench/records/request.py",
    "src/bench/records/run.py",
    "src/bench/study/arrivals.py",
    "src/bench/study/lengths.py",
    "src/bench/routers.py",
    "src/bench/table_file.py",
    "src/bench/study/trace.py",
    "src/bench/telemetry/scraper.py",
    "src/bench/measure/losing.py",
    "src/bench/measure/recording.py",
    "src/bench/measure/reference.py",
    "src/bench/measure/rounds.py",
    "src/bench/measure/session.py",
    "src/bench/measure/warmup.py",
]
KNOWN = (6, "371f9a1942b988ce")


def test_a_change_of_the_measuring_is_declared():
    content = b"".join((ROOT / module).read_bytes() for module in MODULES)
    now = (PROTOCOL, hashlib.sha256(content).hexdigest()[:16])
    assert now == KNOWN, f"measuring changed: raise PROTOCOL if old runs no longer compare, then set KNOWN = {now}"


# Digests leave defaults out, so that a new key measures nothing again; then a changed default must say so.
DEFAULTS = (6, "3fd1464213e81afd")


def test_a_changed_default_is_declared():
    fields = {
        f"{model.__name__}.{name}": _plain(field.get_default(call_default_factory=True))
        for model in (Deployment, Engine, Model, Workload)
        for name, field in model.model_fields.items()
        if not field.is_required()
    }
    now = (PROTOCOL, digest(fields)[:16])
    assert now == DEFAULTS, f"a default changed or a key came: raise PROTOCOL if a default changed, then set DEFAULTS = {now}"


def _plain(value):
    return value.model_dump() if isinstance(value, BaseModel) else value

"""Which runs may stand beside one another: of one way of measuring, one device, and one version of the engine.

When measuring changes, old runs no longer compare, and somebody must say so.
"""

import ast
import hashlib
import json
import re
from contextlib import nullcontext

import pytest
from pydantic import BaseModel

from bench.errors import BenchError
from bench.measure.preflight import hardware_of, refuse_others
from bench.measure.session import measure
from bench.models.model import Model
from bench.runs.files import digest, write_record
from bench.runs.store import Store
from bench.servers.deployment import Deployment, Engine
from bench.servers.facts import hardware, inherited
from bench.study.plan import Plan
from bench.study.read import load_config
from bench.study.specs import PROTOCOL
from bench.workloads.workload import Workload
from tests.support import records
from tests.support.cases import cases
from tests.support.made import made_study, make_run
from tests.support.study import ROOT

# What decides a measurement. A change here that alters what is measured or how it is stamped raises PROTOCOL (all runs are measured
# again); one that does not, such as a name, only renews the digest below: `pytest tests/study/test_protocol.py` prints it.
DECIDING = {
    "load": "__main__ answer client connection exchange introduction loop overload payload records response sdk timer",
    "measure": "recording rounds scraper session warmup",
    "models": "checkpoint config_json gguf tokenizer",
    "runs": "request run",
    "servers": "fleet launch llama_server llamacpp server vllm",
    "workloads": "gaps lengths pacer schedule trace",
    ".": "table_file",
}
LIBRARY = ROOT / "src/bench"
MODULES = [
    *sorted(file for room in ("endpoints", "prompts") for file in (LIBRARY / "workloads" / room).glob("*.py")),
    *(LIBRARY / room / f"{name}.py" for room, names in DECIDING.items() for name in names.split()),
]
KNOWN = (6, "71476d8b6ea5cde5")


def code_of(file):
    """A module without its imports, comments and docstrings, which decide nothing: one that moves measures as before."""
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [each for each in body if not isinstance(each, ast.Import | ast.ImportFrom) and not said(each)]
    return ast.unparse(tree)


def said(statement):
    """Whether it is a text alone."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def test_a_change_of_the_measuring_is_declared():
    content = "".join(sorted(map(code_of, MODULES)))
    now = (PROTOCOL, hashlib.sha256(content.encode()).hexdigest()[:16])
    assert now == KNOWN, f"measuring changed: raise PROTOCOL if old runs no longer compare, then set KNOWN = {now}"


# Digests leave defaults out, so that a new key measures nothing again; then a changed default must say so.
DEFAULTS = (6, "a91f3c9114045361")


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


def held(folder, select="*", **result):
    """A plan of which the first run is in a store, with what its record tells."""
    content = made_study(4, 4)
    run, store = Plan.of(load_config(content, source="made")).runs[0], Store(folder)
    with store.adding(run) as place:
        make_run(run, place)
        record = json.loads((place / "run.json").read_text())
        (place / "run.json").write_text(json.dumps(record | result))
    return Plan.of(load_config(content | {"select": select}, source="made")), run, store


EXPORTED = {"NCCL_P2P_DISABLE": "1", "VLLM_HOST_IP": "10.0.0.7"}
VERSIONS = {"engine_version": "0.26.0", "router_version": "2.6.1"}


def exported(**environment):
    """What a record has of these variables."""
    return inherited(Plan.of(load_config(made_study(4, 4), source="made")).deployments["d000"], {}, environment)


@cases(
    ("known", "now", "said"),
    [
        ({"device": hardware().cpu}, {"device": hardware().cpu}, None),
        (VERSIONS, {"engine_version": "0.26.0"}, None),
        (VERSIONS, {"engine_version": "99"}, "engine version is 99 now and was 0.26.0 then"),
        (VERSIONS, {"router_version": "2.6.1"}, None),
        (VERSIONS, {"router_version": None}, None),  # not known is not different
        (VERSIONS, {"router_version": "3"}, "router version is 3 now and was 2.6.1 then"),
        # What a scheduler assigns, secrets and places are no difference.
        ({"environment": exported(**EXPORTED | {"HF_TOKEN": "x"})},
         {"environment": exported(**EXPORTED | {"HF_TOKEN": "another"}, CUDA_VISIBLE_DEVICES="3", HF_HOME="/x")}, None),
        ({"environment": exported(**EXPORTED)},
         {"environment": exported(**EXPORTED | {"NCCL_P2P_DISABLE": "0"}, OMP_STACKSIZE="1M")},
         "NCCL_P2P_DISABLE is 0 now and was 1 then; OMP_STACKSIZE is 1M now and was not set then"),
    ],
)  # fmt: skip
def test_a_level_more_goes_on_where_nothing_differs_that_decides(tmp_path, known, now, said):
    plan, run, store = held(tmp_path, **known)
    with pytest.raises(BenchError, match=re.escape(said)) if said else nullcontext():
        refuse_others(plan, run.deployment, store, **now)


@cases(
    ("select", "known", "said"),
    [
        *((select, {"device": "Another CPU"}, r"device is .* now and was Another CPU then\..*`bench runs --discard 'd000/\*'`")
          for select in ("*", "*_c0004_*")),
        ("*", {"device": hardware().cpu, "environment": exported(NCCL_P2P_DISABLE="1")}, ".*NCCL_P2P_DISABLE is not set now and was 1 then"),
    ],
)  # fmt: skip
def test_it_is_refused_before_any_server_starts(tmp_path, select, known, said):
    plan, run, store = held(tmp_path / "store", select, **known)
    launch = tmp_path / "launch.json"
    write_record(records.launch(deployment="d000", argv=("true",), digest=run.deployment.digest), launch)
    with pytest.raises(BenchError, match=rf"d000: d000/.* was measured differently: {said}"):
        measure(plan, "d000", plan.runs, launch=launch, facts=tmp_path / "deployment.json", store=store, say=print)
    store.discard(run)
    refuse_others(plan, run.deployment, store, device=hardware_of(run.deployment))  # nothing left that would not compare

"""A server, and the verdict of a run that measured it."""

from bench.load.client import Load
from bench.load.target import Target
from bench.measure.recording import record_run
from bench.parse.run import parse_run
from bench.parse.validity import verdict
from bench.study.config import Thresholds
from bench.workloads.workload import Workload
from tests.support import records
from tests.support.fake_server import fake_server
from tests.support.study import METRICS

# A quiet machine is no condition of these tests: what they do not make happen must not be named.
CALM = Thresholds(
    **dict.fromkeys(("client_delay_p99_s", "scrape_gap_s", "client_cpu_share"), 30.0),
    other_share=1.0,
)  # fmt: skip


def exposition(server, **told):
    """What an honest vLLM would say: what is in flight, and tokens of the requests so far; `told` says otherwise."""
    values = {
        "running": server.in_flight, "waiting": 0, "kv_usage": 0.5, "prefix_queries": 16 * len(server.bodies), "prefix_hits": 0,
        "server_prompt_tokens": server.prompted, "server_generation_tokens": server.generated, **told,
    }  # fmt: skip
    lines = [f"{name} {values.get(ours, 0)}" for ours, name in METRICS.items() if values.get(ours, 0) is not None]
    return "\n".join(lines) + "\n"


def judged(server, folder, level=4, *, thresholds=CALM, **workload):
    """The verdict on one run that is measured and parsed."""
    content = {"arrival": "burst", "prompt_tokens": 16, "output_tokens": 40, **workload}
    load = Load(Workload.model_validate(content), level, "seed", vocabulary=500, timeout_s=20)
    definition = {
        "deployment": "a",
        "run": "r",
        "workload": "w",
        **content,
        "axis": load.workload.axis,
        "level": level,
        "repeat": 1,
    }
    header = records.header(definition=definition)
    folder.mkdir(exist_ok=True)
    record_run(Target(server.base_url, "m"), load, folder, header=header, scrape_interval_s=0.05, prefix_block_size=8)
    files = {key: folder / key for key in ("requests", "telemetry", "wide", "summary")}
    return verdict(parse_run(folder, **files), thresholds)


def serving(**options):
    return fake_server(**{"first_s": 0.2, "gap_s": 0.02, "exposition": exposition, **options})

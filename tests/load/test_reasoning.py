"""Answers that begin with reasoning: when the first token of the answer itself came, and what an SLO on it decides."""

from bench.load.client import Load, run_load
from bench.load.introduction import introduce
from bench.load.target import Target
from bench.parse.latency import latency_columns
from bench.parse.slo import meets
from bench.runs.request import write_requests
from bench.runs.request_table import request_table
from bench.study.read import load_workload
from bench.study.slo import parse_slo
from tests.support.fake_server import fake_server

REASONED, ANSWERED = 20, 10


def test_the_first_answer_token_is_as_late_as_it_was_and_an_slo_on_it_decides(tmp_path):
    """Each token is written at a known moment of the same clock; 20 of reasoning come before the answer."""
    load = load_workload(
        {"arrival": "burst", "endpoint": "chat", "prompt_tokens": 20, "output_tokens": REASONED + ANSWERED},
        source="t",
    )
    with fake_server(reasons=REASONED, first_s=0.02, gap_s=0.01) as server:
        target = introduce(Target(server.base_url, "m"), "chat")
        before = len(server.writes)
        result = run_load(target, Load(load, 2, "s"))
    written = [each[REASONED] - result.start for each in server.writes[before:]]
    came = sorted(record.first_output_s for record in result.records)
    assert min(abs(a - b) for a, b in zip(came, sorted(written), strict=True)) < 0.001  # a busy machine delays some
    assert [record.reasoning_tokens for record in result.records] == [REASONED] * 2
    file = tmp_path / "requests.jsonl"
    write_requests(result.records, file)
    table = latency_columns(request_table(file).lazy()).collect()
    assert ((table["ttfo_s"] - table["ttft_s"]) > 0.15).all()
    for slo, met in (("ttft_p90=150ms", True), ("ttfo_p90=150ms", False), ("ttfo_p90=5s", True)):
        assert table.select(meets([parse_slo(slo)])).to_series().mean() == met, slo

"""What tokens cost and what streaming buys, and that no question is without an answer, on made runs."""

import re

from bench.analysis import streaming_gains
from bench.study.questions import with_and_without_streaming
from tests.support.answers import WRONG, answered, compared_rows, length_rows, streamed_rows, study, text
from tests.support.planted import rate_row


def at_level(rows, level):
    return [{**row, "level": float(level), "concurrency": level, "run": f"{row['run']}_c{level}"} for row in rows]


def test_levels_and_families_are_named_and_not_mixed(summary):
    low, high = at_level(length_rows(summary, noise=0.003), 1), at_level(length_rows(summary, prompt_ms=3.0, noise=0.003), 16)
    found = answered(study(low + high))["lengths"]
    prompts = [line for line in found.lines if "prompt token adds" in line]
    assert [line.split(":")[0] for line in prompts] == ["1 request in flight", "16 requests in flight"]
    apart = [row for row in low if row["family"] == "prefill"] + [row for row in high if row["family"] == "decode"]
    assert answered(study(apart))["lengths"].do == ()
    # Families of the same length are named.
    rows = [row for row in length_rows(summary, noise=0.003) if row["family"] == "prefill"]
    other = [{**row, "family": "chat", "workload": f"chat-{i}", "run": f"chat-{i}", "ttft_p50_s": 2 * row["ttft_p50_s"]} for i, row in enumerate(rows)]  # fmt: skip
    found = answered(study(rows + other))["lengths"]
    assert [line.split(":")[0] for line in found.lines] == ["prefill", "chat"]
    # Valid runs without a ttft are valid.
    rows = [{**row, "stream": False, "ttft_p50_s": None} for row in length_rows(summary) if row["family"] == "prefill"]
    found = answered(study(rows))["lengths"]
    assert found.lines == (
        "Cost per prompt token: not known, 0 of 16 valid runs have a TTFT, which only streaming shows, and a line takes 3 lengths.",
    )
    assert found.do == ()


def test_a_run_without_its_counterpart_sets_no_median(summary):
    first = [{**row, "repeat": 1} for row in streamed_rows(summary)]
    second = [
        {**row, "repeat": 2, "run": f"{row['run']}_2", "e2e_p50_s": 50.0, **(WRONG if row["stream"] else {})}
        for row in streamed_rows(summary)
    ]
    (gain,) = streaming_gains(study(first + second).runs)
    assert (gain.whole_s, gain.pairs, gain.left_out, gain.valid) == (5.6, 1, 1, (1, 2))
    assert "without it after 5.6 s" in answered(study(first + second))["lengths"].lines[0]
    # Lengths of a distribution are not the same requests.
    rows = [{**row, "output_fixed": None} for row in streamed_rows(summary)]
    results = study(rows)
    assert not with_and_without_streaming(results.runs.to_dicts()) and streaming_gains(results.runs) == []
    assert list(answered(results)) == ["alone"]


def test_no_question_is_without_an_answer(summary):
    # A trace at two speeds is answered without slos.
    base = {**summary, "deployment": "a", "workload": "trace", "family": "trace"}
    rows = [{**rate_row(base, level), "axis": "time_scale", "arrival": "trace"} for level in (1, 2)]
    found = answered(study(rows))
    assert re.search(r"a: sustains \S+ requests/s \([^)]*\) at 2 times the trace's speed", found["capacity"].lines[0])
    assert all(each.lines for each in found.values())
    # A baseline with replicas alone asks nothing of others.
    for axis in ("concurrency", "request_rate"):
        rows = [{**row, "axis": axis} for row in compared_rows(summary)]
        results = study(rows, baseline="old")
        found = answered(
            type(results)(results.runs.with_columns(replica=results.runs["deployment"] == "new"), results.timeseries)
        )
        assert found and "comparison" not in found and all(text(each) and each.lines for each in found.values()), axis

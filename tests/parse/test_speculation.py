"""Speculative decoding of servers whose drafts are known: by their counters, a gauge, and single answers."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from bench.findings.registry import figures_of, load_figure
from bench.parse.latency import latency_columns
from bench.parse.scrapes import TELEMETRY_SCHEMA
from bench.parse.server import server_figures, speculation_figures
from bench.parse.validity import verdict
from bench.study.config import Thresholds
from tests.support.figures import results
from tests.support.planted import parsed, table
from tests.support.streams import DONE, event, record, text, usage

COUNTERS = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")


def samples(rows, prefix="vllm:spec_decode_"):
    """Scrapes a second apart. Args: rows: of each, the values by name, of an engine or of a list of engines."""
    told = [
        (scrape, float(scrape), "u", name if ":" in name else f"{prefix}{name}_total", f'engine="{engine}"', float(value))
        for scrape, engines in enumerate(rows)
        for engine, values in enumerate(engines if isinstance(engines, list) else [engines])
        for name, value in values.items()
    ]
    return pl.DataFrame(told, schema=TELEMETRY_SCHEMA, orient="row")


def counts(*values):
    return dict(zip(COUNTERS, values, strict=True))


def test_acceptance_by_counters():
    for prefix in ["vllm:spec_decode_", "llamacpp:spec_decode_"]:
        for rows, rate, length in [
        ([counts(0, 0, 0), counts(10, 40, 30)], 0.75, 4.0),
        ([counts(7, 21, 14), counts(17, 61, 19)], 0.125, 1.5),  # it had speculated before
        ([counts(0, 0, 0), counts(10, 40, 0)], 0.0, 1.0),  # nothing was accepted
        ([counts(5, 15, 9), counts(5, 15, 9)], None, None),  # nothing was drafted in the run
        ([counts(0, 0, 0)] * 3, None, None),  # it does not speculate
        ([{}, {}], None, None),  # it exposes nothing
        ([counts(9, 30, 20), counts(1, 4, 2)], None, None),  # it was started again
        ([{"num_draft_tokens": 0, "num_accepted_tokens": 0}, {"num_draft_tokens": 40, "num_accepted_tokens": 10}], 0.25, None),
        ([counts(0, 0, 0), {"num_drafts": 10, "num_draft_tokens": 40}], None, None),  # one is gone
        ([[counts(0, 0, 0), counts(0, 0, 0)], [counts(10, 40, 40), counts(10, 40, 0)]], 0.5, 3.0),  # two engines
        ([counts(0, 0, 0), counts(10, float("nan"), 30)], None, 4.0),
    ]:  # fmt: skip
            assert speculation_figures(samples(rows, prefix)) == {"acceptance_rate": rate, "accepted_length": length}


def test_counts_are_zero_where_they_are_counted_and_null_where_they_are_not(summary):
    def told(rows):
        figures = server_figures(samples(rows), scraped=True, version="0.32.0")
        return [figures[f"spec_{name}"] for name in ("drafts", "draft_tokens", "accepted_tokens")]

    assert told([counts(0, 0, 0)] * 2) == [0.0, 0.0, 0.0]
    assert told([counts(1, 4, 2), counts(3, 12, 7)]) == [2.0, 8.0, 5.0]
    assert told([{"vllm:num_requests_running": 1}] * 2) == [None, None, None]
    figures = server_figures(samples([counts(9, 30, 20), counts(1, 4, 2)]), scraped=True)
    assert figures["spec_accepted_tokens"] is None
    judged = verdict({**summary, "counters_fell": figures["counters_fell"]}, Thresholds())
    assert (judged.valid, judged.counts_valid, judged.faults) == (True, False, ["telemetry"])


def gauge(values, running=1):
    return samples([
        [{"sglang:spec_accept_length": each, "sglang:num_running_reqs": running} for each in (value if isinstance(value, list) else [value])]
        for value in values
    ])  # fmt: skip


def test_accepted_length_by_a_gauge():
    for values, running, length in [
    ([2.5, 2.5, 3, 3, 4, 4, 3], 1, 3.4),  # what stood at first is of an earlier load
    ([0, 0, 3, 3, 3, 3, 3], 1, 3.0),
    ([2, 3, 3, 3, 3], 1, None),  # too few scrapes
    ([3] * 9, 1, None),  # it may be of an earlier load
    ([0] * 9, 1, None),  # it does not speculate
    ([0, 3, 3, 3, 3, 3], 0, None),  # and nothing runs
    ([0, [2, 4], [2, 4], [2, 4], [2, 4], [2, 4]], 1, 3.0),
]:  # fmt: skip
        found = speculation_figures(gauge(values, running))
        assert found == {"acceptance_rate": None, "accepted_length": length if length is None else pytest.approx(length)}, (
            values
        )


def test_what_a_single_answer_says_of_its_drafts():
    """As a stream; and as a whole."""
    for said, drafts in (
        ({"timings": {"predicted_n": 64, "draft_n": 48, "draft_n_accepted": 40}}, (48, 40)),  # llama.cpp
        ({"timings": {"predicted_n": 64}}, (None, None)),
        ({"metrics": {"speculative_decoding": {"num_draft_tokens": 48, "num_accepted_draft_tokens": 0}}}, (48, 0)),  # vLLM
        ({"metrics": {"speculative_decoding": None, "mean_itl_ms": 2.0}}, (None, None)),
        ({"timings": {"draft_n": 4, "draft_n_accepted": 5}}, (None, None)),  # more than were drafted
        ({"timings": {"draft_n": "4", "draft_n_accepted": 4}}, (None, None)),
        ({"timings": [4, 4], "metrics": 7}, (None, None)),
    ):
        read = record([(1.0, text("a")), (1.1, text("b")), (1.2, event({"choices": [], **said}) + usage(2) + DONE)])
        assert (read.outcome, read.completion_tokens, read.draft_tokens, read.accepted_tokens) == ("ok", 2, *drafts), said
    content = b'{"choices": [{"index": 0, "text": "ab", "finish_reason": "length"}], "usage": {"prompt_tokens": 9, "completion_tokens": 2}'
    read = record([(1.0, content + b', "timings": {"draft_n": 4, "draft_n_accepted": 1}}')], streamed=False)
    assert (read.outcome, read.draft_tokens, read.accepted_tokens) == ("ok", 4, 1)


def run_of(each, *, accepted):
    """A closed loop of one request after another for 100 s, of 16 tokens in groups of `each`. Its server drafts 4 tokens a second and
    accepts all of them in the first half, `accepted` of them (0–1) in the second.
    """
    sent = np.arange(100.0)
    times = np.array([[at + 0.1 + 0.05 * (i // each) for i in range(16)] for at in sent])
    rows = [counts(n, 4 * n, 4 * (min(n, 50) + accepted * max(0, n - 50))) for n in range(101)]
    arrivals, first = pl.lit(16 // each).cast(pl.Int64), pl.lit(float(each))
    requests = latency_columns(table(sent, times).lazy().with_columns(arrivals=arrivals, first_tokens=first)).collect()
    return parsed(requests, level=1, arrival="closed", telemetry=samples(rows))


def test_a_run_with_groups_of_tokens_has_no_itl_and_the_steady_window_its_own_acceptance():
    told = run_of(4, accepted=1.0)
    assert (told["acceptance_rate"], told["accepted_length"], told["tpot_p50_s"]) == (1.0, 5.0, pytest.approx(0.15 / 12))
    assert (told["itl_n"], told["tokens_per_arrival"]) == (0, 4.0)
    assert verdict(told, Thresholds()).valid
    told = run_of(1, accepted=0.5)
    assert told["acceptance_rate"] == pytest.approx(0.75)
    whole, half = 50 - math.ceil(told["steady_from_s"]), math.floor(told["steady_until_s"]) - 50
    assert told["steady_acceptance_rate"] == pytest.approx((whole + 0.5 * half) / (whole + half))
    assert told["steady_acceptance_rate"] != pytest.approx(0.75, rel=0.01)


def study(summary, *, drafted=(40.0, 40.0, 40.0), accepted=(30.0, 20.0, 10.0), tpot=(0.005, 0.01, 0.02), **changes):
    """Deployment b speculates: 75 to 25 % of 40 tokens a run, and half of, as long as, and twice the TPOT of a. Both are alike else."""
    one = results(summary, deployments=("a",), known=False, server_generation_tokens=[100.0] * 3, spec_draft_tokens=[0.0] * 3)
    own = results(
        summary, deployments=("b",), known=False, server_generation_tokens=[100.0] * 3, tpot_p50_s=tpot, spec_draft_tokens=drafted,
        spec_accepted_tokens=accepted, acceptance_rate=[y / x if x else None for x, y in zip(drafted, accepted, strict=True)], **changes,
    )  # fmt: skip
    runs = pl.concat([one.runs, own.runs], how="diagonal_relaxed").with_columns(model=pl.lit("m"), engine=pl.lit("e"))
    return replace(one, runs=runs)


def drawn(chart, column):
    data = chart.to_dict()["datasets"].values()
    return {(row["curve"], row["level"]): row[column] for rows in data for row in rows if row.get(column) is not None}


def test_the_figure_has_acceptance_or_accepted_length_of_those_that_speculate_and_the_tpot_of_all(summary):
    of = study(summary)
    chart = load_figure("speculation").draw(of)
    assert drawn(chart, "acceptance_rate") == {("b", 1.0): 0.75, ("b", 4.0): 0.5, ("b", 16.0): 0.25}
    assert drawn(chart, "tpot_p50_ms") == {
        **{("a", level): pytest.approx(10) for level in (1.0, 4.0, 16.0)},
        ("b", 1.0): 5, ("b", 4.0): 10, ("b", 16.0): 20,
    }  # fmt: skip
    of = study(summary, drafted=(None,) * 3, accepted=(None,) * 3, accepted_length=[2.5, 2.0, 1.5])
    assert drawn(load_figure("speculation").draw(of), "accepted_length") == {("b", 1.0): 2.5, ("b", 4.0): 2.0, ("b", 16.0): 1.5}


def test_a_study_has_the_figure_if_a_server_speculates(summary):
    rows = study(summary).runs.to_dicts()
    plain = [row for row in rows if row["deployment"] == "a"]
    assert "speculation" in figures_of(rows)
    assert "speculation" not in figures_of(plain)
    planned = [{key: row[key] for key in ("deployment", "workload", "family", "axis", "arrival", "level")} for row in plain]
    for flag, has in (("flag_speculative_config", True), ("flag_spec_type", True), ("flag_max_model_len", False)):
        assert ("speculation" in figures_of([{**row, flag: "ngram"} for row in planned])) is has
    assert "speculation" not in figures_of([{**row, "flag_spec_type": "none"} for row in planned])

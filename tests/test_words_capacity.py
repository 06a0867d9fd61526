"""What a curve sustains in words, where an end, an answer or everything is missing."""

import pytest

from bench.analysis import operating_points
from bench.analysis.judging import Miss, Unsettled
from bench.study import Slo, parse_slo
from bench.words.capacity import c_max, evidence, full_cache, misses, sustains, unsettled_text, with_texts
from bench.words.loads import load_text, loads_text
from tests.planted import frame, short_row, steady_row

SLOS = [parse_slo("ttft_p99=2s")]
NOTHING = {"unsettled": None, "missed": None, "low_needs": None, "high_needs": None, "missed_at": None}


def written(rows):
    return with_texts(operating_points(frame(rows), SLOS).row(0, named=True))


@pytest.mark.parametrize(
    ("miss", "text"),
    [
        (Miss("ttft_p99_s", 2.0, None, 1.0, 4, 4), "TTFT P99 ≤ 2 s (100.0 % of its requests fail or take longer)"),
        (Miss("ttft_p99_s", 2.0, 1.5, 0.05, 5, 100), "TTFT P99 ≤ 2 s (5.0 % of its requests fail or take longer)"),
        (
            Miss("tpot_p90_s", 0.025, 0.0243, 3 / 46, 3, 46),
            "TPOT P90 ≤ 25 ms (6.5 % of its requests fail or take longer: too few requests to rely on it)",
        ),
        (
            Miss("tpot_p90_s", 0.025, 0.0243, 3 / 46, 3, 46, 0.12),
            "TPOT P90 ≤ 25 ms (6.5 % of its requests fail or take longer; judged with the loads around it, 12.0 % do)",
        ),
        (
            Miss("tpot_p90_s", 0.025, 0.0243, 0.0, 0, 46, 0.12),
            "TPOT P90 ≤ 25 ms (no request fails or takes longer; judged with the loads around it, 12.0 % do)",
        ),
        (Miss("tpot_p50_s", 0.05, 0.0501), "TPOT P50 ≤ 50 ms (50.1 ms)"),
        (Miss("failed", share=0.5, misses=2, requests=4), "the limit on failures (2 of 4 requests fail)"),
        (Miss("growth", growth=0.34), "steadiness (requests pile up: 34 % of those that come stay)"),
    ],
)
def test_by_what_a_level_misses(miss, text):
    assert misses([miss]) == text


def test_an_slo_is_known_by_its_column():
    slo = Slo("ttft", "p99", 2.0)
    assert Slo.of_column(slo.column, 2.0) == slo


def test_a_load_that_is_not_steady_asks_for_what_is_known_to_help():
    assert unsettled_text(Unsettled("short", 48)).endswith("; let it last 48 s")
    assert unsettled_text(Unsettled("short")).endswith("; send more requests")
    assert unsettled_text(Unsettled("empty")) == "no request was sent"


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (None, None, "(neither end of its 95 % interval is established). C_max is 8 (neither end is established)."),
        (None, 9.0, "(less than 9 at 95 % confidence, its lower end is not established). C_max is 8 (the lower end is not established, below 9)."),
        (7.0, None, "(at least 7 at 95 % confidence, its upper end is not established). C_max is 8 (at least 7, the upper end is not established)."),
    ],
)  # fmt: skip
def test_an_end_that_is_not_known_is_said_to_be_so(low, high, text):
    point = {**NOTHING, "kind": "found", "unit": "requests in flight", "operate_at": 8.0, "c_max": 8.0, "usable_rps": 8.0, "low": low, "high": high,
             "usable_low": low, "usable_high": high}  # fmt: skip
    assert sustains(point, burst=False) == f"Sustains 8 requests/s at 8 requests in flight {text}"


def test_where_there_is_no_c_max_there_is_no_evidence():
    assert evidence({**NOTHING, "c_max": None}) == ""


def test_without_slos_it_is_said_where_the_cache_is_full():
    assert full_cache(None) == "No run has server counts that can be trusted."
    nothing = {"measured": None, "peak_at": None}
    assert full_cache({**nothing, "cache_known": True}) == "No load filled its KV cache."
    assert full_cache({**nothing, "cache_known": False}) == "Whether its KV cache was ever full is not known."
    assert (
        full_cache({"measured": 8.0, "peak_at": 4.0, "cache_known": True})
        == "Its KV cache is full from 8 on; throughput is highest at 4."
    )


def test_a_point_is_written_with_its_texts(summary):
    row = written([steady_row(summary, 1), steady_row(summary, 2, ttft=3.0)])
    assert (row["missed"], row["missed_by"], row["c_max_text"]) == (
        "TTFT P99 ≤ 2 s (3 s)",
        "ttft_p99_s",
        "1 (at least 1, below 2)",
    )
    assert not {"unsettled", "unsettled_needs_s", "low_needs_requests", "high_needs_at"} & row.keys()
    above = written([steady_row(summary, 1)])
    assert (above["missed"], above["missed_by"], above["low_needs"]) == (None, None, None)
    assert above["high_needs"] == "Levels above 1 would establish the upper end."
    never = written([short_row(steady_row(summary, 1), 30.0)])
    assert (never["c_max_text"], never["missed_by"]) == ("no steady state", None)
    assert never["missed"].endswith("let it last 30 s")
    nothing = written([{**steady_row(summary, 1), "wrong_output_tokens": 1}])
    assert [nothing[key] for key in ("missed", "missed_by", "c_max_text", "low_needs", "high_needs")] == [
        None,
        None,
        "no valid run",
        None,
        None,
    ]


def test_loads_in_a_list():
    assert [loads_text(loads) for loads in ([], [8.0], [8.0, 0.5])] == ["", "8", "8, 0.5"]


def test_a_lowest_load_that_misses_is_not_the_lowest_measured_where_others_cannot_be_judged(summary):
    """Loads of 4 and 8 were too short, and 24 misses: that nothing lower is carried was not shown."""
    lower = [short_row(steady_row(summary, level), 24.9) for level in (4, 8)]
    point = operating_points(frame([*lower, steady_row(summary, 24, slow=200)]), SLOS).row(0, named=True)
    assert (point["kind"], point["missed_at"], point["unsettled_needs_s"]) == ("below", 24, 25)
    assert c_max(point) == "below 24, the lowest level that can be judged"
    said = sustains(point, burst=False)
    assert said.startswith("No load that can be judged is sustained: at 24 requests in flight it misses TTFT P99 ≤ 2 s")
    assert said.endswith("At lower levels the load did not become steady: let it last 25 s.")
    alone = operating_points(frame([steady_row(summary, 24, slow=200)]), SLOS).row(0, named=True)
    assert c_max(alone) == "below 24, the lowest level"
    assert "the lowest, it misses" in sustains(alone, burst=False)


def test_a_rate_of_one_is_singular():
    assert [load_text(1, unit) for unit in ("requests/s", "conversations/s")] == ["1 request/s", "1 conversation/s"]
    assert load_text(1.5, "requests/s") == "1.5 requests/s"

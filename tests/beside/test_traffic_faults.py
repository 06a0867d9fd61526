"""Access logs as providers, proxies and clocks write them: what they would be mistaken for is told apart, or asked for."""

import json
import tracemalloc
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from bench.cli import main
from bench.errors import BenchError
from bench.traffic.arrivals import windows
from bench.traffic.describe import describe
from bench.traffic.log import read_log
from bench.traffic.moments import numbers_of
from bench.words.traffic import arrival_rows, fit_rows, left_out_lines, unlike
from tests.support.traffic import HEAD, arrivals, gamma, jsonl, planted, written

BERLIN = ZoneInfo("Europe/Berlin")


def spread(moments, column="timestamp"):
    """A log of these arrivals, as text."""
    return f"{column},prompt_tokens,completion_tokens\n" + "".join(f"{each},5,6\n" for each in moments)


# Lengths.


def usage(**counts):
    return {"timestamp": "2026-11-02T12:00:00Z", "usage": {"output_tokens": 50} | counts}


def test_cached_tokens_are_of_the_prompt_and_are_not_added_to_a_count_that_holds_them(tmp_path):
    rows = jsonl(
        usage(input_tokens=12, cache_read_input_tokens=4000, cache_creation_input_tokens=0),
        usage(input_tokens=0, cache_read_input_tokens=None, cache_creation_input_tokens=300),
        usage(input_tokens=7),
        usage(input_tokens=7, cache_read_input_tokens="many"),
    )
    log = read_log(written(tmp_path, rows, "log.jsonl"))
    assert log.prompt_tokens.tolist() == [4012, 300, 7]
    assert [(each.why, each.count) for each in log.left_out] == [("no count of prompt tokens", 1)]
    assert log.notes == [
        "usage.input_tokens, usage.cache_read_input_tokens and usage.cache_creation_input_tokens are added up, as they are counted apart."
    ]
    # Two copies of `input_tokens` are one; `prompt_tokens` that differ have the cached ones in them.
    both = jsonl({**usage(input_tokens=12, cache_read_input_tokens=4000), "input_tokens": 12})
    assert read_log(written(tmp_path, both, "log.jsonl")).prompt_tokens.tolist() == [4012]
    all_of_it = jsonl({**usage(input_tokens=12, cache_read_input_tokens=4000), "prompt_tokens": 4012})
    log = read_log(written(tmp_path, all_of_it, "log.jsonl"), given={"prompt": "prompt_tokens"})
    assert (log.prompt_tokens.tolist(), log.notes) == ([4012], [])


def test_parts_of_prompts_by_other_names(tmp_path):
    cases = [
            # Langfuse's kinds do not overlap, with a total or without one.
            ({"input": 191, "input_cached_tokens": 2304, "output": 291, "total": 2786}, 2495, "usage.input and usage.input_cached_tokens are added up"),
            ({"input": 191, "input_cached_tokens": 2304, "output": 291}, 2495, "counted apart"),
            ({"input": 8, "input_cache_read": 0, "input_cache_creation": 300, "input_audio_tokens": 2, "output": 5}, 310, "and usage.input_audio_tokens"),
            ({"input": 2495, "input_cached_tokens": 2304, "output": 291, "total": 2786}, 2495, "Taken for part of usage.input: usage.input_cached_tokens."),
            # OpenAI's, and a gateway's, hold them; what exceeds a prompt cannot be part of it.
            ({"input_tokens": 100, "input_cached_tokens": 30, "output_tokens": 5}, 100, "Taken for part of usage.input_tokens: "),
            ({"prompt_tokens": 100, "cached_tokens": 30, "completion_tokens": 5}, 100, "Taken for part"),
            ({"input_tokens": 4012, "cache_read_input_tokens": 4000, "output_tokens": 50, "total_tokens": 4062}, 4012, "Taken for part"),
            ({"prompt_tokens": 12, "prompt_cache_read_tokens": 4000, "completion_tokens": 5}, 4012, "counted apart"),
            ({"prompt_tokens": 12, "prompt_cache_write_tokens": 10, "completion_tokens": 5, "total_tokens": 27}, 22, "counted apart"),
            ({"promptTokens": 12, "cachedInputTokens": 10, "completionTokens": 5, "totalTokens": 17}, 12, "Taken for part"),
            # Totals that hold reasoning too.
            ({"input": 70, "input_cached_tokens": 30, "output": 5, "output_reasoning_tokens": 9, "total": 114}, 100, "counted apart"),
            ({"promptTokenCount": 100, "cachedContentTokenCount": 30, "candidatesTokenCount": 5, "thoughtsTokenCount": 9, "totalTokenCount": 114}, 100, "Taken for part"),
            # What is no part of a prompt.
            ({"prompt_tokens": 12, "cache_hit_rate": 0.5, "completion_tokens": 5, "output_cached_tokens": 9}, 12, None),
            ({"prompt_tokens": 12, "cache": "hit", "completion_tokens": 5}, 12, None),
            ({"prompt_tokens": 12, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 8}}, 12, None),
        ]  # fmt: skip
    for counts, prompt, note in cases:
        row = {"timestamp": "2026-11-02T12:00:00Z", "usage": counts}
        log = read_log(written(tmp_path, jsonl(row, row), "log.jsonl"))
        assert log.prompt_tokens.tolist() == [prompt, prompt], counts
        assert [note in each for each in log.notes[:1]] == ([] if note is None else [True]), counts


def test_reasoning_is_part_of_the_answer(tmp_path):
    cases = [
        ({"input": 70, "output": 5, "output_reasoning_tokens": 9, "total": 84}, 14),
        ({"input": 70, "output": 5, "output_reasoning": 9}, 14),
        ({"promptTokenCount": 70, "candidatesTokenCount": 5, "thoughtsTokenCount": 9}, 14),
        ({"prompt_tokens": 70, "completion_tokens": 14, "reasoning_tokens": 9, "total_tokens": 84}, 14),
        ({"prompt_tokens": 70, "completion_tokens": 14, "reasoning_tokens": 9}, 14),
        ({"prompt_tokens": 70, "completion_tokens": 5, "reasoning_tokens": 9}, 14),
        ({"prompt_tokens": 70, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 3}}, 5),
    ]
    for counts, output in cases:
        row = {"timestamp": "2026-11-02T12:00:00Z", "usage": counts}
        log = read_log(written(tmp_path, jsonl(row, row), "log.jsonl"))
        assert (log.prompt_tokens.tolist(), log.output_tokens.tolist()) == ([70, 70], [output, output]), counts


# Clocks.


def berlin(begin, minutes, count):
    truth = [begin + timedelta(minutes=minutes * i) for i in range(count)]
    return [moment.astimezone(BERLIN).replace(tzinfo=None).isoformat() for moment in truth]


CHANGE = datetime(2026, 10, 24, 23, 30, tzinfo=UTC)


def test_an_hour_that_the_clock_shows_twice_is_told_apart_by_the_order_of_rows(tmp_path):
    """When summer time ends within a log, in either direction, and in each of two years."""
    shown = berlin(CHANGE, 10, 15)
    for moments, sorts in ((shown, False), (shown[::-1], True)):
        log = read_log(written(tmp_path, spread(moments)), zone=BERLIN)
        assert arrivals(log) == [600.0 * i for i in range(15)]
        assert bool(log.notes) == sorts
    shown += berlin(datetime(2027, 10, 30, 23, 30, tzinfo=UTC), 10, 15)
    found = arrivals(read_log(written(tmp_path, spread(shown)), zone=BERLIN))
    assert np.diff(found).tolist()[:14] == np.diff(found).tolist()[15:] == [600.0] * 14


def test_an_hour_that_the_clock_shows_twice_is_not_guessed_and_order_does_not_matter_elsewhere(tmp_path):
    cases = [
        lambda shown: [shown[i] for i in np.random.default_rng(1).permutation(len(shown))],
        lambda shown: [*shown, shown[0]],  # one that was late
        lambda shown: [shown[0], shown[4], shown[-1]],  # either of the hours
        lambda shown: [*shown[:4], *shown[:2], *shown[4:]],
    ]
    for order in cases:
        log = written(tmp_path, spread(order(berlin(CHANGE, 10, 15))))
        with pytest.raises(
            BenchError, match=r"line \d+: timestamp 2026-10-25 02:\d\d:00 comes twice in Europe/Berlin.*with their offset"
        ):
            read_log(log, zone=BERLIN)
    shown = [*berlin(CHANGE - timedelta(days=1), 10, 15), "2026-10-24T01:00:00"]
    log = read_log(written(tmp_path, spread(shown)), zone=BERLIN)
    assert arrivals(log)[-1] == 600.0 * 14 + 1800


def test_a_step_back_without_a_zone_is_asked_for(tmp_path):
    """In either direction, and among arrivals that overtake each other."""
    forth, overtaking = berlin(CHANGE, 10, 15), berlin(CHANGE, 2, 75)
    back = forth[::-1]
    for shown in (forth, back):
        shown.insert(2, shown[1])
    overtaking[3], overtaking[4] = overtaking[4], overtaking[3]
    for shown, said in ((forth, "steps back by 50 min, "), (back, "steps back by 50 min, "), (overtaking, "")):
        with pytest.raises(BenchError, match=f"{said}as clocks do when summer time ends"):
            read_log(written(tmp_path, spread(shown)))


def test_dates_that_stand_for_none_are_left_out(tmp_path):
    for odd in ["1970-01-01T00:00:00Z", "0001-01-01 00:00:00", "9999-12-31T23:59:59", "1970-01-01"]:
        shown = [f"2026-11-02T12:00:{i:02d}" + ("Z" if odd.endswith("Z") else "") for i in range(30)]
        log = read_log(written(tmp_path, spread([*shown, odd])), zone=ZoneInfo("Asia/Tokyo"))
        assert log.span_s == 29, odd
        assert [(each.why, each.count, each.place) for each in log.left_out] == [("no moment of arrival", 1, "line 32")], odd
        with pytest.raises(BenchError, match="--from 0001-01-01: before 2001"):
            log.part("0001-01-01", None)
        assert log.notes == ["1 row with a date before 2001 or after 2095 in timestamp, which stands for none."], odd
    shown = [0, *(1760000000000 + 1000 * i for i in range(30))]
    log = read_log(written(tmp_path, spread(shown)), unit="ms")
    assert (log.span_s, log.count) == (29, 30) and log.began is not None
    assert "which stands for none" in log.notes[0]


def test_windows_of_a_long_span_take_the_memory_of_its_requests():
    """Counts of side-by-side windows by hand, and those of six years."""
    moments = np.sort(np.random.default_rng(1).uniform(0, 5000, 8000))
    counts = np.bincount((moments - moments[0]).astype(int))
    counts = counts[: int(moments[-1] - moments[0])]
    assert windows(planted(moments))[0].dispersion == pytest.approx(counts.var(ddof=1) / counts.mean())
    tracemalloc.start()
    log = planted([*np.arange(100.0), 2e8])
    log = type(log)(**{**vars(log), "began": datetime(2001, 2, 3, tzinfo=UTC), "zone": BERLIN})
    found = describe(log)
    assert found.windows[0].dispersion == pytest.approx(1.0, rel=1e-3)
    assert sum(rate is not None for rate in found.hours) == 24
    assert tracemalloc.get_traced_memory()[1] < 100e6  # bytes; a number for each second would take 1.6e9
    tracemalloc.stop()


def test_a_dispersion_has_no_p_below_a_request_a_window():
    """Of 200 windows with 0.05 requests each, p of a Poisson process is below 0.001 eight times as often as it says."""
    found = {each.seconds: each for each in windows(planted(gamma(1.0, 1000, 1, gap_s=20.0)))}
    assert found[1.0].dispersion == pytest.approx(1, abs=0.2)
    assert found[1.0].p is found[10.0].p is None
    assert found[60.0].p is not None
    rows = dict(arrival_rows(describe(planted(gamma(1.0, 1000, 1, gap_s=20.0)))))
    assert "p" not in rows["dispersion in 1 s (1: Poisson)"]
    assert "p = " in rows["dispersion in 60 s (1: Poisson)"]


# Failures.


def test_a_failure_in_any_column_counts_unless_one_or_none_is_named(tmp_path, capsys):
    rows = "1760000000,1,2,completed,timeout\n1760000001,1,2,completed,-\n1760000002,1,2,failed,\n1760000003,1,2,-,\n"
    file = written(tmp_path, HEAD.replace("\n", ",status,error\n") + rows)
    log = read_log(file)
    assert [(each.why, each.count, each.place, each.value) for each in log.left_out] == [
        ("a failure", 2, "line 2", "'timeout'")
    ]
    assert not log.notes
    assert read_log(file, given={"status": "status"}).count == 3
    assert main(["traffic", file, "--columns", "status=", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["requests"] == 4
    assert log.columns["status"] == "status and error"


# Requests in flight.


def flight(folder, start, end, names=("start_time", "end_time"), **options):
    """Of ten seconds, with the log's notes."""
    rows = "".join(f"{a},{b},5,6\n" for a, b in zip(start, end, strict=True))
    log = read_log(written(folder, f"{names[0]},{names[1]},prompt_tokens,output_tokens\n{rows}"), **options)
    return describe(log).concurrency, log.notes


def test_ends_are_read_as_arrivals_are(tmp_path):
    cases = [
        ([0, 5], [4, 10], ("start_time_s", "end_time_s"), {}),
        ([0, 5], [4000, 10000], ("start_s", "end_ms"), {}),
        ([0, 5000], [4000, 10000], ("start_time", "end_time"), {"unit": "ms"}),
        ([0, 5000], [4000, 10000], ("start_s", "end_s"), {"unit": "ms"}),
        ([1760000000, 1760000005], [1760000004, 1760000010], ("start_time", "end_time"), {}),
        ([1760000000, 1760000005], [1760000004000, 1760000010000], ("start_time", "end_time"), {}),
        (["2025-10-09T08:53:20Z", "2025-10-09T08:53:25Z"], [1760000004, 1760000010], ("start_time", "end_time"), {}),
        ([1760000000, 1760000005], ["2025-10-09T08:53:24Z", "2025-10-09T08:53:30Z"], ("start_time", "end_time"), {}),
        (["2026-07-02T12:00:00", "2026-07-02T12:00:05"], ["2026-07-02T10:00:04Z", "2026-07-02T10:00:10Z"], ("start_time", "end_time"), {"zone": BERLIN}),
    ]  # fmt: skip
    for start, end, names, options in cases:
        found, notes = flight(tmp_path, start, end, names, **options)
        assert found is not None, notes
        assert (found.mean, found.most) == (pytest.approx(0.9), 1), start


def test_ends_on_another_clock_or_in_an_hour_that_comes_twice_are_not_known(tmp_path):
    cases = [
            ([0, 5], ["2026-07-02T10:00:04Z"] * 2, ("start_s", "end_time"), "holds dates, and start_s none"),
            (["2026-07-02T10:00:04Z"] * 2, [4, 10], ("start_time", "end_time_s"), "holds no dates, and start_time does"),
            ([0, 5], [1760000004, 1760000010], ("start_s", "end_s"), "holds dates, and start_s none"),
            (["2026-07-02T12:00:00"] * 2, ["2026-07-02T10:00:04Z"] * 2, ("start_time", "end_time"), "one of start_time and end_time has a time zone"),
            (["2026-07-02T12:00:00Z"] * 2, ["2026-07-02T10:00:04"] * 2, ("start_time", "end_time"), "one of start_time and end_time has a time zone"),
            ([1760000000] * 2, ["2026-07-02T10:00:04"] * 2, ("start_time", "end_time"), "one of start_time and end_time has a time zone"),
            ([5, 6], [1, 2], ("start_s", "end_s"), "is before start_s in all rows"),
            ([5, 6], ["", ""], ("start_s", "end_s"), "holds no moments"),
        ]  # fmt: skip
    for start, end, names, why in cases:
        found, notes = flight(tmp_path, start, end, names)
        assert found is None, why
        assert any(note.startswith("Concurrency is not known") and why in note for note in notes), notes
    found, _ = flight(
        tmp_path, ["2026-10-25T01:50:00", "2026-10-25T01:55:00"], ["2026-10-25T01:59:00", "2026-10-25T02:01:00"], zone=BERLIN
    )
    assert found.requests == 1
    # A clock of whole seconds shows short ones so.
    assert flight(tmp_path, [0, 0, 0, 9], [0, 0, 1, 9], ("start_s", "end_s"))[0].most == 3
    assert flight(tmp_path, [0, 1], [1, 2], ("start_s", "end_s"))[0].most == 1


# What is said.


def test_a_part_has_lost_what_was_lost_in_it(tmp_path, capsys):
    rows = [f"{i},5,{6 if i < 50 or i % 2 else ''}" for i in range(100)] + [",5,6"]
    file = written(tmp_path, "arrival_s,prompt_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    whole = read_log(file)
    assert list(left_out_lines(whole))[-1].startswith("All that follows is of the other 74 %")
    first, second = whole.part(None, "50"), whole.part("50", None)
    assert (first.rows, first.count, list(left_out_lines(first))) == (50, 50, [])
    assert [(each.why, each.count, each.place) for each in second.left_out] == [("no count of answer tokens", 25, "line 52")]
    assert list(left_out_lines(second))[-1].startswith("All that follows is of the other 5")
    assert first.notes[-1] == "1 row without a moment of arrival is left out, whether of this part or not."
    assert not whole.notes
    assert main(["traffic", file, "--to", "50"]) == 0
    assert "All that follows" not in capsys.readouterr().out
    assert main(["traffic", file, "--from", "50", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == [
        {"why": "no count of answer tokens", "count": 25, "place": "line 52", "value": "''"}
    ]


def test_words_on_bursts():
    """A Poisson process has no distance of the gamma's; a slower replay has no more users; equal gaps are called so."""
    found = describe(planted(gamma(1.0, 1000, 1)))
    assert found.burstiness.poisson
    _, gaps, *_ = fit_rows(found)
    assert gaps[1].startswith("gamma, shape ")
    assert gaps[-1] == "Poisson"
    found = describe(planted(gamma(0.5, 400, 1)))
    assert "More users" in next(unlike(found, 3.0))
    slower = next(unlike(found, 0.5))
    assert "lasts 120 s" in slower
    assert "Fewer users" in slower
    assert "More users" not in slower
    cases = [
        (planted(gamma(1.0, 300, 0, gap_s=0.2), 1.0), "its clock is too coarse for so short a log"),
        (planted(gamma(1.0, 15, 0)), "it has 15 requests, and 21 are the fewest"),
        (planted([5.0] * 50), "all its requests came in one instant"),
    ]
    for log, why in cases:
        assert why in list(unlike(describe(log), 1.0))[-1]
    found = describe(planted(np.arange(100) * 0.5))
    assert dict(arrival_rows(found))["burstiness (shape of gamma gaps)"] == "equal gaps: no shape"
    assert fit_rows(found)[1][1] == "equal gaps"
    regular = dict(arrival_rows(describe(planted(gamma(30.0, 300, 1)))))
    assert regular["burstiness (shape of gamma gaps)"].startswith(("2", "3"))


def test_many_different_messages_are_looked_at_together(tmp_path, monkeypatch):
    """A table made for each of a million takes minutes, and a line on each is no help."""
    asked = []
    monkeypatch.setattr("bench.traffic.log.numbers_of", lambda values: asked.append(values) or numbers_of(values))
    lines = [f"{1_700_000_000 + i},5,6,{f'request {i} went to {i % 7}' if i % 2 else ''}" for i in range(600)]
    for column, failed in (("error", 300), ("status", 0)):
        asked.clear()
        file = written(tmp_path, f"timestamp,prompt_tokens,completion_tokens,{column}\n" + "\n".join(lines) + "\n")
        log = read_log(file)
        assert len(asked) < 10, column
        assert sum(each.count for each in log.left_out) == failed, column
        assert len(log.notes) < 10, column
        assert any("Nor are 295 other values of status" in note for note in log.notes) == (column == "status")

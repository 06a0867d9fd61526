"""Access logs as providers, proxies and clocks write them: what they would be mistaken for is told apart, or asked for."""

import json
import tracemalloc
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from bench.beside.traffic.arrivals import windows
from bench.beside.traffic.describe import describe
from bench.beside.traffic.words import arrival_rows, fit_rows, left_out_lines, unlike
from bench.cli import main
from bench.errors import BenchError
from tests.support.traffic import HEAD, arrivals, gamma, jsonl, planted, read_log, written

BERLIN = ZoneInfo("Europe/Berlin")


def spread(moments, column="timestamp"):
    """A log of these arrivals, as text."""
    return f"{column},prompt_tokens,completion_tokens\n" + "".join(f"{each},5,6\n" for each in moments)


# Lengths.


def test_counts_that_a_provider_keeps_apart_are_added_as_asked(tmp_path):
    def usage(**counts):
        return {"timestamp": "2026-11-02T12:00:00Z", "usage": {"output_tokens": 50} | counts}

    rows = jsonl(
        usage(input_tokens=12, cache_read_input_tokens=4000, cache_creation_input_tokens=0),
        usage(input_tokens=0, cache_read_input_tokens=None, cache_creation_input_tokens=300),
        usage(input_tokens=7),
        usage(input_tokens=7, cache_read_input_tokens="many"),
    )
    parts = "usage.input_tokens+usage.cache_read_input_tokens+usage.cache_creation_input_tokens"
    log = read_log(written(tmp_path, rows, "log.jsonl"), given={"prompt": parts})
    assert log.prompt_tokens.tolist() == [4012, 300, 7]
    assert [(each.why, each.count) for each in log.left_out] == [("no count of prompt tokens", 1)]


# Clocks.


def berlin(begin, minutes, count):
    truth = [begin + timedelta(minutes=minutes * i) for i in range(count)]
    return [moment.astimezone(BERLIN).replace(tzinfo=None).isoformat() for moment in truth]


CHANGE = datetime(2026, 10, 24, 23, 30, tzinfo=UTC)


def test_an_hour_that_the_clock_shows_twice_is_not_guessed(tmp_path):
    log = written(tmp_path, spread(berlin(CHANGE, 10, 15)))
    with pytest.raises(
        BenchError, match=r"line \d+: timestamp 2026-10-25 02:\d\d:00 comes twice in Europe/Berlin.*with their offset"
    ):
        read_log(log, zone=BERLIN)
    shown = berlin(CHANGE - timedelta(days=1), 10, 15)
    assert arrivals(read_log(written(tmp_path, spread(shown)), zone=BERLIN))[-1] == 600.0 * 14


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
    log = read_log(written(tmp_path, spread(shown)), given={"arrival": "timestamp:ms"})
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
    log = read_log(file, given={"status": "status+error"})
    assert [(each.why, each.count, each.place, each.value) for each in log.left_out] == [
        ("a failure", 2, "line 2", "'timeout'")
    ]
    assert not log.notes
    assert read_log(file, given={"status": "status"}).count == 3
    assert (
        main(["traffic", file, "--columns", "arrival=timestamp,prompt=prompt_tokens,output=completion_tokens", "--json"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["requests"] == 4 and "Does status or error say which failed? --columns status=NAME." in found["notes"][0]


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
        ([0, 5000], [4000, 10000], ("start_time", "end_time"), {"given": {"arrival": "start_time:ms", "end": "end_time:ms"}}),
        ([1760000000, 1760000005], [1760000004, 1760000010], ("start_time", "end_time"), {}),
        ([1760000000, 1760000005], [1760000004000, 1760000010000], ("start_time", "end_time"), {}),
        (["2025-10-09T08:53:20Z", "2025-10-09T08:53:25Z"], [1760000004, 1760000010], ("start_time", "end_time"), {}),
        (["2026-07-02T12:00:00", "2026-07-02T12:00:05"], ["2026-07-02T10:00:04Z", "2026-07-02T10:00:10Z"], ("start_time", "end_time"), {"zone": BERLIN}),
    ]  # fmt: skip
    for start, end, names, options in cases:
        found, notes = flight(tmp_path, start, end, names, **options)
        assert found is not None, notes
        assert (found.mean, found.most) == (pytest.approx(0.9), 1), start


def test_ends_on_another_clock_are_refused(tmp_path):
    for start, end, names in (
        ([0, 5], ["2026-07-02T10:00:04Z"] * 2, ("start_s", "end_time")),
        (["2026-07-02T10:00:04Z"] * 2, [4, 10], ("start_time", "end_time_s")),
    ):
        with pytest.raises(BenchError, match=r"holds dates, the other none\. Leave end= out"):
            flight(tmp_path, start, end, names)
    assert flight(tmp_path, [5, 6], [1, 2], ("start_s", "end_s"))[0] is None
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


def test_many_different_messages_make_few_notes(tmp_path):
    lines = [f"{1_700_000_000 + i},5,6,{f'request {i} went to {i % 7}' if i % 2 else ''}" for i in range(600)]
    for column, failed in (("error", 300), ("status", 0)):
        file = written(tmp_path, f"timestamp,prompt_tokens,completion_tokens,{column}\n" + "\n".join(lines) + "\n")
        log = read_log(file)
        assert sum(each.count for each in log.left_out) == failed, column
        assert len(log.notes) < 10, column
        assert any("Nor are 295 other values of status" in note for note in log.notes) == (column == "status")

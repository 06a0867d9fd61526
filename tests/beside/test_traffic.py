"""Access logs of known truth: what is read of them, what is estimated, and what is left out is said."""

import io
import json
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from bench.beside.traffic.arrivals import percentiles, windows
from bench.cli import main
from bench.errors import BenchError
from bench.study.plan import Plan
from bench.study.read import load_file, load_workload
from bench.workloads.schedule import schedule
from bench.workloads.trace import read_trace, thinned
from bench.yaml_file import read_yaml
from tests.support.study import ROOT
from tests.support.traffic import HEAD, arrivals, gamma, jsonl, planted, read_log, written

OWN = "arrival_s,prompt_tokens,output_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)


def test_estimates_by_hand():
    """Windows: three requests within a second, one in each other; six seconds, of ten seconds none."""
    log = planted([0.0, 0.2, 0.9, 3.0, 4.5, 20.5, 22.0])
    second, ten = windows(log)
    assert (second.peak, second.seconds) == (3.0, 1.0)
    assert ten.peak == 0.5
    counts = np.bincount([0, 0, 0, 3, 4, 20], minlength=22)
    assert second.dispersion == pytest.approx(counts.var(ddof=1) / counts.mean())
    assert ten.dispersion is None  # two windows
    assert windows(planted([0.0, 1.0, 2.0, 3.0]))[0].peak == 1.0  # a window does not hold its end
    assert [each.seconds for each in windows(planted([0.0, 5.0, 12.0, 30.0], 10.0))] == [10.0]  # of a clock that counts tens
    lengths = np.arange(1, 101)
    assert percentiles(lengths) == {
        "min": 1, "p10": 10, "p25": 25, "p50": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99, "max": 100, "mean": 50.5,
    }  # fmt: skip
    alike, bursts = (windows(planted(gamma(shape, 5000, 1)))[2].dispersion for shape in (1.0, 0.4))
    assert alike == pytest.approx(1.0, abs=0.3) and bursts == pytest.approx(2.5, rel=0.4)


# What is read.


def parquet(**columns):
    stream = io.BytesIO()
    pl.DataFrame(columns).write_parquet(stream)
    return stream.getvalue()


def two(first, second, head=HEAD):
    """A log of two requests, of 10 and 3 tokens and of 20 and 4."""
    return f"{head}{first},10,3\n{second},20,4\n"


DATED = two("2026-11-02T12:00:00Z", "2026-11-02T12:00:01.5Z")
ROWS = [
    {"ts": 1760000000, "input_tokens": 10, "output_tokens": 3},
    {"ts": 1760000001.5, "input_tokens": 20, "output_tokens": 4},
]
NUMBERS = [{"prompt_tokens": 10, "completion_tokens": 3}, {"prompt_tokens": 20, "completion_tokens": 4}]
LOGS = {
    "seconds": two(5, 6.5, OWN),
    "epoch, s": two(1760000000, 1760000001.5, "created,prompt_tokens,completion_tokens\n"),
    **{f"epoch, 10^-{n} s": two(f"1760000000{'0' * n}", f"17600000015{'0' * (n - 1)}") for n in (3, 6, 9)},
    "ISO": DATED,
    "ISO, UTC spelt out": two("2026-11-02 12:00:00 UTC", "2026-11-02 12:00:01.5 UTC"),
    "nginx": two("[28/Nov/2026:16:45:00 +0000]", "2026-11-28 17:45:01.5 +0100"),
    "BOM and semicolons": "\ufeff" + DATED.replace(",", ";"),
    "one array": json.dumps(ROWS, indent=1),
    "mixed zones": two("2026-11-02T12:00:00Z", "2026-11-02T13:00:01.5+01:00"),
    "not in order": HEAD + "".join(reversed(DATED.splitlines(keepends=True)[1:])),
    "texts with commas": two('2026-11-02T12:00:00Z,"a, ""b""\nc"', "2026-11-02T12:00:01.5Z,d", "time,prompt,prompt_tokens,completion_tokens\n"),
    "counts called prompt and completion": two("2026-11-02T12:00:00Z", "2026-11-02T12:00:01.5Z", "time,prompt,completion\n"),
    "OpenAI's answers": jsonl({"created": 1760000000, "usage": NUMBERS[0]}, {"created": 1760000001.5, "usage": NUMBERS[1]}),
    "counts twice, alike": jsonl(
        {"@timestamp": "2026-11-02T12:00:00Z", "prompt_tokens": 10, "usage": {"prompt_tokens": 10}, "output_tokens": 3},
        {"@timestamp": "2026-11-02T12:00:01.5Z", "prompt_tokens": 20, "usage": {}, "output_tokens": 4},
    ),
    "Parquet": parquet(created_at=[NOON, NOON + timedelta(seconds=1.5)], input_tokens=[10, 20], output_tokens=[3.0, 4.0], model=["a", None]),
    # Published layouts.
    "Azure": two("2023-11-16 18:15:46.6805900", "2023-11-16 18:15:48.1805900", AZURE),
    "Mooncake": jsonl(
        *({"timestamp": at, "input_length": n, "output_length": m, "hash_ids": [0]} for at, n, m in ((3000, 10, 3), (4500, 20, 4)))
    ),
    "BurstGPT": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,10,3,13,API log\n6.5,GPT-4,20,4,24,API log\n",
}  # fmt: skip


def test_logs_of_any_layout_are_read_alike(tmp_path):
    for name, content in LOGS.items():
        log = read_log(written(tmp_path, content))
        assert arrivals(log) == [0.0, 1.5], name
        assert (log.prompt_tokens.tolist(), log.output_tokens.tolist()) == ([10, 20], [3, 4]), name
        assert not log.left_out, name


def test_columns_are_named_by_the_user_who_is_told_a_guess(tmp_path, capsys):
    usage = {"input": 191, "input_cached_tokens": 2304, "output": 70, "output_reasoning": 30}
    log = written(tmp_path, jsonl({"timestamp": "2026-11-02T12:00:00Z", "status": 200, "usage": usage}), "log.jsonl")
    assert main(["traffic", log]) == 2
    guess = "Perhaps: --columns arrival=timestamp,prompt=usage.input,output=usage.output,status=status. Counts of"
    assert guess in " ".join(capsys.readouterr().err.split())
    named = "arrival=timestamp,prompt=usage.input+usage.input_cached_tokens,output=usage.output+usage.output_reasoning,status=status"
    assert main(["traffic", log, "--columns", named, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["prompts"]["max"], found["outputs"]["max"]) == (2495, 100)


def test_nothing_is_left_out_silently(tmp_path):
    """Each row that is no request is counted under one reason, with its first line."""
    rows = [
        "2026-11-02T12:00:00Z,10,3,200",
        "2026-11-02T12:00:09Z,10,3,200",
        "2026-11-02T12:00:01Z,10,3,429",
        "2026-11-02T12:00:02Z,,3,500",
        ",10,3,200",
        "soon,10,3,200",
        "2026-11-02T12:00:03Z,,3,200",
        "2026-11-02T12:00:04Z,10,0,200",
        '2026-11-02T12:00:05Z,"1,024",3,200',
        "2026-11-02T12:00:06Z,10.5,3,200",
        "2026-11-02T12:00:07Z,10,3,201",
        "2026-11-02T12:00:08Z,10,3,odd",
    ]
    log = read_log(written(tmp_path, HEAD.replace("\n", ",status\n") + "\n".join(rows)))
    assert [(each.why, each.count, each.place) for each in log.left_out] == [
        ("a failure", 2, "line 4"),
        ("no moment of arrival", 2, "line 6"),
        ("no count of prompt tokens", 3, "line 8"),
        ("an answer of 0 tokens", 1, "line 9"),
    ]
    assert arrivals(log) == [0.0, 7.0, 8.0, 9.0]
    assert log.note is None
    assert log.count + sum(each.count for each in log.left_out) == log.rows == 12


# By column: what failed says there, and what did not.
FAILURES = {
    "error": {"boom": "", "true": "None", "RateLimitError": "-", "500": "200"},
    "success": {"false": "true", "0": "1", "No": "Yes"},
    "status": {"error": "success", "503 Service Unavailable": "200 OK", "Too Many Requests": "OK",
               "HTTP/1.1 429 Too Many Requests": "HTTP/1.1 200 OK", "STATUS_CODE_ERROR": "STATUS_CODE_OK",
               "rate_limited": "SUCCEEDED"},
    "outcome": {"timed out": "Completed"}, "state": {"FAILED": "FINISHED"}, "cancelled": {"true": "false"}, "errorCode": {"429": "0", "Throttled": "N/A"},
    "hasError": {"True": "False"}, "is_success": {"0": "1"},
}  # fmt: skip


def test_failures_by_any_sign(tmp_path):
    for column, pairs in FAILURES.items():
        for failed, fine in pairs.items():
            rows = f"1760000000,1,2,{failed}\n1760000001,1,2,{fine}\n"
            log = read_log(written(tmp_path, HEAD.replace("\n", f",{column}\n") + rows))
            assert [(each.why, each.place) for each in log.left_out] == [("a failure", "line 2")], failed
            assert log.note is None, failed


def test_a_part_of_a_log(tmp_path, capsys):
    """From a moment and before another; what was left out in it stays said, as do rows that may be of it."""
    rows = "".join(f"{(NOON + timedelta(seconds=i)).isoformat()},{10 + i},3\n" for i in range(10))
    file = written(tmp_path, HEAD + rows)
    assert arrivals(read_log(file, begin="2", end="5.5")) == [0.0, 1.0, 2.0, 3.0]
    assert read_log(file, begin="2").prompt_tokens[0] == 12
    dated = read_log(file, begin="2026-11-02T13:00:08+01:00", end="2026-11-02 12:00:09")
    assert dated.prompt_tokens.tolist() == [18]
    for part, message in (
        ({"begin": "20"}, "no request with both lengths in it, or in that part"),
        ({"end": "noon"}, "--to noon: neither seconds"),
    ):
        with pytest.raises(BenchError, match=message):
            read_log(file, **part)
    lost = "".join(f"{i},5,{6 if i < 50 or i % 2 else ''}\n" for i in range(100)) + ",5,6\n"
    file = written(tmp_path, OWN + lost)
    first, second = read_log(file, end="50"), read_log(file, begin="50")
    assert (first.rows, first.count, [each.why for each in first.left_out]) == (51, 50, ["no moment of arrival"])
    assert [(each.why, each.count, each.place) for each in second.left_out][1:] == [
        ("no count of answer tokens", 25, "line 52")
    ]
    assert main(["traffic", file]) == 0
    assert "What follows covers the other 74 %: more requests came than it says." in capsys.readouterr().out


def test_moments_that_stand_for_none_are_left_out(tmp_path):
    seconds = [f"2026-11-02T12:00:{i:02d}" for i in range(30)]
    for odd in ("1970-01-01T00:00:00Z", "0001-01-01 00:00:00", "9999-12-31T23:59:59", "1970-01-01"):
        log = read_log(written(tmp_path, HEAD + "".join(f"{each},5,6\n" for each in [*seconds, odd])))
        assert log.span_s == 29, odd
        assert [(each.why, each.count, each.place) for each in log.left_out] == [("no moment of arrival", 1, "line 32")], odd
    rows = "".join(f"{each},5,6\n" for each in (0, *(1760000000000 + 1000 * i for i in range(30))))
    log = read_log(written(tmp_path, HEAD + rows), given={"arrival": "timestamp:ms"})
    assert (log.span_s, log.count, log.left_out[0].place) == (29, 30, "line 2")


def test_a_failure_in_any_column_counts_unless_one_or_none_is_named(tmp_path):
    rows = "1760000000,1,2,completed,timeout\n1760000001,1,2,completed,-\n1760000002,1,2,failed,\n1760000003,1,2,-,\n"
    file = written(tmp_path, HEAD.replace("\n", ",status,error\n") + rows)
    log = read_log(file, given={"status": "status+error"})
    assert [(each.why, each.count, each.place, each.value) for each in log.left_out] == [
        ("a failure", 2, "line 2", "'completed, timeout'")
    ]
    assert log.note is None
    assert read_log(file, given={"status": "status"}).count == 3
    given = {"arrival": "timestamp", "prompt": "prompt_tokens", "output": "completion_tokens"}
    assert read_log(file, given=given).count == 4


# What is written.


def access_log(folder, count=400):
    draw = np.random.default_rng(5)
    moments = np.cumsum(draw.gamma(0.5, 4.0, count))
    prompts, outputs = (np.clip(np.rint(np.exp(m + 0.5 * draw.standard_normal(count))), 2, 90).astype(int) for m in (3.5, 2.5))
    rows = (f"{(NOON + timedelta(seconds=t)).isoformat()},{p},{o}\n" for t, p, o in zip(moments, prompts, outputs, strict=True))
    return written(folder, AZURE + "".join(rows), "access.csv")


def test_a_log_becomes_a_study_that_can_be_measured(here, capsys):
    log = read_log(access_log(here))
    quick = str(ROOT / "config/studies/quick.yaml")
    (here / "workflow").symlink_to(ROOT / "workflow")
    assert main(["traffic", "access.csv", "--scale", "3", "--output", "load", "--configfile", quick]) == 0
    assert "time_scale=3" in capsys.readouterr().out
    plan = Plan.of(load_file(here / "load/study.yaml"))
    assert [(run.workload_name, run.level) for run in plan.runs] == [
        ("replay", 3.0),
        ("burst", 1),
        ("burst", 8),
        ("burst", 64),
    ]
    burst = read_yaml(here / "load/burst.yaml")
    medians = [round(float(np.median(lengths))) for lengths in (log.prompt_tokens, log.output_tokens)]
    assert [burst["prompt_tokens"], burst["output_tokens"]] == medians
    replay = schedule(load_workload(read_yaml(here / "load/replay.yaml"), source="x"), 3.0, "seed")
    assert [each.due_s for each in replay] == pytest.approx((log.arrival_s / 3).tolist(), abs=1e-6)
    assert [each.prompt_tokens for each in replay] == log.prompt_tokens.tolist()
    assert [each.output_tokens for each in replay] == log.output_tokens.tolist()


def test_the_load_goes_where_the_study_s_does(here):
    access_log(here, count=50)
    base = read_yaml(ROOT / "config/studies/quick.yaml")
    base["workloads"] = {name: {**each, "endpoint": "chat"} for name, each in base["workloads"].items()}
    (here / "base.yaml").write_text(json.dumps(base))
    given = ["traffic", "access.csv", "--output", "load", "--configfile", "base.yaml"]
    assert main(given) == 0
    for name in ("replay", "burst"):
        assert read_yaml(here / f"load/{name}.yaml")["endpoint"] == "chat"
    assert "CHANGE" not in (here / "load/study.yaml").read_text()
    assert main(["traffic", "access.csv", "--output", "other"]) == 0
    assert "CHANGE" in (here / "other/study.yaml").read_text()


def test_few_requests_are_replayed(here):
    row = "2026-11-02T12:00:0{}Z,10,3\n"
    for seconds in ([0], [0] * 50, range(9)):
        written(here, AZURE + "".join(row.format(i) for i in seconds), "access.csv")
        assert main(["traffic", "access.csv", "--output", "load"]) == 0
        assert list(load_file(here / "load/study.yaml").workloads) == ["replay", "burst"]


def test_a_trace_tells_the_log_s_users_apart_without_their_names(here):
    users = ["ann", "bob", "", "ann", ""]
    rows = [{"arrival_s": i, "prompt_tokens": 9, "output_tokens": 2, "user_id": user} for i, user in enumerate(users)]
    assert main(["traffic", written(here, jsonl(*rows), "log.jsonl"), "--output", "mine"]) == 0
    kept = read_trace("mine/trace.csv")
    assert [request.user for request in kept] == ["0", "1", "2", "0", "3"]
    assert [request.arrival_s for request in thinned(kept, every=2)] == [0, 2, 3]

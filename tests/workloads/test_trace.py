"""Traces as their publishers write them: lengths and moments come out as published, or the message says what is missing and where."""

import gzip
import io
import json
import re
import zipfile

import polars as pl
import pytest
import yaml

from bench.errors import BenchError
from bench.study.plan import Plan
from bench.study.precision import prompt_lines
from bench.study.read import load_config
from bench.workloads.trace import read_trace, thinned
from tests.support.cases import cases
from tests.support.study import CONTENT, ROOT

DATA = ROOT / "tests/data/traces"
OURS = "arrival_s,prompt_tokens,output_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def read(file, unit=None):
    return [(x.arrival_s, x.prompt_tokens, x.output_tokens) for x in read_trace(str(file), unit)]


def written(folder, content, name="trace.csv"):
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def jsonl(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def mooncake(*stamps, **further):
    return jsonl(*({"timestamp": x, "input_length": 8, "output_length": 2, **further} for x in stamps))


def parquet(**columns):
    stream = io.BytesIO()
    pl.DataFrame(columns).write_parquet(stream)
    return stream.getvalue()


def zipped(text):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("trace.csv", text)
    return stream.getvalue()


def test_a_published_trace_is_replayed_as_it_was_recorded(tmp_path):
    for name, each in yaml.safe_load((DATA / "published.yaml").read_text()).items():
        assert read(written(tmp_path, each["text"], name)) == [tuple(row) for row in each["read"]], name
    baseten = parquet(timestamp_start_unix_ms=[1_760_000_000_250, 1_760_000_000_000], input_tokens=[7, 5], output_tokens=[3, 4])
    assert read(written(tmp_path, baseten, "baseten")) == [(0.0, 5, 4), (0.25, 7, 3)]


def test_bailian_s_arrivals_are_seconds():
    """Under Mooncake's names; `chat_id` and `turn` are its own."""
    assert read(DATA / "bailian_seconds.jsonl") == [(0.0, 521, 132), (1.386, 310, 40), (60.786, 700, 64)]


def test_numbers_beyond_our_time_are_no_dates_and_counts_have_a_bound(tmp_path):
    """Of 2096 in seconds, and so Mooncake's milliseconds; a second earlier either may be meant."""
    assert read(written(tmp_path, mooncake(4_000_000_000, 4_000_000_500, hash_ids=[1]))) == [(0.0, 8, 2), (0.5, 8, 2)]
    assert read(written(tmp_path, mooncake(999_999_999, hash_ids=[1]), "before.jsonl")) == [(0.0, 8, 2)]
    for first in (1_000_000_000, 3_999_999_999):
        with pytest.raises(BenchError, match="in s it is a date of our time"):
            read(written(tmp_path, mooncake(first, hash_ids=[1]), f"{first}.jsonl"))
    rows = [jsonl({"timestamp": 0, "input_length": 10_000_000 + more, "output_length": 2}) for more in (0, 1)]
    assert read(written(tmp_path, rows[0], "long.jsonl"), "s") == [(0.0, 10_000_000, 2)]
    with pytest.raises(BenchError, match=r"input_length: '10000001' is more than 10,000,000 tokens\. Name the column"):
        read(written(tmp_path, rows[1], "longer.jsonl"), "s")


def test_the_workload_s_unit_counts(tmp_path):
    file = written(tmp_path, mooncake(1000, 1250), "units.jsonl")
    for unit, seconds in (("s", 250.0), ("ms", 0.25), ("us", 0.00025), ("ns", 0.00000025)):
        assert [x[0] for x in read(file, unit)] == [0.0, seconds]
    exact = written(tmp_path, mooncake(1_760_000_000_000_000_001, 1_760_000_000_000_000_002), "exact.jsonl")
    assert [x[0] for x in read(exact, "ns")] == [0.0, 1e-9]
    dates = written(tmp_path, AZURE + "2023-11-16 18:15:46,1,2\n", "dates.csv")
    with pytest.raises(BenchError, match=r"TIMESTAMP holds dates, which need no unit\. Remove trace_unit"):
        read(dates, "ms")


@cases(
    "text",
    [
        "2023-11-16T18:15:48Z",
        "2023-11-16T19:15:48+01:00",
        "2023-11-16 18:15:48.000000",
        "20231116T181548",
        "[16/Nov/2023:18:15:48 +0000]",
        "2023-11-16 18:15:48 UTC",
        "2023-11-16 18:15:48 +0000",
    ],
)
def test_dates_under_any_names(tmp_path, text):
    rows = jsonl(*({"timestamp": x, "input_length": 1, "output_length": 2} for x in ("2023-11-16T18:15:46", text)))
    assert [x[0] for x in read(written(tmp_path, rows))] == [0.0, 2.0]


def test_midnight_in_one_zone_is_a_time_of_day_in_another(tmp_path):
    dates = "2026-11-21T01:00:00+01:00,1,2\n2026-11-22T02:00:00+02:00,1,2\n"
    assert [x[0] for x in read(written(tmp_path, AZURE + dates, "zones.csv"))] == [0.0, 86_400.0]


# Tables as people write them.


def test_characters_that_python_takes_for_a_line_s_end_are_part_of_a_string(tmp_path):
    assert read(DATA / "u2028.jsonl") == [(0.0, 12, 4), (1.0, 12, 4)]
    rows = [
        {"arrival_s": i, "prompt_tokens": 1, "output_tokens": 1, "note": f"a{c}b"} for i, c in enumerate("\u2029\x85\u2028")
    ]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in rows) + "\n \n"
    assert len(read(written(tmp_path, text, "x.jsonl"))) == 3
    quoted = 'note,arrival_s,prompt_tokens,output_tokens\n"a\u2028\x0b\x0c, b\nc",0,5,6\nd,1,5,6\n'
    assert read(written(tmp_path, quoted)) == [(0.0, 5, 6), (1.0, 5, 6)]


@cases(
    "content",
    [
        "\ufeff" + OURS + "0,5,6\n2,7,8\n",
        OURS.replace("\n", "\r\n") + "0,5,6\r\n2,7,8\r\n\r\n \r\n",
        OURS + "2,7,8\n0,5,6",  # not in order, and no newline at the end
        "\n" + OURS + "\n0,5,6\n2,7,8\n",
        '"arrival_s", "prompt_tokens", "output_tokens"\n"0", "5", "6"\n"2", "7.0", "8"\n',
        (OURS + "0,5,6\n2,7,8\n").replace(",", ";"),
        (OURS + "0,5,6\n2,7,8\n").replace(",", "\t"),
        (OURS + "0,5,6\n2,7,8\n").replace(",", "|"),
        OURS + "1e3,5,6\n1.002e3,7,8e0\n",
        OURS + "-2,5,6\n0,7,8\n",
        jsonl({"arrival_s": 2, "prompt_tokens": 7, "output_tokens": 8.0}, {"arrival_s": 0, "prompt_tokens": "5", "output_tokens": 6}),
        parquet(arrival_s=[5.0, 7.0], prompt_tokens=[5, 7], output_tokens=[6, 8]),
    ],
)  # fmt: skip
def test_a_table_is_read_by_what_it_holds(tmp_path, content):
    assert read(written(tmp_path, content)) == [(0.0, 5, 6), (2.0, 7, 8)]


REFUSED = yaml.safe_load((DATA / "refused.yaml").read_text())
# What stands in place of text, and is none.
BYTES = [
    (OURS.encode() + b"0,1,2\n\xff\xfe", "line 3 is not UTF-8 text"),
    (gzip.compress(b"x", mtime=0)[:-9], "cannot be unpacked with gzip"),
    (zipped(OURS), "is not UTF-8 text"),
]


def test_what_is_wrong_is_named_with_its_place(tmp_path):
    rows = [
        (row["text"] if "text" in row else jsonl(*row["lines"]), row["said"]) for group in REFUSED.values() for row in group
    ]
    for content, said in [*rows, *BYTES]:
        file = written(tmp_path, content)
        with pytest.raises(BenchError) as refused:
            read_trace(str(file))
        told = str(refused.value)
        assert re.search(".*".join(map(re.escape, said.split("…"))), told) and told.startswith(str(file)), (content, told)
    for row in REFUSED["ids that disagree with their prompt"]:
        assert len(read_trace(str(written(tmp_path, jsonl(*row["lines"]))), block=0)) == 1


def test_a_missing_file_is_named():
    with pytest.raises(BenchError, match=r"none\.csv: no such trace in .*; a study's paths start at the project's root"):
        read_trace("none.csv")


def test_a_trace_is_thinned_by_its_users_and_cut(tmp_path):
    """Of four users each second, or of requests without one; what is longer than 8 tokens is cut."""
    rows = [{"arrival_s": i, "prompt_tokens": 5 + i, "output_tokens": 9, "user": f"u{i % 4}"} for i in range(8)]
    users = read_trace(str(written(tmp_path, jsonl(*rows), "users.jsonl")))
    assert [x.arrival_s for x in thinned(users, 2)] == [0.0, 2.0, 4.0, 6.0]
    alone = read_trace(str(written(tmp_path, OURS + "".join(f"{i},{5 + i},9\n" for i in range(8)))))
    kept = thinned(alone, 3, 8)
    assert [(x.arrival_s, x.prompt_tokens, x.output_tokens, x.root) for x in kept] == [
        (0.0, 5, 8, 0), (3.0, 8, 8, 1), (6.0, 8, 8, 2),
    ]  # fmt: skip


def test_sessions_of_a_thinned_trace_stay_whole(tmp_path):
    rows = []
    for i in range(4):
        rows += [{"id": f"{i}", "arrival_s": i, "prompt_tokens": 6, "output_tokens": 2, "hash_ids": [i], "block_tokens": 8}]
        rows += [
            {"id": f"{i}b", "parent": f"{i}", "prompt_tokens": 20, "output_tokens": 2, "hash_ids": [i], "block_tokens": 20}
        ]
    kept = thinned(read_trace(str(written(tmp_path, jsonl(*rows), "sessions.jsonl"))), 2, 10)
    assert [(x.arrival_s, x.after, x.root, len(x.blocks)) for x in kept] == [
        (0.0, (), 0, 1), (None, (0,), 0, 1), (2.0, (), 2, 1), (None, (2,), 2, 1),
    ]  # fmt: skip


def test_what_is_left_out_of_a_trace_and_cut_is_said(tmp_path):
    rows = [{"arrival_s": i, "prompt_tokens": 5 + i, "output_tokens": 9} for i in range(8)]
    trace = {
        "arrival": "trace",
        "trace": str(written(tmp_path, jsonl(*rows), "long.jsonl")),
        "trace_every": 2,
        "trace_longest": 8,
    }
    ladder = {"deployment": "a", "workload": "w", "time_scale": [1]}
    content = {**CONTENT, "workloads": {"w": trace}, "study": {"title": "t", "ladders": [ladder]}}
    assert prompt_lines(Plan.of(load_config(content, source="t"), root=ROOT)) == [
        "w: 4 of 8 requests are sent; 2 prompts and 4 answers are cut to 8 tokens."
    ]

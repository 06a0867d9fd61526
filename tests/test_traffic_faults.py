"""Access logs as providers, proxies and clocks write them: what they would be mistaken for is told apart, or asked for."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from bench.traffic.describe import describe
from bench.traffic.log import read_log
from tests.test_traffic import jsonl, written

BERLIN = ZoneInfo("Europe/Berlin")
DATES = "timestamp,prompt_tokens,completion_tokens\n"


def spread(moments, column="timestamp"):
    """A log of these arrivals, as text."""
    return f"{column},prompt_tokens,completion_tokens\n" + "".join(f"{each},5,6\n" for each in moments)


# Lengths.


def usage(**counts):
    return {"timestamp": "2026-11-02T12:00:00Z", "usage": {"output_tokens": 50} | counts}


def test_anthropic_s_cached_tokens_are_of_the_prompt(tmp_path):
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
        "Prompts are usage.input_tokens plus usage.cache_read_input_tokens and usage.cache_creation_input_tokens, which Anthropic "
        "counts apart."
    ]


def test_cached_tokens_are_not_added_to_a_count_that_holds_them(tmp_path):
    """Two copies of `input_tokens` are one; `prompt_tokens` that differ have the cached ones in them."""
    both = jsonl({**usage(input_tokens=12, cache_read_input_tokens=4000), "input_tokens": 12})
    assert read_log(written(tmp_path, both, "log.jsonl")).prompt_tokens.tolist() == [4012]
    all_of_it = jsonl({**usage(input_tokens=12, cache_read_input_tokens=4000), "prompt_tokens": 4012})
    log = read_log(written(tmp_path, all_of_it, "log.jsonl"), given={"prompt": "prompt_tokens"})
    assert (log.prompt_tokens.tolist(), log.notes) == ([4012], [])


# Clocks.


def berlin(begin, minutes, count):
    truth = [begin + timedelta(minutes=minutes * i) for i in range(count)]
    return [moment.astimezone(BERLIN).replace(tzinfo=None).isoformat() for moment in truth]


CHANGE = datetime(2026, 10, 24, 23, 30, tzinfo=UTC)


# Failures.


# Requests in flight.


def flight(folder, start, end, names=("start_time", "end_time"), **options):
    """Of ten seconds, with the log's notes."""
    rows = "".join(f"{a},{b},5,6\n" for a, b in zip(start, end, strict=True))
    log = read_log(written(folder, f"{names[0]},{names[1]},prompt_tokens,output_tokens\n{rows}"), **options)
    return describe(log).concurrency, log.notes


# What is said.

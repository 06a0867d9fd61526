"""Every fault made to happen, from the socket to the verdict: a run that cannot be trusted says so, and why."""

import json
import shutil
import signal
import sys
import threading
import time
from contextlib import contextmanager

import psutil
import pytest

from bench.findings.streams import stream_notes
from bench.load import client
from bench.parse.run import parse_run
from bench.parse.scrapes import read_scrapes
from bench.parse.validity import failures, verdict
from bench.runs.files import checksums
from bench.runs.run import REQUESTS, TELEMETRY
from tests.support.planted import reasons
from tests.support.scrapes import write_scrapes
from tests.support.server import eventually
from tests.support.study import METRICS
from tests.support.verdicts import CALM, judged, serving


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The folder of a sound run: a burst of four requests of 16 + 40 tokens."""
    folder = tmp_path_factory.mktemp("recorded")
    with serving() as server:
        assert reasons(judged(server, folder)) == []
    return folder


def told(recorded, folder, *, shown=None, requests=None, **limits):
    """The verdict on a recorded run.

    Args:
        shown: what the server showed in place of its values, by our names, at each scrape: None drops a metric, or the whole scrape.
        requests: columns of each request in place of its own.
    """
    shutil.copytree(recorded, folder)
    if shown:
        scrapes, kept = list(read_scrapes(folder / TELEMETRY)), []
        for number, scrape in enumerate(scrapes):
            lines = dict(line.split() for line in scrape["text"].splitlines())
            values = shown({ours: float(lines[name]) for ours, name in METRICS.items()}, number / len(scrapes))
            if values is not None:
                text = "".join(f"{METRICS[ours]} {value}\n" for ours, value in values.items() if value is not None)
                kept.append({**scrape, "text": text})
        write_scrapes(folder / TELEMETRY, kept)
    if requests:
        lines = [json.loads(line) for line in (folder / REQUESTS).read_text().splitlines()]
        (folder / REQUESTS).write_text("".join(json.dumps({**line, **requests}) + "\n" for line in lines))
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "files": checksums(folder, (REQUESTS, TELEMETRY))}))
    files = {key: folder / f"{key}.again" for key in ("requests", "telemetry", "wide", "summary")}
    return verdict(parse_run(folder, **files), CALM.model_copy(update=limits))


def ran(**changed):
    """The values of a server, of which some are changed: by a function of all of them, or to what is given."""
    return lambda values, _: values | {ours: to(values) if callable(to) else to for ours, to in changed.items()}


def test_what_a_server_shows_that_does_not_agree_with_its_answers(recorded, tmp_path):
    preemptions = ("preemptions (vllm:num_preemptions_total in vLLM)",)
    cases = {
        "as it was": (ran(), {}, None),
        "nothing": (lambda *_: {}, {}, {"check": "metrics_missing"}),
        "a metric is missing": (ran(preemptions=None), {}, {"check": "metrics_missing", "names": preemptions}),
        "it starts again": (
            lambda values, at: values | {"preemptions": 7 if at < 0.5 else 0}, {}, {"check": "counters_fell", "names": (METRICS["preemptions"],)},
        ),
        "cache hits where none should be": (ran(prefix_hits=lambda v: v["prefix_queries"] / 2), {}, {"check": "cached_tokens"}),
        "others' requests": (ran(running=lambda v: v["running"] + 9), {}, {"check": "other_requests"}),
        "no tokens": (ran(server_generation_tokens=7), {}, {"check": "tokens_not_counted", "value": 0, "limit": 160}),
        "one of two replicas": (
            ran(server_generation_tokens=lambda v: v["server_generation_tokens"] // 2), {},
            {"check": "tokens_not_counted", "value": 80, "limit": 160},
        ),
        "others' tokens": (
            ran(server_generation_tokens=lambda v: v["server_generation_tokens"] + 60 * v["prefix_queries"] / 16), {},
            {"check": "other_tokens", "value": 400, "limit": 160},
        ),
        "one request more in all": (
            ran(server_generation_tokens=lambda v: v["server_generation_tokens"] + 10 * v["prefix_queries"] / 16), {}, None,
        ),
        "its tokens fall": (ran(server_generation_tokens=lambda v: 900 - v["server_generation_tokens"]), {}, {"check": "counters_fell"}),
        "tokens are missing": (ran(server_generation_tokens=None), {}, {"check": "metrics_missing"}),
    }  # fmt: skip
    for number, (name, (shown, limits, wanted)) in enumerate(cases.items()):
        found = told(recorded, tmp_path / str(number), shown=shown, **limits).found
        assert [{key: getattr(each, key) for key in wanted or {}} for each in found] == ([wanted] if wanted else []), name


def test_prompts_that_the_server_does_not_count_are_said_and_leave_the_answers_known(recorded, tmp_path):
    found = told(recorded, tmp_path / "run", requests={"prompt_tokens": None}).found
    assert [(each.check, each.value) for each in found] == [("not_counted", 4)]
    summary = json.loads((tmp_path / "run/summary.again").read_text())
    assert (summary["uncounted_outputs"], summary["tpot_n"], list(stream_notes(summary))) == (0, 4, [])


def test_scrapes_that_stay_away_say_nothing_against_latencies(recorded, tmp_path):
    found = told(recorded, tmp_path / "run", shown=lambda values, at: None if 0.2 < at < 0.9 else values, scrape_gap_s=0.5)
    assert reasons(found) == ["scrape_gap", "scrape_share"]
    assert (found.faults, found.valid, found.counts_valid, found.telemetry_valid) == (["telemetry"], True, False, False)


def test_token_counts_other_than_asked_for(recorded, tmp_path):
    for changed, check, counted, asked in [
        ({"completion_tokens": 41}, "output_lengths", 41, 40), ({"prompt_tokens": 14}, "prompt_lengths", 14, 16),
    ]:  # fmt: skip
        (found,) = (each for each in told(recorded, tmp_path / check, requests=changed).found if each.check == check)
        assert (found.value, found.counted, found.limit) == (4, counted, asked), check


def test_cache_hits_that_stay_away(tmp_path):
    """Half of each prompt is shared: 8 of 16 tokens, one block."""
    with serving() as server:
        assert reasons(judged(server, tmp_path / "run", cache="shared", shared_prefix=0.5)) == ["hit_rate"]
    there = ran(prefix_hits=lambda v: max(0, v["prefix_queries"] - 16) / 2)
    assert reasons(told(tmp_path / "run", tmp_path / "hits", shown=there)) == []


def test_later_turns_are_no_part_of_a_burst(tmp_path):
    limits = CALM.model_copy(update={"client_delay_p99_s": 0.45})
    with serving() as server:
        found = judged(server, tmp_path, thresholds=limits, turns={"count": 2, "new_tokens": 8, "think_s": 1.0})
        assert "burst_spread" not in reasons(found)


@contextmanager
def frozen_load_process(server, for_s):
    """Take every core away from the load process for a while, in the middle of its run."""

    def freeze():
        eventually(lambda: server.in_flight > 0)
        for child in psutil.Process().children():
            if "bench.load" in child.cmdline():
                child.send_signal(signal.SIGSTOP)
                time.sleep(for_s)
                child.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=freeze)
    thread.start()
    yield
    thread.join()


def test_a_starved_client_stalls_and_sends_late(tmp_path):
    limits = CALM.model_copy(update={"client_delay_p99_s": 0.1})
    with serving() as server, frozen_load_process(server, 0.6):
        found = judged(server, tmp_path, 50.0, thresholds=limits, arrival="constant", num_requests=75)
    assert {"loop_stall", "schedule_delay"} <= {*reasons(found)} <= {"loop_lag", "loop_stall", "schedule_delay"}


def test_clocks_that_differ(tmp_path, monkeypatch):
    skewed = (
        "import time; m = time.monotonic; time.monotonic = lambda: m() + 0.05; from bench.load.__main__ import main; main()"
    )
    monkeypatch.setattr(client, "PROCESS", (sys.executable, "-c", skewed))
    with serving() as server:
        skew, *_ = judged(server, tmp_path).found  # by that clock the load may also end after the last scrape
    assert (skew.check, skew.value) == ("clock_skew", pytest.approx(0.05, abs=0.02))


def test_what_failed_requests_say_of_a_run(recorded, tmp_path):
    """That some or all fail is the server's answer; where no answer is whole, or all are refused for what they are, none was measured."""
    busy = told(recorded, tmp_path / "busy", requests={"outcome": "http_error", "status": 503, "completion_tokens": None})
    assert (reasons(busy), busy.valid, busy.counts_valid, busy.failed_share) == ([], True, True, 1.0)
    said = "'it ended after 2 chunks with tokens, without [DONE], a finish_reason or a usage'"
    for behaviour, check in (("truncated", "none_answered"), ("http_error", "refused")):
        with serving(behaviour=behaviour) as server:
            found = judged(server, tmp_path / behaviour)
        assert (reasons(found), found.valid, found.counts_valid, found.failed_share) == ([check], False, False, 1.0), behaviour
    summary = json.loads((tmp_path / "truncated/summary").read_text())
    assert failures(summary) == f"4 of 4 requests failed (4 truncated): {said}"

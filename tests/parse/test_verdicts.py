"""Every fault made to happen, from the socket to the verdict: a run that cannot be trusted says so, and why."""

import json
import signal
import sys
import threading
import time
from contextlib import contextmanager

import psutil
import pytest

from bench.load import client
from bench.measure import recording
from bench.words.verdicts import failures
from tests.support.planted import reasons
from tests.support.verdicts import CALM, exposition, judged, serving


def found_in(server, folder, level=4, **more):
    """What is found wrong with one run; `more` as for `judged`."""
    return reasons(judged(server, folder, level, **more))


@contextmanager
def frozen_load_process(server, for_s):
    """Take every core away from the load process for a while, in the middle of its run."""

    def freeze():
        end = time.monotonic() + 30
        while not server.in_flight and time.monotonic() < end:
            time.sleep(0.005)
        time.sleep(0.1)
        for child in psutil.Process().children():
            if "bench.load" in child.cmdline():
                child.send_signal(signal.SIGSTOP)
                time.sleep(for_s)
                child.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=freeze)
    thread.start()
    yield
    thread.join()


def test_a_sound_run_is_valid(tmp_path):
    with serving() as server:
        assert found_in(server, tmp_path) == []
        assert found_in(server, tmp_path / "2", 20.0, arrival="poisson", num_requests=20) == []


def test_later_turns_are_no_part_of_a_burst(tmp_path):
    turns = {"count": 2, "new_tokens": 8, "think_s": 1.0}
    with serving() as server:
        assert (
            found_in(
                server,
                tmp_path,
                thresholds=CALM.model_copy(update={"send_spread_s": 0.9, "prefix_hit_error": 1.0}),
                turns=turns,
            )
            == []
        )


def test_an_endpoint_that_says_nothing(tmp_path):
    with serving(exposition=lambda _: "") as server:
        (told,) = found_in(server, tmp_path)
    assert told == "metrics_missing"


def test_a_starved_client(tmp_path):
    limits = CALM.model_copy(update={"loop_lag_max_s": 0.25})
    with serving() as server, frozen_load_process(server, 0.6):
        told = found_in(server, tmp_path, thresholds=limits)
    assert told == ["loop_stall"]


def test_an_open_loop_that_sends_late(tmp_path):
    limits = CALM.model_copy(update={"schedule_delay_p99_s": 0.2})
    with serving() as server, frozen_load_process(server, 0.6):
        told = found_in(server, tmp_path, 50.0, thresholds=limits, arrival="constant", num_requests=75)
    assert told == ["schedule_delay"]


def test_clocks_that_differ(tmp_path, monkeypatch):
    skewed = (
        "import time; m = time.monotonic; time.monotonic = lambda: m() + 0.05; from bench.load.__main__ import main; main()"
    )
    monkeypatch.setattr(client, "PROCESS", (sys.executable, "-c", skewed))
    with serving() as server:
        told = found_in(server, tmp_path)
    assert told[0] == "clock_skew"  # by that clock the load may also end after the last scrape


def test_cache_hits_where_none_should_be(tmp_path):
    with serving(exposition=lambda s: exposition(s, prefix_hits=8 * len(s.bodies))) as server:
        assert found_in(server, tmp_path) == ["cached_tokens"]


def test_cache_hits_that_stay_away(tmp_path):
    """Half of each prompt is shared: 8 of 16 tokens, one block."""
    alike = {"cache": "shared", "shared_prefix": 0.5}
    with serving(exposition=lambda s: exposition(s, prefix_hits=8 * max(0, len(s.bodies) - 1))) as server:
        assert found_in(server, tmp_path, **alike) == []
    with serving() as server:
        told = found_in(server, tmp_path / "2", **alike)
    assert told == ["hit_rate"]


@pytest.mark.parametrize(
    ("offset", "check", "counted", "asked"),
    [({"token_offset": 1}, "output_lengths", 41, 40), ({"prompt_offset": -2}, "prompt_lengths", 14, 16)],
)
def test_token_counts_other_than_asked_for(tmp_path, offset, check, counted, asked):
    with serving(**offset) as server:
        (found,) = judged(server, tmp_path).found
    assert (found.check, found.value, found.counted, found.limit) == (check, 4, counted, asked)


def test_a_metric_that_is_missing(tmp_path):
    with serving(exposition=lambda s: exposition(s, preemptions=None)) as server:
        (found,) = judged(server, tmp_path).found
    assert (found.check, found.names) == ("metrics_missing", ("preemptions (vllm:num_preemptions_total in vLLM)",))


def test_an_engine_that_starts_again_in_the_run(tmp_path):
    def restarted(server):
        return exposition(server, preemptions=7 if len(server.bodies) < 4 else 0)

    with serving(exposition=restarted) as server:
        (found,) = judged(server, tmp_path).found
    assert (found.check, found.names) == ("counters_fell", ("vllm:num_preemptions_total",))


def test_scrapes_that_stay_away(tmp_path):
    limits = CALM.model_copy(update={"scrape_gap_s": 0.5})
    with serving(metrics_delay_s=0.8) as server:
        told = found_in(server, tmp_path, thresholds=limits)
    assert told == ["scrape_gap"]


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [("busy", "http_503"), ("disconnect", "disconnect")],
)
def test_requests_that_fail_are_the_server_s_answer_and_no_fault(tmp_path, behaviour, kind):
    with serving(behaviour=behaviour) as server:
        found = judged(server, tmp_path)
    assert (failures(json.loads((tmp_path / "summary").read_text())), found.failed_share) == (
        f"4 of 4 requests failed (4 {kind})",
        1.0,
    )
    assert (reasons(found), found.valid, found.counts_valid) == ([], True, True)


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("stream_error", "'out of memory'"),
        ("truncated", "'the stream ended after 2 chunks with tokens, without [DONE], a finish_reason or a usage'"),
    ],
)
def test_where_no_answer_is_whole_nothing_was_measured(tmp_path, behaviour, said):
    with serving(behaviour=behaviour) as server:
        found = judged(server, tmp_path)
    assert failures(json.loads((tmp_path / "summary").read_text())) == f"4 of 4 requests failed (4 {behaviour}): {said}"
    assert reasons(found) == ["none_answered"]
    assert (found.valid, found.counts_valid) == (False, False)


def test_requests_that_are_refused_for_what_they_are(tmp_path):
    with serving(behaviour="http_error") as server:
        found = judged(server, tmp_path)
    assert reasons(found) == ["refused"]
    assert (found.faults, found.valid, found.counts_valid) == (["content"], False, False)


def test_scrapes_that_stay_away_say_nothing_against_latencies(tmp_path):
    limits = CALM.model_copy(update={"scrape_gap_s": 0.5})
    with serving(metrics_delay_s=0.8) as server:
        found = judged(server, tmp_path, thresholds=limits)
    assert (found.faults, found.valid, found.counts_valid, found.telemetry_valid) == (["telemetry"], True, False, False)


def test_peaks_between_two_scrapes_are_no_fault(tmp_path):
    """Answers of 60 ms, gauges that lag by a tenth of a second: at no scrape has the server what the client had at its peaks."""
    shown = []

    def lagging(server):
        shown.append(server.in_flight)
        return exposition(server, running=min(1, shown[-3] if len(shown) > 2 else 0))

    limits = CALM.model_copy(update={"in_flight_error": 0.25})
    with serving(first_s=0.05, gap_s=0.005, exposition=lagging) as server:
        found = judged(server, tmp_path, 40.0, thresholds=limits, arrival="poisson", num_requests=120, output_tokens=3)
    assert reasons(found) == []


def test_a_server_that_has_other_requests_too(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "_DRAIN_LIMIT_S", 0.5)  # those others do not end
    limits = CALM.model_copy(update={"in_flight_error": 0.25})
    with serving(exposition=lambda s: exposition(s, running=s.in_flight + 9)) as server:
        told = found_in(server, tmp_path, thresholds=limits)
    assert told == ["other_requests"]


def of_two_replicas(server):
    """What one of two replicas shows that answer the requests by turns."""
    return exposition(server, server_generation_tokens=server.generated // 2, running=(server.in_flight + 1) // 2)


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (exposition, None),
        (lambda s: exposition(s, server_generation_tokens=7), ("tokens_not_counted", 0, 160)),
        (of_two_replicas, ("tokens_not_counted", 80, 160)),
        (lambda s: exposition(s, server_generation_tokens=s.generated + 60 * len(s.bodies)), ("other_tokens", 400, 160)),
        (lambda s: exposition(s, server_generation_tokens=s.generated + 10 * len(s.bodies)), None),  # one request more in all
        (lambda s: exposition(s, server_generation_tokens=900 - s.generated), ("counters_fell", None, None)),
        (lambda s: exposition(s, server_generation_tokens=None), ("metrics_missing", None, None)),
    ],
)  # fmt: skip
def test_a_servers_count_of_tokens_is_that_of_the_answers(tmp_path, shown, said):
    with serving(exposition=shown) as server:
        found = judged(server, tmp_path).found
    assert [(each.check, each.value, each.limit) for each in found] == ([said] if said else [])


def test_a_server_that_never_sees_all_that_was_sent(tmp_path):
    limits = CALM.model_copy(update={"in_flight_error": 0.25})
    with serving(exposition=lambda s: exposition(s, running=min(2, s.in_flight))) as server:
        (found,) = judged(server, tmp_path, 12, thresholds=limits, output_tokens=130).found
    assert (found.check, found.value, found.share) == ("held_back", 10, pytest.approx(10 / 12))

"""`bench find` against a server whose limit is known: it refuses from so many requests in flight on."""

from __future__ import annotations

import itertools
import json
import math
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from bench.cli.commands.find import Find
from bench.cli.commands.find.searching import load_of, status
from bench.errors import BenchError
from bench.parse.observation import CAP
from bench.search.placing import Aim, Answer, Prior
from bench.search.probe import Alone, Probed
from bench.search.search import Found, Look
from bench.search.words import alone_text, look_text, probed_text, why_text
from bench.statistics.observation import FAILED, Excess, Observation
from bench.study.slo import parse_slo
from tests.support.command import bench
from tests.support.fake_server import fake_server
from tests.support.snapshots import same
from tests.support.study import ROOT

MOST = 3
PAGES = {"/v1/models": '{"data": [{"id": "m"}]}'}
COMMON = ["--model", "m", "--concurrency", "--prompt-length", "16", "--output-length", "4", "--slo", "ttft_p90=500ms"]


def find(url, *options, cwd=ROOT):
    return bench("find", "--base-url", url, *COMMON, *options, cwd=cwd)


@pytest.fixture
def server():
    with fake_server(first_s=0.02, gap_s=0.002, pages=PAGES) as running:
        running.refuse = lambda _: (503, {}) if running.in_flight > MOST else None
        yield running


@pytest.mark.workflow
@pytest.mark.timeout(300)
def test_the_limit_is_found_and_a_second_search_measures_nothing(server, tmp_path):
    into, near = ("--output-dir", tmp_path / "found"), ("--set", "start=3", "--set", "most=4", "--set", "precision=0.3")
    done = find(server.base_url, *into, "--json", *near)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["low"] <= MOST <= result["high"], result
    assert result["high"] - result["low"] <= 1
    assert (result["axis"], result["why"], result["met"]) == ("concurrency", "found", None)
    assert json.loads((tmp_path / "found/find.json").read_text()) == result
    assert all(bool(run["failed"]) == (run["load"] > MOST) for run in result["runs"]), result["runs"]
    assert all(list(run["of_limit"]) == ["ttft_p90"] for run in result["runs"])
    assert f"{len(result['runs'])} of at most 30 runs" in done.stderr
    before = len(server.requests)
    again = find(server.base_url, *into, "--json", *near)
    assert json.loads(again.stdout)["limit"] == result["limit"]
    asked = find(server.base_url, *into, "--json", "--at-least", "2", *near)
    assert (asked.returncode, json.loads(asked.stdout)["met"]) == (0, True), asked.stderr
    assert len([path for path, _ in server.requests[before:] if path.endswith("completions")]) < 20  # first requests alone
    # Runs of another form of request are not this one's.
    sent = len(server.requests)
    assert find(server.base_url, *into, *near, "--set", "omit=ignore_eos", "--set", "max_runs=1").returncode in (0, 3)
    assert len([path for path, _ in server.requests[sent:] if path.endswith("completions")]) > 40
    lower = find(server.base_url, *into, *near[:2], *near[4:], "--at-least", "12")
    assert lower.returncode == 1
    assert "At least 12 in flight: missed." in lower.stdout


@pytest.mark.workflow
def test_a_search_that_is_stopped_says_what_it_knows_and_how_to_go_on(server, tmp_path):
    words = [
        sys.executable,
        "-m",
        "bench.cli",
        "find",
        "--base-url",
        server.base_url,
        *COMMON,
        "--output-dir",
        tmp_path / "found",
    ]
    with subprocess.Popen([*words, "--set", "start=3"], cwd=ROOT, stderr=subprocess.PIPE, text=True) as search:
        before = list(itertools.takewhile(lambda line: "of at most 30 runs" not in line, search.stderr))
        search.send_signal(signal.SIGINT)
        said = search.stderr.read()
    assert search.returncode == 130, before
    assert "Stopped; limit perhaps" in said and "The same command goes on from the runs that have ended." in said, said


def test_a_search_sends_what_a_workload_can_be():
    server = {"base_url": "u", "model": "m", "slo": ["ttft_p90=1s"], "prompt_length": 8}
    said = ["arrival=constant", "cache=shared", "shared_prefix=0.5", "stream=false", "honour_retry_after=true"]
    _, sent = load_of(Find(**server, request_rate=True, set=said))
    assert (sent.arrival, sent.cache, sent.shared_prefix, sent.stream, sent.honour_retry_after) == (
        "constant", "shared", 0.5, False, True,
    )  # fmt: skip
    _, sent = load_of(Find(**server, concurrency=True, set=["stream=false"]))
    assert (sent.arrival, sent.stream) == ("closed", False)
    with pytest.raises(BenchError, match="arrival gamma needs burstiness"):
        load_of(Find(**server, request_rate=True, set=["arrival=gamma"]))


def test_without_a_run_that_can_be_trusted_there_is_no_answer_and_more_runs_are_no_advice(tmp_path):
    with fake_server(first_s=0.05, gap_s=0.01, token_offset=1, pages=PAGES) as server:
        done = find(server.base_url, "--set", "max_runs=1", "--set", "start=1", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "The highest load within TTFT P90 ≤ 500 ms is not known." in done.stdout
    assert "runs cannot be trusted; put right why, and search again. The last run is invalid: " in done.stdout
    assert "had another output length than asked for" in done.stdout
    assert "max_runs" not in done.stdout


def test_a_run_says_how_long_it_takes_and_none_begins_that_does_not_fit(server, tmp_path):
    """50 requests at 2 requests/s take 25 s, and 20 take 10."""
    rate = ["--model", "m", "--request-rate", "--prompt-length", "16", "--output-length", "4", "--slo", "ttft_p90=500ms"]
    begun = "--set", "start=2", "--set", "most=2", "--output-dir", tmp_path / "found"
    sent = len(server.bodies)
    none = bench("find", "--base-url", server.base_url, *rate, *begun, "--max-minutes", "0.1")
    assert none.returncode == 1, none.stderr
    assert "no run was long enough to be judged; raise --max-minutes or --set max_runs=N." in none.stdout
    assert len(server.bodies) - sent < 10
    result = json.loads((tmp_path / "found/find.json").read_text())
    assert (result["limit"], result["low"], result["high"], result["runs"]) == (None, 0, None, [])
    cut = bench("find", "--base-url", server.base_url, *rate, *begun, "--max-minutes", "0.25")
    assert "28 requests at 2 requests/s, about 15 s" in cut.stderr


ONE = [Look(4.0, 50, 2.0, Observation(4.0, {"ttft_p90_s": Excess(0.5, 0.1)}, 50))]


def test_the_exit_status_is_0_for_what_was_asked_alone():
    for answer, looks, at_least, code in [
        (Answer(4, 3, 5, "found"), ONE, None, 0),
        (Answer(4, 2, 9, "runs"), ONE, None, 3),  # too wide
        (Answer(4, 4, math.inf, "seconds"), ONE, None, 3),  # no upper end
        (Answer(0, 0, math.inf, "seconds"), ONE, None, 3),  # a run at 164 % of the limit, and nothing known
        (Answer(9, 9, math.inf, "above"), ONE, None, 3),
        (Answer(0, 0, 1, "below"), ONE, None, 3),
        (Answer(0, 0, 0, "alone"), [], None, 3),
        (Answer(0, 0, 0, "alone"), [], 2, 1),
        (Answer(0, 0, math.inf, "short"), [], None, 1),
        (Answer(0, 0, math.inf, "seconds"), [], None, 1),
        (Answer(4, 3, 5, "invalid"), ONE, None, 1),
        (Answer(4, 3, 5, "gone"), ONE, None, 1),
        (Answer(4, 3, 5, "gone"), ONE, 2, 1),
        (Answer(4, 3, 9, "runs"), ONE, 3, 0),
        (Answer(4, 3, math.inf, "seconds"), ONE, 2, 0),
        (Answer(4, 3, 5, "found"), ONE, 6, 1),
        (Answer(4, 3, 5, "found"), ONE, 4, 3),
        (Answer(0, 0, math.inf, "short"), [], 4, 3),
    ]:
        assert status(Found(answer, looks), at_least) == code


def test_what_is_said_of_a_search():
    """Why it ended; of a run's share of its limit no more than the bound tells; and how long its precision takes."""
    aim = Aim([parse_slo("ttft_p90=1s")], 0.01, True, 0.1, 1.0, 64.0)
    rate = replace(aim, slos=[parse_slo("ttft_p99=1s")], held=False, start=0.5)
    judged = [[Look(1.0, 50, 2.0, None, reasons)] for reasons in (("late",), ())]
    ends = [Found(Answer(0.0, 0.0, math.inf, why), looks) for looks in judged for why in ("short", "seconds")]
    assert not any(found.answer.known for found in ends)
    unfit = Found(Answer(0.0, 0.0, math.inf, "seconds"), probed=Probed(0.5, 2.5, 8, 31.2))
    lines = [*(why_text(found, aim) for found in ends), why_text(unfit, rate), probed_text(unfit.probed, rate)]
    # The first on a machine 5 % faster than usual; of 50 a tenth may fail.
    for value, failed in ((-CAP + math.log(1.05), 0), (CAP, 0), (math.log(0.5), 0), (CAP, 5), (CAP, 6)):
        seen = Observation(8.0, {"ttft_p90_s": Excess(value, 0.1), FAILED: Excess(value, 0.1)}, 50, failed)
        lines.append(look_text(Look(8.0, 50, 2.0, seen), aim))
    # 200 requests near a limit of 5/s take 40 s; six such runs are usual, four the fewest.
    probed = Probed(5.0, 6.0, 8, 30.0, latency_s=1.0, prior=Prior(5.0, 0.14, 6.0))
    open_loop = replace(aim, held=False)
    lines += [probed_text(probed, open_loop), probed_text(probed, replace(open_loop, precision=0.2))]
    lines.append(alone_text(Alone(parse_slo("tpot_p90=5ms"), 0.01112, 2, cut=False)))
    same("search-ends", lines)


@pytest.mark.long(part="workflows")
@pytest.mark.workflow
def test_a_server_that_dies_ends_the_search_with_what_is_known(server, tmp_path):
    """The runs before it count; the one in which it died does not, whose failures say nothing of the load."""
    asked = []

    def dies(_):
        asked.append(1)
        server.gone = len(asked) > 400
        return (503, {}) if server.in_flight > MOST else None

    server.refuse = dies
    done = find(
        server.base_url, "--output-dir", tmp_path / "found", "--json", "--at-least", str(MOST), "--set", "precision=0.02"
    )
    assert done.returncode == 1, done.stderr
    assert "stopped answering" in done.stderr
    result = json.loads(done.stdout)
    assert result["why"] == "gone"
    assert result["limit"] <= MOST
    assert result["runs"]
    runs = list((tmp_path / "found/runs").iterdir())
    assert len(runs) == len(result["runs"])


def test_a_server_that_dies_in_the_probe_ends_the_search_with_a_next_step(server, tmp_path):
    server.refuse = lambda number: setattr(server, "gone", number >= 3)
    done = find(server.base_url, "--output-dir", tmp_path / "found")
    assert done.returncode == 1, done.stderr
    assert "the server stopped answering. Restart it; the same command continues" in done.stdout
    assert json.loads((tmp_path / "found/find.json").read_text())["why"] == "gone"


def test_a_load_that_the_server_refuses_is_refused_in_its_words_and_what_it_refuses_in_part_too(tmp_path):
    """A context of 20 tokens; no threshold would help."""
    whole = "This model's maximum context length is 20 tokens."

    def too_long(body):
        return (400, {"error": {"message": whole}}) if len(body["prompt"]) + body["max_tokens"] > 20 else None

    with fake_server(answers=too_long, pages=PAGES) as short:
        done = find(short.base_url, "--prompt-length", "30", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert (
            f"refuses every request of this load (HTTP 400): {whole} It answered requests of a few tokens: send sh"
            in done.stderr
        )
        mixed = ["--set", "prompt_tokens={distribution: uniform, min: 4, max: 30}", "--set", "max_runs=1"]
        part = bench("find", "--base-url", short.base_url, *COMMON[:3], *COMMON[5:], *mixed, cwd=tmp_path)
    assert part.returncode == 1
    assert whole in part.stdout and "other_share" not in part.stdout


def test_where_one_request_alone_misses_the_slo_it_is_said_at_once(tmp_path):
    with fake_server(first_s=0.7, gap_s=0.002, pages=PAGES) as slow:
        done = find(slow.base_url, "--json", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    result = json.loads(done.stdout)
    assert (result["why"], result["limit"], result["high"], result["runs"]) == ("alone", 0, 0, [])
    assert "one request alone has a TTFT of " in done.stderr
    assert len(slow.bodies) < 10


def test_a_model_that_the_server_does_not_list_is_named(tmp_path):
    """It may be served all the same."""
    with fake_server(pages={"/v1/models": '{"data": [{"id": "n"}]}'}, refuse=lambda _: (401, {})) as server:
        said = find(server.base_url, cwd=tmp_path).stderr
    assert "--model m: the server lists n, and not this name" in said

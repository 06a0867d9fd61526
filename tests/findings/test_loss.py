"""What the loss of a worker did to a fleet: a simulated one, whose errors end and whose queue drains at known moments."""

import copy
import heapq
import threading

import numpy as np
import polars as pl
import pytest

from bench.analysis.loss import losses
from bench.analysis.slo import goodput, judged_requests
from bench.errors import BenchError
from bench.measure.losing import Losing
from bench.parse.loss import loss_figures
from bench.parse.scrapes import TELEMETRY_SCHEMA
from bench.parse.steady import steady_figures
from bench.records.run import Lost
from bench.study import Plan, Slo, load_config
from bench.study.lose import Lose
from bench.words.workers import loss
from tests.support.planted import summary_row, summary_rows

KILLED_S = 20.0
SLO = Slo("ttft", "p90", 0.3)
DEFINITION = {"arrival": "poisson", "axis": "request_rate", "level": 1.0}


def simulated(seed, *, rate=8.0, found_s=2.0, stalls=False, length_s=60.0):
    """Requests of two workers of four slots each, of 0.35 s a request (11.4 requests/s a worker), the first of which is killed.

    Args:
        found_s: time in which the router still sends it requests; they fail. stalls: they wait until then for the other one.

    Returns:
        The requests, and when the errors end or the queue that waited is served, in s since the loss.
    """
    rng = np.random.default_rng(seed)
    due = np.cumsum(rng.exponential(1 / rate, int(rate * length_s * 2)))
    free, ends = [[0.0] * 4, [0.0] * 4], [[], []]
    rows, last = [], KILLED_S
    until = KILLED_S + found_s
    for at in due[due < length_s]:
        alive = [0, 1] if at < until else [1]
        worker = min(alive, key=lambda w: (sum(end > at for end in ends[w]), rng.random()))
        lost = worker == 0 and at >= KILLED_S
        if lost and not stalls:
            rows.append((at, at + 0.01, None))
            last = max(last, at + 0.01)
            continue
        worker, since = (1, until) if lost else (worker, at)
        begin = max(heapq.heappop(free[worker]), since)
        if stalls and at > until and last == KILLED_S and begin == at:
            last = at  # the first that waits no longer
        end = begin + 0.35 * rng.lognormal(0, 0.2)
        heapq.heappush(free[worker], end)
        ends[worker].append(end)
        if worker == 0 and end > KILLED_S:
            rows.append((at, KILLED_S, None))
        else:
            rows.append((at, end, begin + 0.05 * rng.lognormal(0, 0.3)))
    sent, ended, first = zip(*rows, strict=True)
    times = [list(np.linspace(begun, end, 16)) if begun else [] for _, end, begun in rows]
    told = {
        "index": range(len(rows)), "after": [None] * len(rows), "scheduled_s": sent, "sent_s": sent, "end_s": ended, "first_token_s": first,
        "outcome": ["ok" if begun else "disconnect" for begun in first], "output_asked": 16, "completion_tokens": 16, "token_times_s": times,
    }  # fmt: skip
    ok = pl.col("outcome") == "ok"
    frame = pl.DataFrame(told, schema_overrides={"after": pl.Int64}).with_columns(
        last_token_s=pl.when(ok).then("end_s"),
        ttft_s=pl.col("first_token_s") - pl.col("sent_s"),
        tpot_s=(pl.col("end_s") - pl.col("first_token_s")) / 15,
        e2e_s=pl.when(ok).then(pl.col("end_s") - pl.col("sent_s")),
    )
    return frame, last - KILLED_S


def figures(requests):
    nothing = pl.DataFrame(schema=TELEMETRY_SCHEMA)
    window, steady = steady_figures(DEFINITION, requests, nothing, lost_at_s=KILLED_S)
    return steady | loss_figures(Lost(worker="replica 1", at_s=KILLED_S), requests, window)


def recovers(seeds):
    """The recovery ends with the errors where the others have room, and without errors when the queue has drained."""
    for found_s in (0.0, 2.0, 5.0):
        for seed in seeds:
            requests, ended_s = simulated(seed, found_s=found_s)
            found = figures(requests)
            assert found["lost_errors_s"] == pytest.approx(ended_s), (found_s, seed)
            assert found["lost_failed"] == (requests["outcome"] != "ok").sum(), (found_s, seed)
            assert found["lost_recovered"] is True, (found_s, seed)
            assert found["lost_recovery_s"] == pytest.approx(ended_s, abs=1.0), (found_s, seed)
    off = []
    for seed in seeds:
        requests, drained_s = simulated(seed, rate=6.0, found_s=5.0, stalls=True, length_s=90.0)
        found = figures(requests)
        assert found["lost_recovered"] is True, seed
        off.append(found["lost_recovery_s"] - drained_s)
    assert abs(np.median(off)) < 1.5
    assert max(map(abs, off)) < 5.0


def does_not_recover(seeds):
    """A load beyond the others is no recovery, and a run that is too short after the loss does not tell."""
    for planted, told in (({"rate": 14.0}, (False, None)), ({"length_s": 21.0}, (None, None))):
        found = [figures(simulated(seed, **planted)[0]) for seed in seeds]
        assert {(each["lost_recovered"], each["lost_recovery_s"]) for each in found} == {told}, planted


def test_when_a_fleet_has_recovered():
    recovers(range(2))
    does_not_recover(range(2))
    # Errors that go on are no recovery.
    requests, _ = simulated(0)
    found = figures(failing(requests, (pl.col("sent_s") > KILLED_S) & (pl.col("index") % 6 == 0)))
    assert (found["lost_errors_s"], found["lost_recovered"]) == (None, False)


def nothing(requests, where, *names):
    """The requests, without some latencies where the condition holds."""
    return requests.with_columns(pl.when(where).then(None).otherwise(name).alias(name) for name in names)


def test_which_requests_speak_of_the_loss():
    # An answer without TPOT does not count as a slow one.
    requests, ended_s = simulated(0)
    found = figures(nothing(requests, pl.col("index") % 5 >= 2, "tpot_s"))
    assert found["lost_recovered"] is True
    assert found["lost_recovery_s"] == pytest.approx(ended_s, abs=2.0)
    # A stray failure neither prolongs a recovery nor denies it.
    for at_s in (35.0, 50.0, 59.0):
        requests, ended_s = simulated(0)
        whole, found = figures(requests), figures(failing(requests, pl.col("index") == (pl.col("sent_s") < at_s).sum()))
        assert found["lost_failed"] == whole["lost_failed"] + 1, at_s
        assert found["lost_errors_s"] == pytest.approx(ended_s), at_s
        assert (found["lost_recovered"], found["lost_recovery_s"]) == (True, whole["lost_recovery_s"]), at_s
    # Failures before the loss are not its doing.
    requests, _ = simulated(0)
    assert figures(failing(requests, pl.col("index") < 5, "sent_s", "end_s"))["lost_failed"] == figures(requests)["lost_failed"]
    # Answers at one moment are judged by E2E, and answers without any latency by nothing.
    requests, drained_s = simulated(0, rate=6.0, found_s=5.0, stalls=True, length_s=90.0)
    whole = nothing(requests, pl.lit(value=True), "ttft_s", "tpot_s")
    assert figures(whole)["lost_recovery_s"] == pytest.approx(drained_s, abs=5.0)
    found = figures(nothing(whole, pl.lit(value=True), "e2e_s"))
    assert (found["lost_recovered"], found["lost_recovery_s"]) == (None, None)


def failing(requests, where, *unknown):
    """The requests, of which those fail where the condition holds, and lack what is unknown of them."""
    requests = requests.with_columns(outcome=pl.when(where).then(pl.lit("disconnect")).otherwise("outcome"))
    return nothing(requests, where, "first_token_s", "last_token_s", "ttft_s", "tpot_s", "e2e_s", *unknown)


def ends(seed, share, until_s):
    """A run in which that share of requests fails at random until a moment (s), as the loss itself is over."""
    requests, _ = simulated(seed, found_s=1.0)
    rng = np.random.default_rng(seed)
    fails = pl.Series(rng.random(requests.height) < share)
    return figures(failing(requests, (pl.col("sent_s") > KILLED_S) & (pl.col("sent_s") < until_s) & fails))


@pytest.mark.long(part="truth")
def test_recoveries_of_many_losses():
    recovers(range(20))
    does_not_recover(range(20))
    # A few per cent fail until the run ends, 320 requests after the loss: the last row of answers is chance.
    for share in (0.02, 0.04, 0.08):
        found = [ends(seed, share, 60.0) for seed in range(60)]
        assert sum(each["lost_errors_s"] is not None for each in found) <= (15 if share == 0.02 else 5), share
    # They fail for 10 s, and 240 requests follow without one.
    for share in (0.04, 0.08, 0.3):
        found = [ends(seed, share, 30.0) for seed in range(60)]
        assert sum(each["lost_errors_s"] is not None for each in found) >= 55, share
        assert sum(each["lost_recovered"] is True for each in found) >= 55, share
    for rate, wrong in ((5.0, False), (11.0, True)):  # TTFT P90 of one worker: 0.1 s, 6 s
        found = [judged(seed, rate) for seed in range(20)]
        assert found.count(wrong) <= 1 and found.count(not wrong) >= 15, rate


def test_errors_that_recur_are_told_from_those_that_ended():
    """8 % of the requests fail until the run ends, or for 10 s."""
    assert ends(0, 0.08, 60.0)["lost_errors_s"] is None
    found = ends(0, 0.08, 30.0)
    assert found["lost_errors_s"] == pytest.approx(10.0, abs=1.5)
    assert found["lost_recovered"] is True
    # Of 100 requests/s one in 50 fails for 10 s, then one in 102: of so many, the ways to choose those that fail are beyond a float.
    index = pl.int_range(20_000, eager=True)
    outcome = pl.Series(["http_error" if i % (50 if i < 1000 else 102) == 30 else "ok" for i in index])
    requests = pl.DataFrame(
        {"scheduled_s": index / 100, "sent_s": index / 100, "end_s": index / 100 + 0.005, "outcome": outcome}
    )
    found = loss_figures(Lost(worker="replica 1", at_s=0.0), requests, None)
    assert found["lost_errors_s"] == pytest.approx(8.0, abs=3.0)  # once no more than 1 % of what follows fails


def judged(seed, rate, slos=(SLO,), without=None, lost=0):
    """Whether the others hold a rate; Args: without: a latency that no answer has. lost: answers of the steady window that failed too."""
    requests, _ = simulated(seed, rate=rate)
    failed = (requests["outcome"] != "ok").sum()
    row = summary_row(
        deployment="two", workload="w", family="w", run=f"r{seed}", arrival="poisson", axis="request_rate", level=rate, turns=1,
        valid=True, repeat=1, requests=requests.height, failed=failed, ok=requests.height - failed, duration_s=60.0,
        throughput_requests_per_s=rate,
    ) | figures(requests)  # fmt: skip
    row |= goodput(row, judged_requests(row, requests), [SLO])
    row["judged"] = [{**each, **({without: None} if without else {})} for each in row["judged"]]
    for each in row["judged"][:lost]:
        each["ok"] = False
    return losses(summary_rows([row]), slos)[0].holds


TPOT, E2E = Slo("tpot", "p90", 0.1), Slo("e2e", "p90", 5.0)


def test_n_plus_1_does_not_hold_by_a_latency_that_was_not_measured():
    """Behind a router that buffers streams no answer has a TTFT; that too many fail is seen all the same."""
    for rate, slos, without, lost, holds in (
        (5.0, [SLO], None, 0, True),
        (11.0, [SLO], None, 0, False),  # TTFT P90 of one worker: 6 s
        (5.0, [SLO], "tpot", 0, True),
        (5.0, [SLO], "ttft", 0, None),
        (5.0, [TPOT], "tpot", 0, None),
        (5.0, [SLO, TPOT], "tpot", 0, None),
        (5.0, [E2E, SLO], "ttft", 0, None),
        (5.0, [SLO], "ttft", 60, False),
    ):
        assert judged(0, rate, slos, without, lost) is holds, (rate, slos, without, lost)


def test_without_a_loss_nothing_is_known():
    found = loss_figures(None, simulated(0)[0], None)
    assert set(found.values()) == {None}
    assert losses(summary_rows([summary_row(deployment="a", workload="w")]), [SLO]) == []
    # A worker that lives on was not lost.
    fleet = Immortal()
    losing = Losing(fleet, Lose(after_s=0.001))
    with pytest.raises(PermissionError), losing:
        assert fleet.asked.wait(30)
    assert losing.lost(0.0) is None


def test_in_words():
    def said(failed, share, errors_s, recovered, recovery_s=None, *, holds=None, valid=True):
        lost = {"failed": failed, "failed_share": share, "errors_s": errors_s, "recovered": recovered, "recovery_s": recovery_s}
        row = {"deployment": "two", "workload": "w", "level": 8.0, "valid": valid}
        return loss({**row, **{f"lost_{name}": value for name, value in lost.items()}}, holds=holds)

    text = said(12, 0.04, 2.0, True, 2.3, holds=True)
    for words in ("12 requests failed (4 %); errors ended 2 s after it", "at their steady level after 2.3 s", "within the SLOs: N + 1 holds."):  # fmt: skip
        assert words in text, words
    assert "no request failed. The others had not come to a steady level" in said(0, 0.0, 0.0, False, holds=False)
    doubtful = said(1, 0.1, None, None, valid=False)
    assert "1 request failed (10 %); whether errors had ended is not known. The run is invalid" in doubtful
    assert "9 requests failed (100 %), until the run ended." in said(9, 1.0, None, None)
    # All requests after the loss fail, or half of them until the end; in neither case can nine answers in a row raise a doubt.
    base = {"deployment": "two", "workload": "w", "run": "r", "arrival": "poisson", "axis": "request_rate", "level": 8.0}
    requests, _ = simulated(0)
    for every in (1, 2):
        lost = figures(failing(requests, (pl.col("sent_s") > KILLED_S) & (pl.col("index") % every == 0)))
        for valid in (True, False):
            row = summary_row(**base, valid=valid) | lost
            (found,) = losses(summary_rows([row]), [])
            assert ", until the run ended." in loss(row, found.holds), (valid, every)


class Immortal:
    """A fleet whose workers cannot be killed, as those of somebody else."""

    def __init__(self):
        self.asked = threading.Event()

    def lose(self, number):
        self.asked.set()
        raise PermissionError(number)


def test_what_cannot_be_lost_is_refused(content):
    minute = {"arrival": "poisson", "duration_s": 60.0}
    (ladder, *_) = content["study"]["ladders"]
    deployment, name = ladder["deployment"], ladder["workload"]
    for workload, fleet, said in (
        ({"arrival": "closed", "num_requests": 10}, {"replicas": 2}, "a closed loop would send less"),
        ({"arrival": "poisson", "duration_s": 20.0}, {"replicas": 2}, r"duration_s beyond lose\.after_s"),
        (minute, {"replicas": 1}, "starts 1 in all. Give it more `replicas`, at least 2"),
    ):
        wrong = copy.deepcopy(content)
        wrong["deployments"][deployment] |= {"router": "haproxy", **fleet}
        wrong["workloads"][name] = {"prompt_tokens": 4, "output_tokens": 3, "lose": {"after_s": 20.0}, **workload}
        wrong["study"]["ladders"] = [{"deployment": deployment, "workload": name, "request_rate": [1.0]}]
        with pytest.raises(BenchError, match=said):
            Plan.of(load_config(wrong, source="test"))

"""A tuning: its model of all starts, its race on planted servers, its visits to real ones, and what it says."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from statistics import fmean

import polars as pl
import pytest
import yaml
from benchmarks.tuning import Machine, Planted, predictions

from bench.aggregate import summary_frame
from bench.errors import BenchError
from bench.figures import Results
from bench.records.tuning import Confirmed, Predicted, Visit, read_tuning
from bench.report.answers import answers
from bench.report.findings import curves
from bench.study import Paths, Plan, load_config
from bench.study.config import Thresholds
from bench.study.tuning import candidates
from bench.tune.race import Ask, Rival, race
from bench.tune.standing import Seen, Space, Standing
from bench.words.tuning import tuning_lines
from tests.support import records
from tests.support.fake_server import fake_server
from tests.support.snapshots import same
from tests.support.tuning import competing, record

GRID = [{"slots": slots, "batch": batch} for slots in (2, 4) for batch in (64, 512)]


# The model of all starts


def test_what_is_seen_of_a_setting_is_expected_of_candidates_that_share_it():
    seen = [Seen(0, 0.0, 0.05, 0.0), Seen(1, 0.5, 0.05, 4.0), Seen(2, 0.0, 0.05, 8.0)]
    standing = Standing(Space(GRID), seen)
    assert standing.means[3] == pytest.approx(0.4, abs=0.15)  # never started: batch 512 added 0.5 to slots 2
    gain, error = standing.contribution("batch", 1, 0)
    assert gain == pytest.approx(0.45, abs=0.1)
    assert 0.03 < error < 0.2
    assert standing.better(1, 0) > 0.99
    assert standing.better(2, 0) == pytest.approx(0.5, abs=0.1)


def test_settings_that_changed_together_share_a_large_gain_that_neither_is_shown_to_have():
    """As measured of vLLM: both settings changed, 4.9 times the rate. With one scale of effects each got half of it, significantly."""
    seen = [Seen(0, 0.9, 0.08, 0.0), Seen(3, 2.48, 0.1, 8.0), Seen(3, 2.48, 0.1, 16.0), Seen(0, 0.9, 0.08, 24.0)]
    standing = Standing(Space(GRID), seen)
    assert standing.difference(3, 0)[0] == pytest.approx(1.55, abs=0.1)
    for column in ("slots", "batch"):
        mean, error = standing.contribution(column, 3, 0)
        assert mean < 1.96 * error
        assert mean + 1.96 * error > 1.5  # all of it may be this one's


def test_starts_begin_at_the_rate_that_the_runs_show():
    seen = [Seen(number % 2, 1.0 + 0.02 * (number % 2), 0.03, 4.0 * number) for number in range(6)]
    standing = Standing(Space(GRID), seen)
    mean, error = standing.expected(2, 24.0)  # other slots, of which nothing was seen
    assert mean == pytest.approx(standing.means[2], abs=0.05)
    assert error == pytest.approx(math.sqrt(standing.covariance[2, 2]), abs=0.1)


def test_more_starts_say_more_and_a_drifting_machine_less():
    once = Standing(Space(GRID), [Seen(0, 0.0, 0.05, 0.0), Seen(1, 0.1, 0.05, 4.0)])
    again = Standing(Space(GRID), [Seen(n % 2, 0.1 * (n % 2), 0.05, 4.0 * n) for n in range(8)])
    far = Standing(Space(GRID), [Seen(0, 0.0, 0.05, 0.0), Seen(1, 0.1, 0.05, 400.0)])
    errors = [each.difference(1, 0)[1] for each in (again, once, far)]
    assert errors == sorted(errors)
    assert errors[0] < 0.6 * errors[1] < 0.6 * errors[2]


def test_where_no_two_candidates_differ_in_a_setting_alone_its_part_is_not_known():
    settings = [{"slots": 2, "batch": 64}, {"slots": 4, "batch": 512}]
    standing = Standing(Space(settings), [Seen(0, 0.0, 0.05, 0.0), Seen(1, 0.4, 0.05, 4.0)])
    assert standing.contribution("slots", 1, 0) is None


def test_a_large_gain_of_settings_that_changed_together_is_divided_among_neither():
    """Slots and batch changed at once, and the rate fourfold: each may have done all of it."""
    seen = [Seen(0, 0.0, 0.05, 0.0), Seen(3, math.log(4.0), 0.05, 4.0)]
    standing = Standing(Space(GRID), seen)
    for column in ("slots", "batch"):
        gain, error = standing.contribution(column, 3, 0)
        assert gain - 1.96 * error < 0 < gain


# The race


def raced(number, seed=3, minutes=90.0, *, off=None, fail=0.0):
    """Args: off: error of a model's predictions (ln); None without. fail: share of the starts."""
    planted = Planted.of(number, seed)
    machine = Machine(planted, number, drawn=True, fail=fail)
    units = dict.fromkeys(planted.names, 1.0)
    predict = None if off is None else lambda: predictions(planted, number, off)
    return planted, race(planted.names, Space(planted.settings), units, 60 * minutes, machine.visit, predict)


@pytest.fixture(scope="module")
def races():
    return [raced(number) for number in range(60)]


def test_the_best_is_found_and_few_winners_are_none(races):
    """Of 60 planted servers; the benchmark has the same of more, with searches."""
    near, false, held, pairs = counted(races)
    assert near >= 0.85 * len(races)
    assert false <= 2
    assert held >= 0.9 * pairs > 0


def counted(races):
    """How many chose a server within 5 % of the best, how many named a false winner, and how many of so many intervals hold."""
    near, false, held, pairs = 0, 0, 0, 0
    for planted, found in races:
        truth = dict(zip(planted.names, planted.rates / planted.rates[0], strict=True))
        shown = found.confirmed is not None and found.confirmed.low > 1
        near += truth[found.leader if shown else planted.names[0]] >= 0.95 * max(truth.values())
        false += shown and truth[found.leader] <= 1
        if found.confirmed:
            pairs += 1
            held += found.confirmed.low <= truth[found.leader] <= found.confirmed.high
    return near, false, held, pairs


def test_starts_that_fail_make_no_false_winner():
    """Every fifth start dies, shows nothing, or ends on invalid runs with a wide error."""
    races = [raced(number, fail=0.2) for number in range(40)]
    _, false, held, pairs = counted(races)
    assert pairs >= 0.25 * len(races)
    assert false <= 1
    assert held >= 0.9 * pairs > 0


def test_what_a_model_predicts_orders_first_looks_and_decides_nothing_else(races):
    """A model that is off by 10 % saves starts; one that knows nothing costs some, and makes no false winner."""
    good, bad = ([raced(number, off=off) for number in range(30)] for off in (0.1, 0.6))
    assert counted(good)[0] >= 0.75 * len(good)
    starts = [sum(len(found.visits) for _, found in each) for each in (good, races[:30])]
    assert starts[0] < 0.9 * starts[1]
    near, false, held, pairs = counted(bad)
    assert near >= 0.7 * len(bad)
    assert false <= 1
    assert held >= 0.85 * pairs > 0
    planted, found = good[0]
    expected = {name: rate for name, rate in found.predicted.rates.items() if name != planted.names[0]}
    assert found.visits[1].deployment == max(expected, key=expected.get)
    of_visits = Standing(Space(planted.settings), seen_in(planted, found))
    assert found.standing.means == pytest.approx(of_visits.means)


def seen_in(planted, found):
    began = found.visits[0].began
    return [
        Seen(planted.names.index(visit.deployment), visit.middle, visit.error, (visit.began + visit.seconds / 2 - began) / 60)
        for visit in found.visits
    ]


def test_the_gain_is_by_starts_of_the_confirmation_alone(races):
    planted, found = next((planted, found) for planted, found in races if found.confirmed)
    by_turns = [visit for visit in found.visits if visit.phase == "confirmation"]
    differences = [
        (one.middle - other.middle) * (1 if one.deployment == found.leader else -1)
        for one, other in zip(by_turns[::2], by_turns[1::2], strict=True)
    ]
    assert found.confirmed.gain == pytest.approx(math.exp(fmean(differences)))
    assert [visit.deployment for visit in by_turns[:4]] == [planted.names[0], found.leader, found.leader, planted.names[0]]


def test_minutes_bound_a_race_and_what_they_did_not_reach_is_named():
    _, short = raced(0, minutes=30)
    _, long = raced(0, minutes=200)
    assert short.untried
    assert len(long.untried) < len(short.untried)
    assert short.seconds < 60 * 60


def test_the_same_visits_lead_to_the_same_race():
    planted, found = raced(1)
    kept = iter(found.visits)
    asked = []

    def visit(ask):
        asked.append(ask)
        return next(kept)

    again = race(planted.names, Space(planted.settings), dict.fromkeys(planted.names, 1.0), 60 * 90, visit)
    assert again.visits == found.visits
    assert (again.leader, again.confirmed, again.dropped, again.untried) == (
        found.leader, found.confirmed, found.dropped, found.untried,
    )  # fmt: skip
    assert asked[0].rival is None
    assert all(ask.rival for ask in asked[1:] if ask.phase == "first look")


def test_a_server_that_dies_and_one_whose_every_rate_is_too_high_are_out():
    names = ["default", "dies", "slow", "fast"]
    asked = []

    def visit(ask):
        asked.append(ask.candidate)
        known = {"default": (1.0, "found"), "fast": (1.5, "found")}.get(ask.candidate)
        why = known[1] if known else {"dies": "died", "slow": "alone"}[ask.candidate]
        middle = known[0] if known else None
        return Visit(deployment=ask.candidate, phase=ask.phase, round=ask.round, middle=middle, error=known and 0.05, low=1.0,
                     high=2.0, why=why, runs=4, load_s=60.0, began=0.0, seconds=90.0)  # fmt: skip

    settings = [{"n": number} for number in range(4)]
    found = race(names, Space(settings), dict.fromkeys(names, 1.0), 3600.0, visit)
    assert (found.leader, asked.count("dies"), asked.count("slow")) == ("fast", 1, 1)
    assert found.confirmed.low > 1.3


def of_rates(rates, why="alone"):
    """Visits to servers with these rates; None: the search ended without one, and says why."""

    def visit(ask):
        rate = rates[ask.candidate]
        middle, error = (None, None) if rate is None else (math.log(rate), 0.05)
        return Visit(deployment=ask.candidate, phase=ask.phase, round=ask.round, middle=middle, error=error, low=0.0, high=None,
                     why=why if rate is None else "found", runs=4, load_s=60.0, began=0.0, seconds=90.0)  # fmt: skip

    return visit


def test_a_default_that_meets_the_slos_at_no_rate_is_beaten_by_whoever_does():
    names = ["a", "b", "c"]
    space, units = Space([{"n": number} for number in range(3)]), dict.fromkeys(names, 1.0)
    found = race(names, space, units, 3600.0, of_rates({"a": None, "b": 2.0, "c": 3.0}))
    assert found.leader == "c"
    assert (found.confirmed.gain, found.confirmed.low) == (None, None)
    assert found.confirmed.rate == pytest.approx(3.0)
    confirming = [visit.deployment for visit in found.visits if visit.phase == "confirmation"]
    assert confirming == ["c"] * found.confirmed.pairs
    assert len(confirming) >= 2
    nobody = race(names, space, units, 3600.0, of_rates(dict.fromkeys(names)))
    assert (nobody.leader, nobody.untried, [visit.deployment for visit in nobody.visits]) == (None, [], names)


def test_a_default_that_could_not_be_measured_ends_it():
    found = race(["a", "b"], Space([{"n": 1}, {"n": 2}]), {"a": 1.0, "b": 1.0}, 600.0, of_rates({"a": None}, "invalid"))
    assert (found.leader, found.untried, len(found.visits)) == (None, ["b"], 1)


def test_minutes_kept_for_a_confirmation_go_to_the_race_where_none_is_worth_making():
    """Eight servers that are alike, in minutes for six visits beside the confirmation's four."""
    names = [str(number) for number in range(8)]
    space, units = Space([{"n": number} for number in range(8)]), dict.fromkeys(names, 1.0)
    found = race(names, space, units, 10 * 90.0, of_rates(dict.fromkeys(names, 2.0)))
    assert (found.confirmed, found.untried) == (None, [])
    assert found.seconds > 8 * 90.0


def test_gpus_divide_the_rate_where_tokens_are_to_be_cheap():
    """Twice the GPUs with 1.5 times the rate is the better server, and the dearer token."""

    def visit(ask):
        middle = math.log(15.0 if ask.candidate == "two" else 10.0)
        return Visit(deployment=ask.candidate, phase=ask.phase, round=ask.round, middle=middle, error=0.03, low=1.0, high=2.0,
                     why="found", runs=4, load_s=60.0, began=0.0, seconds=90.0)  # fmt: skip

    names, space = ["one", "two"], Space([{"tensor_parallel": 1}, {"tensor_parallel": 2}])
    plain = race(names, space, {"one": 1.0, "two": 1.0}, 3600.0, visit)
    by_cost = race(names, space, {"one": 1.0, "two": 2.0}, 3600.0, visit)
    assert (plain.leader, by_cost.leader) == ("two", "one")


# Visits


@pytest.mark.parametrize(("limit", "ends"), [(4.0, True), (30.0, False)])
def test_a_search_ends_early_once_its_candidate_has_lost(limit, ends):
    planted = Planted.of(0, 1)
    planted.rates[:] = limit
    machine = Machine(planted, 5, drawn=False)
    shown = machine.visit(Ask(planted.names[0], "first look", 2, 10.0, Rival(10.0, 0.08)))
    assert (shown.why == "lost") == ends
    whole = Machine(planted, 5, drawn=False).visit(Ask(planted.names[0], "first look", 2, 10.0, None))
    if ends:
        assert shown.runs < whole.runs
        assert math.exp(shown.middle) < 10.0
    else:
        assert shown.middle == pytest.approx(math.log(limit), abs=0.2)


# The configuration


def test_a_sweep_competes_and_its_first_combination_is_the_default(content):
    config = load_config(competing(content), source="test")
    assert candidates(config) == ["a-seqs64", "a-seqs32", "a-seqs128"]
    plan = Plan.of(config)
    assert [search.key for search in plan.searches] == ["a-seqs64/w_poisson_p16_o4_auto"]
    assert list(plan.tuned.deployments) == candidates(config)
    assert set(plan.started) == set(candidates(config))
    assert plan.longest_request("a-seqs128") == 20
    other = load_config(competing(content, default="a-seqs32"), source="test")
    assert candidates(other)[0] == "a-seqs32"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"deployments": ["a", "nobody"]}, "tune.deployments is 'nobody', which deployments does not define"),
        ({"default": "a"}, "tune.default is 'a', which deployments does not define"),
        ({"workload": "none"}, "tune.workload is 'none', which workloads does not define"),
        ({"deployments": "a-seqs64"}, "a tuning needs two servers or more"),
        ({"search": {"targets": ["throughput"]}}, "a tuning looks for the highest load within the SLOs"),
        ({"minutes": 0}, "tune.minutes is 0"),
    ],
)
def test_what_no_tuning_can_be_is_refused(content, change, said):
    with pytest.raises(BenchError) as error:
        load_config(competing(content, **change), source="test")
    assert said in str(error.value)
    assert "study.ladders" not in str(error.value)


def test_of_a_closed_loop_the_concurrency_competes(content):
    closed = competing(content)
    closed["workloads"]["w"]["arrival"] = "closed"
    plan = Plan.of(load_config(closed, source="test"))
    assert {search.workload.axis for search in plan.tuned.searches} == {"concurrency"}
    assert [search.key for search in plan.searches] == ["a-seqs64/w_closed_p16_o4_auto"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"arrival": "closed", "turns": {"count": 3, "new_tokens": 8}},
            "tune.workload is 'w', whose highest load no search finds: conversations that begin",
        ),
        ({"arrival": "burst", "num_requests": None}, "tune.concurrency is auto, but workloads.w sends bursts"),
    ],
)
def test_a_load_that_cannot_be_searched_for_competes_in_nothing(content, changed, said):
    wrong = competing(content)
    wrong["workloads"]["w"] |= changed
    with pytest.raises(BenchError) as error:
        load_config(wrong, source="test")
    assert said in str(error.value)


def test_without_slos_nothing_competes(content):
    loose = competing(content)
    loose["decision"] = {}
    with pytest.raises(BenchError, match="tune: auto searches for the highest load within SLOs, and there are none"):
        load_config(loose, source="test")


# The words


def test_what_a_tuning_says():
    died = replace(record().visits[2], why="died", middle=None, error=None, said="c: out of memory\nlog")
    none = replace(record().visits[0], why="alone", middle=None, error=None)
    lines = []
    for title, found in (
        ("a winner", record()),
        ("no gain shown", record(winner="d", confirmed=Confirmed(pairs=4, gain=1.04, low=0.97, high=1.12), contributions=())),
        ("not worth a confirmation", record(winner="d", confirmed=None, contributions=(), visits=record().visits[:4])),
        (
            "the default leads",
            record(winner="d", leader="d", confirmed=None, contributions=(), untried=(), dropped={}, settled=True),
        ),
        (
            "the default may lead",
            record(winner="d", leader="d", confirmed=None, contributions=(), untried=(), unpromising=("e",)),
        ),
        (
            "a start failed",
            record(
                winner="d",
                confirmed=None,
                contributions=(),
                visits=(*record().visits[:7], replace(record().visits[5], middle=None, why="short")),
            ),
        ),
        ("one died, by cost", record(objective="cost", visits=(*record().visits[:2], died), dropped={})),
        (
            "the default meets them at no rate",
            record(
                visits=(none, *record().visits[1:4], *record().visits[5:7]),
                dropped={},
                confirmed=Confirmed(pairs=2, gain=None, low=None, high=None, rate=13.0, rate_low=12.1, rate_high=14.0),
            ),
        ),
        (
            "nobody meets them",
            record(
                winner=None,
                leader=None,
                confirmed=None,
                contributions=(),
                untried=(),
                dropped={},
                visits=(none, replace(none, deployment="b")),
            ),
        ),
        (
            "too few minutes to confirm",
            record(winner="d", confirmed=None, contributions=(), visits=record().visits[:4], lacking_s=300.0),
        ),
        ("predicted", record(predicted=Predicted(rates={"d": 9.5, "b": 14.0}, seconds=9.0), untried=(), unpromising=("e",))),
        ("nothing is known", record(winner=None, leader=None, confirmed=None, contributions=(), visits=(none,), dropped={})),
    ):
        lines += [f"# {title}", *tuning_lines(found)]
    same("tuning", lines)


def test_the_report_answers_it_first(summary):
    rows = [{**summary, "run": f"r{i}", "digest": f"r{i}", "level": i + 1.0} for i in range(3)]
    launches = {name: records.launch(deployment=name) for name in {row["deployment"] for row in rows}}
    facts = {name: records.facts(deployment=name, kv_tokens=640, kv_blocks=20) for name in launches}
    runs = summary_frame(rows, launches, facts, Thresholds(), None)
    empty = pl.DataFrame(schema={"deployment": pl.String, "run": pl.String})
    results = Results(runs, empty, tuning=record())
    first, *_ = answers(results, curves(results))
    assert (first.name, first.lines[0]) == ("tuning", tuning_lines(record())[0])


# A workflow


@pytest.mark.workflow
def test_two_servers_race_in_a_workflow_and_a_second_call_measures_nothing(content, tmp_path):
    """Of two servers with four places each, one answers eight times as fast."""
    page = {"/v1/models": '{"data": [{"id": "m"}]}'}
    with (
        fake_server(first_s=0.04, gap_s=0.02, pages=page) as slow,
        fake_server(first_s=0.005, gap_s=0.0025, pages=page) as fast,
    ):
        for server in (slow, fast):
            server.refuse = lambda _, server=server: (503, {}) if server.in_flight > 4 else None
        competing(content, minutes=1.5, search={"runs": 2, "seconds": 60})
        content["engines"] = {
            name: {"source": "external", "base_url": server.base_url, "metrics": "none"}
            for name, server in (("slow", slow), ("fast", fast))
        }
        content["deployments"] = {"s": {"model": "m", "served_name": "m", "sweep": {"engine": ["slow", "fast"]}}}
        content["tune"]["deployments"] = "s"
        content["thresholds"] = dict.fromkeys(("loop_lag_p99_s", "loop_lag_max_s", "client_cpu_share", "drift"), 30) | {
            "other_share": 1
        }
        content["measurement"] = {"warmup_requests": 3, "reference_requests": 0}
        (tmp_path / "study.yaml").write_text(yaml.safe_dump(content))
        command = [sys.executable, "-m", "bench.cli", "tune", "--configfile", "study.yaml", "--json"]
        first = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert first.returncode in (0, 3), first.stderr[-4000:]
        found = read_tuning(tmp_path / Paths.TUNING)
        assert json.loads(first.stdout)["leader"] == found.leader
        assert (found.default, found.candidates, found.untried) == ("s-slow", ("s-slow", "s-fast"), ())
        assert found.leader == "s-fast"
        assert {visit.deployment for visit in found.visits} == {"s-slow", "s-fast"}
        sent = len(slow.requests) + len(fast.requests)
        again = subprocess.run([*command, "--minutes", "1.5"], cwd=tmp_path, capture_output=True, text=True)
        assert (again.returncode, again.stdout) == (first.returncode, first.stdout)
        assert len(slow.requests) + len(fast.requests) == sent

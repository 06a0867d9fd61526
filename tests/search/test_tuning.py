"""A tuning: its race on planted servers, its visits to real ones, and what it says."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
import yaml
from benchmarks.tuning import Machine, Planted

from bench.beside.archive.pack import pack
from bench.beside.archive.unpack import unpack
from bench.errors import BenchError
from bench.runs.files import read, write_record
from bench.runs.paths import Paths
from bench.runs.searches import Confirmed, TuningRecord, Visit
from bench.runs.store import Store
from bench.search.race import Ask, Rival, race
from bench.search.tuning_words import state_line, tuning_lines
from bench.study.plan import Plan
from bench.study.read import load_config
from tests.support import records
from tests.support.fake_server import fake_server
from tests.support.snapshots import same
from tests.support.stores import fill_store
from tests.support.tuning import competing, record

# The race


def raced(number, minutes=90.0, *, fail=0.0):
    """Args: fail: share of the starts that fail."""
    planted = Planted.of(number, 3)
    machine = Machine(planted, number, drawn=True, fail=fail)
    units, settings = dict.fromkeys(planted.names, 1.0), dict(zip(planted.names, planted.settings, strict=True))
    return planted, race(settings, units, 60 * minutes, machine.visit)


@pytest.mark.long(part="truth")
def test_the_best_is_found_and_few_winners_are_none_whatever_fails():
    """Of 60 planted servers; the benchmark has the same of more, with searches. Every fifth start dies, shows nothing, or ends on invalid
    runs with a wide error.
    """
    races = [raced(number) for number in range(60)]
    for name, made, near_share, most_false, held_share in (
        ("all starts", races, 0.85, 2, 0.9),
        ("failing starts", [raced(number, fail=0.2) for number in range(40)], 0.0, 1, 0.9),
    ):
        near, false, held, pairs = counted(made)
        assert near >= near_share * len(made), name
        assert false <= most_false, name
        assert pairs >= 0.25 * len(made), name
        assert held >= held_share * pairs, name


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


def test_the_gain_is_by_starts_of_the_confirmation_alone():
    planted, found = next(each for each in map(raced, range(20)) if each[1].confirmed)
    by_turns = [visit for visit in found.visits if visit.phase == "confirmation"]
    differences = [
        (one.middle - other.middle) * (1 if one.deployment == found.leader else -1)
        for one, other in zip(by_turns[::2], by_turns[1::2], strict=True)
    ]
    assert found.confirmed.gain == pytest.approx(math.exp(fmean(differences)))
    assert found.confirmed.low <= planted.rates[planted.names.index(found.leader)] / planted.rates[0] <= found.confirmed.high
    assert [visit.deployment for visit in by_turns[:4]] == [planted.names[0], found.leader, found.leader, planted.names[0]]


def test_the_same_visits_lead_to_the_same_race_and_minutes_bound_it():
    planted, found = raced(1)
    kept = iter(found.visits)
    asked = []

    def visit(ask):
        asked.append(ask)
        return next(kept)

    settings = dict(zip(planted.names, planted.settings, strict=True))
    again = race(settings, dict.fromkeys(planted.names, 1.0), 60 * 90, visit)
    assert again.visits == found.visits
    assert (again.leader, again.confirmed, again.dropped, again.untried) == (
        found.leader, found.confirmed, found.dropped, found.untried,
    )  # fmt: skip
    assert asked[0].rival is None
    assert all(ask.rival for ask in asked[1:] if ask.phase == "first look")
    # Minutes bound a race, and what they did not reach is named.
    _, short = raced(0, minutes=30)
    _, long = raced(0, minutes=200)
    assert short.untried
    assert len(long.untried) < len(short.untried)
    assert short.seconds < 60 * 60


def raced_by(rates, seconds=3600.0, *, units=None, error=0.05):
    """A race of servers with these rates, of which the first is the default; a word in place of a rate: why its search ended without."""

    def visit(ask):
        rate = rates[ask.candidate]
        known = {"why": rate} if isinstance(rate, str) else {"why": "found", "middle": math.log(rate), "error": error}
        return Visit(**{"middle": None, "error": None, **known}, deployment=ask.candidate, phase=ask.phase, round=ask.round, low=0.0,
                     high=None, runs=4, load_s=60.0, began=0.0, seconds=90.0)  # fmt: skip

    settings = {name: {"n": number} for number, name in enumerate(rates)}
    return race(settings, units or dict.fromkeys(rates, 1.0), seconds, visit)


def test_a_server_that_dies_and_one_whose_every_rate_is_too_high_are_out():
    found = raced_by({"default": math.exp(1.0), "dies": "died", "slow": "alone", "fast": math.exp(1.5)})
    started = [visit.deployment for visit in found.visits]
    assert (found.leader, started.count("dies"), started.count("slow")) == ("fast", 1, 1)
    assert found.confirmed.low > 1.3


def test_a_default_that_meets_the_slos_at_no_rate_is_beaten_by_whoever_does():
    found = raced_by({"a": "alone", "b": 2.0, "c": 3.0})
    assert (found.leader, found.confirmed.gain, found.confirmed.low) == ("c", None, None)
    assert found.confirmed.rate == pytest.approx(3.0)
    confirming = [visit.deployment for visit in found.visits if visit.phase == "confirmation"]
    assert confirming == ["c"] * found.confirmed.pairs
    assert len(confirming) >= 2
    nobody = raced_by(dict.fromkeys("abc", "alone"))
    assert (nobody.leader, nobody.untried, [visit.deployment for visit in nobody.visits]) == (None, [], [*"abc"])
    unmeasured = raced_by({"a": "invalid", "b": 2.0}, 600.0)
    assert (unmeasured.leader, unmeasured.untried, len(unmeasured.visits)) == (None, ["b"], 1)


def test_minutes_kept_for_a_confirmation_go_to_the_race_where_none_is_worth_making():
    """Eight servers that are alike, in minutes for six visits beside the confirmation's four."""
    found = raced_by(dict.fromkeys(map(str, range(8)), 2.0), 10 * 90.0)
    assert (found.confirmed, found.untried) == (None, [])
    assert found.seconds > 8 * 90.0


def test_gpus_divide_the_rate_where_tokens_are_to_be_cheap():
    """Twice the GPUs with 1.5 times the rate is the better server, and the dearer token."""
    rates = {"one": 10.0, "two": 15.0}
    assert [raced_by(rates, units=units, error=0.03).leader for units in (None, {"one": 1.0, "two": 2.0})] == ["two", "one"]


# Visits


def test_a_search_ends_early_once_its_candidate_has_lost():
    def visited(limit, rival):
        planted = Planted.of(0, 1)
        planted.rates[:] = limit
        return Machine(planted, 5, drawn=False).visit(Ask(planted.names[0], "first look", 2, 10.0, rival))

    lost, whole, better = visited(4.0, Rival(10.0, 0.08)), visited(4.0, None), visited(30.0, Rival(10.0, 0.08))
    assert (lost.why, lost.runs < whole.runs) == ("lost", True)
    assert math.exp(lost.middle) < 10.0
    assert better.why != "lost"
    assert better.middle == pytest.approx(math.log(30.0), abs=0.2)


# The configuration


def test_a_sweep_competes_and_its_first_combination_is_the_default(content):
    config = load_config(competing(content), source="test")
    assert config.tune.deployments == ["a-seqs64", "a-seqs32", "a-seqs128"]
    plan = Plan.of(config)
    assert [search.key for search in plan.searches] == ["a-seqs64/w_poisson_p16_o4_auto"]
    assert list(plan.tuned.deployments) == config.tune.deployments
    assert set(plan.started) == set(config.tune.deployments)
    assert plan.longest_request("a-seqs128") == 20


# The words


def test_what_a_tuning_says():
    visits = record().visits
    none = replace(visits[0], why="alone", middle=None, error=None)
    died = replace(visits[2], why="died", middle=None, error=None, said="c: out of memory\nlog")
    plain = {"winner": "d", "confirmed": None}
    nobody = {**plain, "winner": None, "leader": None, "dropped": {}}
    slight = Confirmed(pairs=4, gain=1.04, low=0.97, high=1.12, rate=13.0, rate_low=12.1, rate_high=14.0)
    alone = Confirmed(pairs=2, gain=None, low=None, high=None, rate=13.0, rate_low=12.1, rate_high=14.0)
    cases = {
        "a winner": record(),
        "no gain shown": record(**plain | {"confirmed": slight}),
        "the default leads": record(**plain, leader="d", untried=(), dropped={}, settled=True),
        "the default may lead": record(**plain, leader="d"),
        "a start failed": record(**plain, visits=(*visits[:7], replace(visits[5], middle=None, why="short"))),
        "one died, by cost": record(objective="cost", visits=(*visits[:2], died), dropped={}),
        "the default meets them at no rate": record(visits=(none, *visits[1:4], *visits[5:7]), dropped={}, confirmed=alone),
        "nobody meets them": record(**nobody, untried=(), visits=(none, replace(none, deployment="b"))),
        "nothing is known": record(**nobody, visits=(none,)),
    }
    lines = [line for title, found in cases.items() for line in (f"# {title}", *tuning_lines(found))]
    states = [state_line(done, ended, 4, 30.0) for done, ended in (((), None), (visits[:3], None), (visits, record()))]
    same("tuning", [*lines, *states])


# A workflow


@pytest.mark.long(part="workflows")
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
        competing(content, minutes=1.5, search={"runs": 2, "seconds": 60, "start": 10})
        content["engines"] = {
            name: {"source": "external", "base_url": server.base_url, "metrics": "none"}
            for name, server in (("slow", slow), ("fast", fast))
        }
        content["deployments"] = {"s": {"model": "m", "served_name": "m", "sweep": {"engine": ["slow", "fast"]}}}
        content["tune"]["deployments"] = "s"
        content["thresholds"] = dict.fromkeys(("client_delay_p99_s", "client_cpu_share", "drift"), 30) | {"other_share": 1}
        content["measurement"] = {"warmup_requests": 3, "reference_requests": 0}
        (tmp_path / "study.yaml").write_text(yaml.safe_dump(content))
        command = [sys.executable, "-m", "bench.cli", "tune", "--configfile", "study.yaml", "--json"]
        first = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert first.returncode in (0, 3), first.stderr[-4000:]
        found = read(TuningRecord, tmp_path / Paths.TUNING)
        assert json.loads(first.stdout)["leader"] == found.leader
        assert (found.default, found.candidates, found.untried) == ("s-slow", ("s-slow", "s-fast"), ())
        assert found.leader == "s-fast"
        assert {visit.deployment for visit in found.visits} == {"s-slow", "s-fast"}
        sent = len(slow.requests) + len(fast.requests)
        again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert (again.returncode, again.stdout) == (first.returncode, first.stdout)
        assert len(slow.requests) + len(fast.requests) == sent


# A tuning in a pack


@pytest.fixture
def packed(content, tmp_path, monkeypatch):
    """A pack of a study whose three servers competed."""
    competing(content)
    content["study"]["ladders"] = [{"deployment": "a", "workload": "w", "request_rate": [1]}]
    content["workloads"]["w"]["num_requests"] = 4
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    monkeypatch.chdir(there)
    plan = Plan.of(load_config(content, source="test"))
    fill_store(plan, there, series=3)
    for spec in plan.competition().deployments.values():
        launch = records.launch(deployment=spec.name, digest=spec.digest)
        Path(Paths.LAUNCH.format(deployment=spec.name)).parent.mkdir(parents=True, exist_ok=True)
        write_record(launch, Path(Paths.LAUNCH.format(deployment=spec.name)))
    Path(Paths.TUNING).parent.mkdir(parents=True, exist_ok=True)
    write_record(replace(record(), digest=plan.tuning_digest), Path(Paths.TUNING))
    pack(plan, content, tmp_path / "tuned.tar.gz", Store())
    monkeypatch.chdir(here)
    return tmp_path / "tuned.tar.gz", plan


def test_a_pack_takes_what_a_tuning_found_along_and_replaces_no_other(packed):
    file, plan = packed
    assert len(unpack(file, Store())[0].runs) == 3
    assert read(TuningRecord, Path(Paths.TUNING)) == replace(record(), digest=plan.tuning_digest)
    assert len(unpack(file, Store())[0].runs) == 3
    write_record(replace(record(), digest="another"), Path(Paths.TUNING))
    with pytest.raises(BenchError, match=r"tuning\.json is already here, from another tuning"):
        unpack(file, Store())

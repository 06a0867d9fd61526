"""Rounds in a drawn order, the reference load before each run, and sessions that alternate."""

import json
from collections import Counter
from itertools import count, groupby
from statistics import mean

import pytest

from bench.engine import resolve_launch
from bench.errors import BenchError
from bench.load.schedule import schedule
from bench.measure import rounds
from bench.measure.rounds import disturbed
from bench.measure.session import measure
from bench.parse import parse_run
from bench.records.files import write_record
from bench.search.laddered import LadderSearches
from bench.store import Store
from bench.store.pack import pack
from bench.store.unpack import unpack
from bench.study import Paths, Plan, Workload, load_config
from bench.study.rounds import alternating, session_of
from tests.support import records as made
from tests.support.fake_server import fake_server
from tests.support.project import LENIENT, Project
from tests.support.study import CONTENT, ROOT

pytestmark = pytest.mark.workflow

EXPOSITION = (ROOT / "tests/data/vllm-0.32.0.prom").read_text()
SLOWER_ONCE_MORE = "a: round 1 was measured while the machine was not as fast as in the others: its 2 runs once more"


def plan_of(content, **study):
    content["study"] |= study
    return Plan.of(load_config(content, source="test"))


@pytest.fixture
def several(content):
    """Two ladders of a deployment, of three and of two repeats, and another deployment with the first of them."""
    content["deployments"]["b"] = content["deployments"]["a"]
    content["workloads"]["long"] = {**content["workloads"]["short"], "output_tokens": 64}
    content["study"]["ladders"] = [
        {"deployment": "a", "workload": "short", "concurrency": [1, 2, 4, 8, 16], "repeats": 3},
        {"deployment": "a", "workload": "long", "concurrency": [1, 2, 4], "repeats": 2},
        {"deployment": "b", "workload": "short", "concurrency": [1, 2, 4, 8, 16], "repeats": 3},
    ]
    return content


def loads(runs):
    return [(run.workload_name, run.level) for run in runs]


def test_a_round_has_every_level_of_every_ladder_once(several):
    plan = plan_of(several)
    runs = plan.runs_of("a")
    assert [plan.place_of(run).position for run in runs] == list(range(1, 22))
    rounds = [(number, list(group)) for number, group in groupby(runs, key=lambda run: plan.place_of(run).round)]
    assert [(number, len(group)) for number, group in rounds] == [(1, 8), (2, 8), (3, 5)]  # the shorter ladder: the first two
    for number, group in rounds:
        assert max(Counter(loads(group)).values()) == 1
        assert {run.repeat for run in group} == {number}
    assert {run.key for run in runs} == {run.key for run in plan.runs if run.deployment.name == "a"}


def test_the_order_of_rounds_is_drawn_from_the_seed(several):
    first, again = (plan_of(several).runs_of("a") for _ in range(2))
    assert loads(first) == loads(again)
    orders = [loads(run for run in first if run.repeat == number) for number in (1, 2)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) != orders[0]
    several["measurement"] = {"seed": 1}
    assert loads(plan_of(several).runs_of("a")) != loads(first)


def test_no_level_has_a_place_of_its_own(several):
    """Over many seeds each level comes first as often as any other, within what chance does."""
    firsts = Counter()
    for seed in range(400):
        several["measurement"] = {"seed": seed}
        firsts[plan_of(several).runs_of("b")[0].level] += 1
    assert set(firsts) == {1, 2, 4, 8, 16}
    assert sum((count - 80) ** 2 / 80 for count in firsts.values()) < 18.5  # chi-squared, 4 degrees of freedom: 99.9 %


def test_deployments_that_share_loads_measure_them_in_the_same_order(several):
    plan = plan_of(several)
    short = [run for run in plan.runs_of("a") if run.workload_name == "short"]
    assert loads(short) == loads(plan.runs_of("b"))


def test_the_order_of_the_whole_is_that_of_its_parts(several):
    whole = plan_of(several)
    several["select"] = ["a/*_c0002_*", "a/*_c0016_*"]
    part = plan_of(several)
    wanted = {run.key for run in part.runs}
    assert [run.key for run in part.runs_of("a")] == [run.key for run in whole.runs_of("a") if run.key in wanted]
    assert [part.place_of(run) for run in part.runs] == [whole.place_of(run) for run in part.runs]
    del several["select"]
    several["study"]["ladders"][0]["concurrency"] = [1, 2, 3, 4, 8, 16]
    more = [run.key for run in plan_of(several).runs_of("a") if run.level != 3]
    assert more == [run.key for run in whole.runs_of("a")]


def test_neither_rounds_nor_sessions_are_part_of_a_run(several):
    several["study"]["ladders"][1]["repeats"] = 3
    one, three = plan_of(several), plan_of(several, sessions=3)
    assert [(run.key, run.digest, run.schedule_seed) for run in one.runs] == [
        (run.key, run.digest, run.schedule_seed) for run in three.runs
    ]


def test_rounds_are_dealt_to_sessions_with_the_same_levels(several):
    several["study"]["ladders"][1]["repeats"] = 3
    for ladder in several["study"]["ladders"]:
        ladder["repeats"] = 4
    plan = plan_of(several, sessions=2)
    halves = [plan.runs_of("a", session) for session in (1, 2)]
    assert [sorted({run.repeat for run in half}) for half in halves] == [[1, 3], [2, 4]]
    assert Counter(loads(halves[0])) == Counter(loads(halves[1]))
    assert [plan.place_of(run).position for half in halves for run in half] == list(range(1, 33))
    assert [session_of(number, 3) for number in range(1, 8)] == [1, 2, 3, 1, 2, 3, 1]
    assert {session_of(number, 1) for number in range(1, 8)} == {1}


def test_sessions_of_all_deployments_alternate(several):
    assert alternating({"a": (1, 2, 3), "b": (1, 2, 3), "c": (1, 3)}) == [
        *(("a", 1), ("b", 1), ("c", 1)), *(("b", 2), ("a", 2)), *(("a", 3), ("b", 3), ("c", 3)),
    ]  # fmt: skip
    several["study"]["ladders"][1]["repeats"] = 3
    assert plan_of(several, sessions=2).sessions == [("a", 1), ("b", 1), ("b", 2), ("a", 2)]
    several["select"] = ["b/*_r2_*"]  # the facts of a deployment are those of its first session, whatever is selected
    assert plan_of(several).sessions == [("b", 1), ("b", 2)]


def test_fewer_repeats_than_sessions_are_refused(several):
    with pytest.raises(
        BenchError, match=r"study\.ladders\[1\]\.repeats is 2, below study\.sessions, 3: .* Set repeats to 3 or more"
    ):
        plan_of(several, sessions=3)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Results go below the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Killed(Exception):
    """A session that ends in the midst of it."""


def session(plan, folder, number=1, *, say=lambda _: None, deployment="a", searching=False):
    launch, facts = folder / Paths.LAUNCH.format(deployment=deployment), folder / Paths.facts(deployment, number)
    launch.parent.mkdir(parents=True, exist_ok=True)
    write_record(resolve_launch(plan.deployments[deployment], made.engine(source="external", command=None), None), launch)
    runs, store = plan.runs_of(deployment, number), Store(folder / Paths.RUNS)
    search = LadderSearches(plan, plan.deployments[deployment], store, say) if searching else None
    measure(plan, deployment, runs, session=number, launch=launch, facts=facts, store=store, say=say, search=search)


def session_that_changes(server, changes, *arguments, **options):
    """What a session says. `changes`: attributes that the server gets at a line with this text, as in {": run 2 of": {"gap_s": 0.01}}."""
    said = []

    def say(text):
        said.append(text)
        for at, attributes in changes.items():
            if at in text:
                vars(server).update(attributes)

    session(*arguments, say=say, **options)
    return said


def against(server, content, drift=10.0, **study):
    content["engines"]["e"] = {"source": "external", "base_url": server.base_url}
    content["workloads"]["short"] = {"arrival": "burst", "prompt_tokens": 300, "output_tokens": 8}
    content["models"]["m"]["architecture"] = {**content["models"]["m"]["architecture"], "context": 1024}
    content["study"]["ladders"][0] |= {"repeats": 2}
    content["measurement"] = {"warmup_requests": 3}
    content["thresholds"] = {"drift": drift}  # beyond any machine's, where a test is not about it
    return plan_of(content, **study)


def records(plan):
    return sorted((json.loads(run.record.read_text()) for run in plan.runs), key=lambda record: record["clock_start_s"])


def test_a_reference_load_serves_the_runs_of_the_next_seconds(here, content, monkeypatch):
    monkeypatch.setattr(rounds, "monotonic", count(0, 2).__next__)  # two seconds from one look at the clock to the next
    with fake_server(metrics=EXPOSITION) as server:
        against(server, content)
        content["study"]["ladders"][0] |= {"concurrency": [1, 2, 4, 8, 16], "repeats": 2}
        plan = plan_of(content)
        session(plan, here)
    found = records(plan)
    served = [(number, len(list(runs))) for number, runs in groupby((x["round"], x["reference"]["started"]) for x in found)]
    assert [(number, runs) for (number, _), runs in served] == [(1, 3), (1, 2), (2, 3), (2, 2)]


def test_a_session_measures_in_rounds_with_a_reference_before_each_run(here, content, monkeypatch):
    monkeypatch.setattr(rounds, "_SERVES_S", 0.0)
    with fake_server(metrics=EXPOSITION) as server:
        plan = against(server, content)
        session(plan, here)
        sent = server.bodies
    result = records(plan)
    assert [record["definition"]["run"] for record in result] == [run.name for run in plan.runs_of("a")]
    assert [(x["round"], x["position"], x["session"]) for x in result] == [
        (1, 1, 1), (1, 2, 1), (1, 3, 1), (2, 4, 1), (2, 5, 1), (2, 6, 1)
    ]  # fmt: skip
    references = [record["reference"] for record in result]
    first, second = references[0], references[-1]
    shape = ("requests", "in_flight", "prompt_tokens", "output_tokens")
    assert [first[key] for key in shape] == [second[key] for key in shape] == [8, 4, 256, 32]
    assert [reference["round"] for reference in references] == [1, 1, 1, 2, 2, 2]
    assert [reference["since"] for reference in references] == [references[0]["started"]] * 3 + [references[3]["started"]] * 3
    moments = [record[key] for record in result for key in ("reference", "started")]
    moments = [moment["started"] if isinstance(moment, dict) else moment for moment in moments]
    assert moments == sorted(moments)
    assert len(set(moments)) == 12
    assert all(len(reference["seconds"]) == 2 for reference in references)
    # Eight answers, four at once, of a server whose first token takes 20 ms and each other one 5 ms. A closed loop begins with what is
    # left of four answers: at least a quarter of 32 tokens in the longest of them.
    assert min(first["seconds"]) > 0.175 + 0.175 * 0.75 - 0.02
    model = Workload.model_validate({"arrival": "closed", "num_requests": 8, "prompt_tokens": 256, "output_tokens": 32})
    tokens = sum(request.output_tokens for request in schedule(model, 4, plan.first_run("a").schedule_seed))
    assert 4 * 32 < tokens < 8 * 32
    assert first["tokens_per_s"] == pytest.approx(tokens / mean(first["seconds"]), rel=0.001)
    prompts = [tuple(body["prompt"]) for body in sent if len(body["prompt"]) == 256]
    assert len(prompts) == len(set(prompts)) == 6 * 2 * 8
    run = plan.runs_of("a")[4]
    files = {key: here / key for key in ("requests", "telemetry", "wide", "summary")}
    parsed = parse_run(run.record.parent, **files)
    assert (parsed["round"], parsed["position"], parsed["session"]) == (2, 5, 1)
    assert parsed["reference_s"] == min(references[4]["seconds"])
    assert parsed["reference_since"] == references[3]["started"]
    assert parsed["requests"] == run.level  # the reference is no part of a result


def test_a_killed_session_goes_on_in_the_same_order(here, content):
    said = []

    def say(text):
        said.append(text)
        if ": run 2 of" in text:
            raise Killed

    with fake_server(metrics=EXPOSITION) as server:
        plan = against(server, content)
        with pytest.raises(Killed):
            session(plan, here, say=say)
        session(plan, here)
    result = records(plan)
    assert [record["position"] for record in result] == [1, 2, 3, 4, 5, 6]
    since = [record["reference"]["since"] for record in result]
    assert len(set(since)) == 3  # of round 1, of its rest, and of round 2
    assert since == sorted(since)


def three_rounds(server, content):
    against(server, content, drift=0.5)
    content["study"]["ladders"][0] |= {"concurrency": [1, 2], "repeats": 3}
    return plan_of(content)


def test_a_round_in_which_the_machine_was_slower_is_measured_once_more(here, content):
    with fake_server(metrics=EXPOSITION, gap_s=0.02) as server:
        plan = three_rounds(server, content)
        said = session_that_changes(server, {": run 2 of": {"gap_s": 0.01}}, plan, here)
        again = [line for line in said if "once more" in line]
        assert again == [SLOWER_ONCE_MORE]
        assert sum(": run " in line for line in said) == 8
        result = records(plan)
        assert [(x["round"], x["position"]) for x in result[-2:]] == [(1, 1), (1, 2)]  # last now, in their places
        assert len({x["reference"]["since"] for x in result}) == 3
        seconds = [min(x["reference"]["seconds"]) for x in result]
        assert max(seconds) < 1.5 * min(seconds)
        session(plan, here, say=said.append)  # nothing is measured a third time
        assert records(plan) == result
        prompts = [tuple(body["prompt"]) for body in server.bodies if len(body["prompt"]) == 300]
    assert len(prompts) == len(set(prompts))  # the second time others, which no prefix cache knows


def listed_and_searched(server, content):
    against(server, content)
    content["thresholds"] = LENIENT | {"drift": 0.5}
    content["study"]["ladders"][0] |= {"concurrency": [1, 2], "repeats": 1}
    content["workloads"]["w"] = {"arrival": "closed", "prompt_tokens": 16, "output_tokens": 4, "num_requests": "auto"}
    found = {"slo": ["ttft_p90=5s"], "runs": 3, "start": 1, "highest": 8}
    content["study"]["ladders"].append({"deployment": "a", "workload": "w", "concurrency": "auto", "search": found})
    return plan_of(content)


def test_a_round_that_the_searches_show_to_be_slower_is_measured_once_more(here, content):
    with fake_server(metrics=EXPOSITION, gap_s=0.012) as server:
        plan = listed_and_searched(server, content)
        said = session_that_changes(server, {": run 2 of": {"gap_s": 0.006}}, plan, here, searching=True)
    (again,) = [line for line in said if "once more" in line]
    assert again == SLOWER_ONCE_MORE
    assert said.index(again) > max(i for i, line in enumerate(said) if ", after 3 runs" in line)
    assert [min(x["reference"]["seconds"]) < 0.55 for x in records(plan)] == [True, True]


def test_a_session_that_was_killed_in_a_search_judges_its_rounds_when_it_goes_on(here, content):
    with fake_server(metrics=EXPOSITION, gap_s=0.012) as server:
        plan, said = listed_and_searched(server, content), []

        def say(text):
            said.append(text)
            if ": run 2 of" in text:
                server.gap_s = 0.006
            if "searching for" in text and server.gap_s == 0.006:
                raise Killed

        with pytest.raises(Killed):
            session(plan, here, say=say, searching=True)
        killed = len(said)
        session(plan, here, say=said.append, searching=True)
    assert "a: 2 of 2 runs are measured already" in said[killed:]
    (again,) = [line for line in said if "once more" in line]
    assert again == SLOWER_ONCE_MORE
    assert [min(x["reference"]["seconds"]) < 0.55 for x in records(plan)] == [True, True]


def test_a_machine_whose_speed_is_not_known_any_more_is_not_measured_again(here, content):
    with fake_server(metrics=EXPOSITION, gap_s=0.02) as server:
        plan = three_rounds(server, content)
        changes = {": run 2 of": {"gap_s": 0.01}, ": run 6 of": {"behaviour": "http_error"}}
        said = session_that_changes(server, changes, plan, here)
    assert sum(": run " in line for line in said) == 6
    assert said[-2].endswith("not as fast as in the others, and how fast it is now is not known")
    assert all(record["reference"] for record in records(plan))


def test_what_is_usual_moves_with_the_rounds_that_are_measured_again(here, content):
    """Two slow rounds of four: both, and then no other, although at first all four lay beside their median."""
    with fake_server(metrics=EXPOSITION, gap_s=0.03) as server:
        against(server, content, drift=0.3)
        content["study"]["ladders"][0] |= {"concurrency": [1, 2], "repeats": 4}
        said = session_that_changes(server, {": run 4 of": {"gap_s": 0.01}}, plan_of(content), here)
    assert [line.split(" was")[0] for line in said if "once more" in line] == ["a: round 1", "a: round 2"]
    assert sum(": run " in line for line in said) == 12


def test_a_machine_that_stays_slower_is_not_measured_again(here, content):
    with fake_server(metrics=EXPOSITION, gap_s=0.01) as server:
        plan = three_rounds(server, content)
        said = session_that_changes(server, {": run 4 of": {"gap_s": 0.02}}, plan, here)
    assert sum(": run " in line for line in said) == 6
    assert "a: round 3 was measured while the machine was not as fast as in the others, nor is it now" in said
    assert [x["round"] for x in records(plan)] == [1, 1, 2, 2, 3, 3]


def test_a_reference_that_fails_is_none_and_ends_nothing(here, content):
    with fake_server(metrics=EXPOSITION) as server:
        against(server, content)
        content["study"]["ladders"][0] |= {"concurrency": [1, 2, 4], "repeats": 3}
        server.refuse = lambda n: (404, {}) if n else None  # the first request finds out what is accepted
        content["measurement"] = {"warmup_requests": 0}
        plan = plan_of(content)
        said = session_that_changes(server, {": run 6 of": {"refuse": None}}, plan, here)
    # After two in a row one a round: each may take a minute to fail. A server that answers again is asked before each run again.
    assert [record["reference"] is None for record in records(plan)] == [True] * 6 + [False] * 3
    lines = [line for line in said if "no reference load" in line]
    assert [line.split(": ")[1] for line in lines] == ["round 1", "round 1", "round 2"]
    assert [line.endswith("failed; the next one is sent in the next round") for line in lines] == [False, True, True]


def test_no_reference_where_none_is_asked_for(here, content):
    with fake_server(metrics=EXPOSITION) as server:
        against(server, content)
        content["study"]["ladders"][0]["concurrency"] = [1]
        content["measurement"]["reference_requests"] = 0
        plan, said = plan_of(content), []
        session(plan, here, say=said.append)
        prompts = [body for body in server.bodies if body["max_tokens"] == 32]
    assert prompts == []
    assert {record["reference"] for record in records(plan)} == {None}
    assert not any("reference" in line for line in said)


def test_each_session_has_facts_of_its_own_and_a_pack_carries_them(here, content, monkeypatch):
    with fake_server(metrics=EXPOSITION) as server:
        plan = against(server, content, sessions=2)
        for number in (1, 2):
            session(plan, here, number)
    assert [(x["session"], x["round"]) for x in records(plan)] == [(1, 1)] * 3 + [(2, 2)] * 3
    facts = [Paths.facts("a", number) for number in (1, 2)]
    assert [str(path) for path in facts] == [
        "results/deployments/a/deployment.json",
        "results/deployments/a/session-2/deployment.json",
    ]
    assert facts[0].read_bytes() != facts[1].read_bytes()  # their warm-ups differ
    contents = [path.read_bytes() for path in facts]
    packed = pack(plan, content, here / "two.tar.gz", Store(here / Paths.RUNS))
    assert packed.missing == ()
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    store = Store(elsewhere / Paths.RUNS)
    for _ in range(2):  # the second time everything is there
        assert len(unpack(here / "two.tar.gz", store).runs) == 6
    assert [path.read_bytes() for path in facts] == contents
    for number in (1, 2):  # no server answers any more, and none is needed
        session(plan, elsewhere, number)


@pytest.mark.parametrize(
    ("share", "busy", "words"),
    [
        (None, 0.9, ""),
        (None, None, ""),
        (0.15, 1.0, ""),
        (0.5, 1.0, "; invalid: other processes took 50 % of the cores' time"),
        (None, 0.97, "; the cores were busy for 97 % of the time, and whether with the server's work is not known"),
    ],
)
def test_a_run_beside_other_work_is_said_to_be_invalid_at_once(share, busy, words):
    assert disturbed(share, 0.15, busy) == words


@pytest.fixture
def project(tmp_path):
    with fake_server(metrics=EXPOSITION, pages={"/version": '{"version": "0.32.0"}'}, gap_s=0.001) as server:
        ladders = [{"deployment": name, "workload": "loop", "concurrency": [1], "repeats": 2} for name in ("a", "b")]
        deployment = CONTENT["deployments"]["a"]
        yield Project(
            tmp_path.resolve(),
            {
                **CONTENT,
                "study": {"title": "Two sessions", "sessions": 2, "baseline": "a", "ladders": ladders},
                "engines": {"e": {"source": "external", "base_url": server.base_url}},
                "deployments": {"a": deployment, "b": {**deployment, "max_num_seqs": 8}},
                "workloads": {"loop": {"arrival": "closed", "prompt_tokens": 32, "output_tokens": 8, "num_requests": 4}},
                "measurement": {"warmup_requests": 3, "reference_requests": 0},
                "thresholds": LENIENT,
            },
        )


def test_a_workflow_measures_sessions_in_turn_and_only_what_is_missing(project):
    def measured(*arguments):
        jobs = project.run("--cores", "2", *arguments, target="measured")
        return [job.removeprefix("measure:deployment=") for job in jobs if job.startswith("measure:")]

    order = ["a, session=1", "b, session=1", "b, session=2", "a, session=2"]
    assert measured() == order
    records = [json.loads(path.read_text()) for path in project.folder.glob("results/runs/*/*/run.json")]
    records.sort(key=lambda record: record["clock_start_s"])
    sessions = [(record["definition"]["deployment"], record["session"]) for record in records]
    assert sessions == [("a", 1), ("b", 1), ("b", 2), ("a", 2)]
    assert (project.folder / "results/deployments/a/session-2/deployment.json").exists()
    assert measured("--dry-run") == []
    before = project.stored_at()
    project.config["deployments"]["c"] = {**project.config["deployments"]["a"], "max_num_seqs": 4}
    project.config["study"]["ladders"].append({**project.config["study"]["ladders"][0], "deployment": "c"})
    measured()
    after = project.stored_at()
    assert len(after) == 6
    assert {digest: after[digest] for digest in before} == before
    project.bench("discard", "a/*_r2_*")
    measured()
    assert {digest for digest, start in project.stored_at().items() if after[digest] != start} == {
        record["digest"] for record in records if record["definition"]["deployment"] == "a" and record["session"] == 2
    }


def test_one_session_waits_for_nobody(project):
    project.config["study"]["sessions"] = 1
    project.run("--dry-run", target="measured")
    assert "session-2" not in project.output
    assert project.output.count("checkpoint measure:") == 2

"""The reference load before each run, and sessions of several starts."""

import json
from itertools import count, groupby
from statistics import mean

import pytest

from bench.load.client import Load
from bench.load.target import Target
from bench.measure import rounds
from bench.measure.recording import Recording
from bench.measure.rounds import disturbed
from bench.measure.session import measure
from bench.measure.warmup import reference_load
from bench.parse.run import parse_run
from bench.runs.files import write_record
from bench.runs.paths import Paths
from bench.runs.run import RECORD, ReferenceLoad
from bench.runs.store import Store
from bench.servers.launch import resolve_launch
from bench.study.plan import Plan
from bench.study.read import load_config
from bench.workloads.schedule import schedule
from bench.workloads.workload import Workload
from tests.support import records as made
from tests.support.fake_server import fake_server
from tests.support.project import LENIENT, Project, external
from tests.support.study import CONTENT, ROOT

EXPOSITION = (ROOT / "tests/data/vllm-0.32.0.prom").read_text()


def plan_of(content, **study):
    content["study"] |= study
    return Plan.of(load_config(content, source="test"))


class Killed(Exception):
    """A session that ends in the midst of it."""


class Machine:
    """A machine whose speed is planted: a reference load is said to take `seconds` of it (None: a request of it fails), and no load is
    sent. `at` has the seconds from a line with some text on, as in {": run 2 of": 1.0}; an exception is raised there.
    """

    def __init__(self, folder, seconds=1.0):
        self.folder, self.seconds, self.at = folder, seconds, {}
        self.sent, self.said, self._moments = [], [], count()

    def reference_load(self, _target, _first, requests, place, _alive):
        started = f"2026-01-01T00:{next(self._moments):02}:00.000+00:00"
        self.sent.append(requests)
        if self.seconds is None:
            return None
        return ReferenceLoad(
            round=place[0], since=place[1] or started, started=started, seconds=(self.seconds + 9, self.seconds)
        )

    def record_run(self, _target, load, folder, *, header, **_):
        self.sent.append(load.seed)
        write_record(made.run(**vars(header), clock_start_s=float(next(self._moments))), folder / RECORD)
        return Recording(requests=[], tokens_per_s=1.0, duration_s=1.0, other_share=0.0)

    def session(self, plan, search=None):
        """Measure; the runs in their order, and what was said."""
        self.said = []

        def say(text):
            self.said.append(text)
            for at, then in self.at.items():
                if at in text and then is Killed:
                    raise Killed
                self.seconds = then if at in text else self.seconds

        session(plan, self.folder, say=say, search=search)
        return measured(plan), self.said


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    planted = Machine(tmp_path)
    monkeypatch.setattr(rounds, "_SERVES_S", 0.0)
    for name in ("reference_load", "record_run"):
        monkeypatch.setattr(rounds, name, getattr(planted, name))
    return planted


@pytest.fixture(scope="module")
def server():
    with fake_server(metrics=EXPOSITION, pages={"/version": '{"version": "0.32.0"}'}) as running:
        yield running


def session(plan, folder, number=1, *, say=lambda _: None, search=None):
    launch, facts = folder / Paths.LAUNCH.format(deployment="a"), folder / Paths.facts("a", number)
    launch.parent.mkdir(parents=True, exist_ok=True)
    write_record(resolve_launch(plan.deployments["a"], made.engine(source="external", command=None), None), launch)
    runs, store = plan.runs_of("a", number), Store(folder / Paths.RUNS)
    measure(plan, "a", runs, launch=launch, facts=facts, store=store, say=say, search=search)


def against(server, content, levels=(1, 2), repeats=3, drift=0.5, **study):
    """The plan of one ladder at this server. A drift of 10 is beyond any machine's, where a test is not about it."""
    content["engines"]["e"] = {"source": "external", "base_url": server.base_url}
    content["workloads"]["short"] = {"arrival": "burst", "prompt_tokens": 300, "output_tokens": 8}
    content["models"]["m"]["config"] = {**content["models"]["m"]["config"], "max_position_embeddings": 1024}
    content["study"]["ladders"][0] |= {"concurrency": list(levels), "repeats": repeats}
    content["measurement"] = {"warmup_requests": 0, **content.get("measurement", {})}
    content["thresholds"] = {**LENIENT, "drift": drift}
    return plan_of(content, **study)


def measured(plan):
    """The records of its runs, in the order in which they were measured."""
    return sorted((json.loads(run.record.read_text()) for run in plan.runs), key=lambda record: record["clock_start_s"])


# What a session does with rounds, on a machine whose speed is planted.


def test_each_round_s_references_are_its_own_and_serve_the_runs_of_the_next_seconds(machine, server, content, monkeypatch):
    """Two seconds pass from one look at the clock to the next."""
    plan = against(server, content, levels=[1, 2, 4, 8, 16], repeats=2)
    monkeypatch.setattr(rounds, "_SERVES_S", 5.0)
    monkeypatch.setattr(rounds, "monotonic", count(0, 2).__next__)
    found, _ = machine.session(plan)
    served = [(number, len(list(runs))) for number, runs in groupby((x["round"], x["reference"]["started"]) for x in found)]
    assert [(number, runs) for (number, _), runs in served] == [(1, 3), (1, 2), (2, 3), (2, 2)]


def test_a_killed_session_goes_on_in_the_same_order(machine, server, content):
    plan = against(server, content, levels=[1, 2, 4], repeats=2)
    machine.at = {": run 2 of": Killed}
    with pytest.raises(Killed):
        machine.session(plan)
    machine.at = {}
    found, _ = machine.session(plan)
    assert [x["definition"]["run"] for x in found] == [run.name for run in plan.runs_of("a")]
    assert [(x["round"], x["position"], x["session"]) for x in found] == [(i // 4 + 1, i, 1) for i in range(1, 7)]
    since = [record["reference"]["since"] for record in found]
    assert [len(list(runs)) for _, runs in groupby(since)] == [2, 1, 3]  # of round 1, of its rest, and of round 2
    assert since == sorted(since)


def test_no_reference_where_none_is_asked_for(machine, server, content):
    content["measurement"] = {"reference_requests": 0}
    found, said = machine.session(against(server, content))
    assert (len(machine.sent), {record["reference"] for record in found}) == (6, {None})
    assert not any("reference" in line for line in said)


def test_a_reference_that_fails_is_none_and_ends_nothing(machine, server, content):
    machine.seconds, machine.at = None, {": run 6 of": 1.0}
    found, said = machine.session(against(server, content, levels=[1, 2, 4]))
    # Then one a round: each may take a minute to fail. A server that answers again is asked before each run again.
    assert [record["reference"] is None for record in found] == [True] * 6 + [False] * 3
    lines = [line for line in said if "no reference load" in line]
    assert [line.split(": ")[1] for line in lines] == ["round 1", "round 2"]


def test_a_run_beside_other_work_is_said_to_be_invalid_at_once():
    for share, words in ((None, ""), (0.15, ""), (0.5, "; invalid: other processes took 50 % of the cores' time")):
        assert disturbed(share, 0.15) == words


# Real loads.


def test_a_reference_load_with_a_request_that_fails_is_none():
    first, asked = Load(Workload(arrival="burst", prompt_tokens=8, output_tokens=8), 2, "s"), []
    with fake_server(behaviour="http_error") as refusing:
        target = Target(refusing.base_url, "m")
        assert reference_load(target, first, 4, (1, None), lambda: asked.append("alive")) is None
    assert (asked, len(refusing.bodies)) == (["alive"], 4)  # and it is not sent a second time


@pytest.mark.workflow
def test_a_reference_load_comes_before_each_run(here, content, monkeypatch):
    monkeypatch.setattr(rounds, "_SERVES_S", 0.0)
    with fake_server(metrics=EXPOSITION) as server:
        plan = against(server, content, levels=[2], repeats=2, drift=10.0)
        session(plan, here)
        sent = server.bodies
    result = measured(plan)
    references = [record["reference"] for record in result]
    first = references[0]
    shape = ("requests", "in_flight", "prompt_tokens", "output_tokens")
    assert [[reference[key] for key in shape] for reference in references] == [[8, 4, 256, 32]] * 2
    assert [(reference["round"], reference["since"]) for reference in references] == [
        (number, reference["started"]) for number, reference in enumerate(references, 1)
    ]
    moments = [moment for record in result for moment in (record["reference"]["started"], record["started"])]
    assert moments == sorted(moments)
    assert len(set(moments)) == 4
    assert all(len(reference["seconds"]) == 2 for reference in references)
    # Eight answers, four at once, of a server whose first token takes 20 ms and each other one 5 ms. A closed loop begins with what is
    # left of four answers: at least a quarter of 32 tokens in the longest of them.
    assert min(first["seconds"]) > 0.175 + 0.175 * 0.75 - 0.02
    model = Workload.model_validate({"arrival": "closed", "num_requests": 8, "prompt_tokens": 256, "output_tokens": 32})
    tokens = sum(request.output_tokens for request in schedule(model, 4, plan.first_run("a").schedule_seed))
    assert 4 * 32 < tokens < 8 * 32
    assert first["tokens_per_s"] == pytest.approx(tokens / mean(first["seconds"]), rel=0.001)
    prompts = [tuple(body["prompt"]) for body in sent if len(body["prompt"]) == 256]
    assert len(prompts) == len(set(prompts)) == 2 * 2 * 8
    run = plan.runs_of("a")[1]
    files = {key: here / key for key in ("requests", "telemetry", "wide", "summary")}
    parsed = parse_run(run.record.parent, **files)
    assert (parsed["round"], parsed["position"], parsed["session"]) == (2, 2, 1)
    assert parsed["reference_s"] == min(references[1]["seconds"])
    assert parsed["reference_since"] == references[1]["started"]
    assert parsed["requests"] == run.level  # the reference is no part of a result


@pytest.fixture
def project(tmp_path):
    with fake_server(metrics=EXPOSITION, pages={"/version": '{"version": "0.32.0"}'}, gap_s=0.001) as server:
        ladders = [{"deployment": name, "workload": "loop", "concurrency": [1], "repeats": 2} for name in ("a", "b")]
        deployment = CONTENT["deployments"]["a"]
        content = external(
            server.base_url,
            study={"title": "Two sessions", "sessions": 2, "baseline": "a", "ladders": ladders},
            deployments={"a": deployment, "b": {**deployment, "max_num_seqs": 8}},
            workloads={"loop": {"arrival": "closed", "prompt_tokens": 32, "output_tokens": 8, "num_requests": 4}},
        )
        yield Project(tmp_path.resolve(), content)


@pytest.mark.long(part="workflows")
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
    project.bench("runs", "--discard", "a/*_r2_*")
    measured()
    assert {digest for digest, start in project.stored_at().items() if after[digest] != start} == {
        record["digest"] for record in records if record["definition"]["deployment"] == "a" and record["session"] == 2
    }

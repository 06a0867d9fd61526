"""The studies that ship: each lists exactly the runs that it says it has."""

import functools

from bench.beside.archive.pack import packed_study
from bench.findings.registry import figures_of
from bench.study.plan import Plan
from bench.study.precision import thin_levels
from bench.study.read import load_config, load_file
from bench.yaml_file import read_yaml
from tests.support.study import ROOT

STUDIES = ROOT / "config/studies"
TEMPLATES = ROOT / "config/templates"


@functools.cache
def plan(name):
    """The plan of a study; after `@` its scale."""
    study, _, scale = name.partition("@")
    return Plan.of(load_file(STUDIES / f"{study}.yaml", **({"scale": scale} if scale else {})), root=ROOT)


def levels(study):
    found = {}
    for run in study.runs:
        found.setdefault(run.deployment.name, []).append(run.level)
    return found


RUNS = {
    "families": 144, "families@cpu": 144, "factors": 2576, "factors@cpu": 144, "archetypes": 16, "archetypes@cpu": 12, "h200": 35,
    "h200@h100": 54, "h200@cpu": 54, "precision": 35, "precision@cpu": 8, "quick": 7, "real-small": 3, "two-engines-small": 26,
    "fleet-small": 30, "tuning-small": 0,
}  # fmt: skip


def test_each_study_at_each_scale_has_its_runs_and_says_whether_it_was_measured():
    texts = {path.stem: path.read_text() for path in STUDIES.glob("*.yaml")}
    scales = {f"{name}@{scale}" for name in texts for scale in read_yaml(STUDIES / f"{name}.yaml").get("scales", ())}
    assert {*texts, *scales} == {*RUNS}
    for name, runs in RUNS.items():
        study = plan(name)
        assert len(study.runs) == len({run.key for run in study.runs}) == runs, name
    for name in texts.keys() - {"factors", "quick", "two-engines-small", "fleet-small", "tuning-small"}:
        said = texts[name].replace("\n# ", " ")
        assert all(f"{len(plan(each).every)} runs" in said for each in RUNS if each.partition("@")[0] == name), name
    never = {name for name, text in texts.items() if text.startswith("# Never measured on GPUs")}
    assert never == {"families", "factors", "archetypes", "precision"}


def test_a_template_is_short_says_what_to_change_and_plans_as_it_stands():
    for name, runs, searches, figures in (
        ("sizing", 0, 1, {"slo-margin"}),
        ("running-server", 0, 1, {"ttft"}),
        ("two-settings", 24, 0, {"comparison"}),
    ):
        file = TEMPLATES / f"{name}.yaml"
        text = file.read_text()
        assert len(text.splitlines()) <= 27, name
        assert text.count("CHANGE") >= 5, name
        study = Plan.of(load_file(file), root=ROOT)
        assert (len(study.listed), len(study.searches)) == (runs, searches), name
        assert figures <= set(figures_of(study.rows)), name
        assert thin_levels(study.listed, study.config.decision.slos) == [], name


def test_a_scale_adds_entries_and_replaces_those_of_its_names(content):
    small = {"workload": "short", "deployment": "small", "concurrency": [3]}
    content["scales"] = {"cpu": {"study": {"ladders": [small]}, "deployments": {"small": content["deployments"]["a"]}}}
    written = {key: value for key, value in content.items() if key != "scales"}
    assert load_config(content, source="t") == load_config(written, source="t")
    at = load_config({**content, "scale": "cpu"}, source="t")
    assert (at.study.title, [ladder.levels for ladder in at.study.ladders]) == (content["study"]["title"], [[3]])
    assert at.deployments.keys() == {*content["deployments"], "small"}
    alone = packed_study({**content}, Plan.of(at), "*")
    assert {"scale", "scales"}.isdisjoint(alone)
    assert Plan.of(load_config(alone, source="t")).digest == Plan.of(at).digest


def test_a_ladder_sweeps_lengths(content):
    content["study"]["ladders"][0] |= {"concurrency": [2], "prompt_tokens": [8, 16], "output_tokens": [4]}
    runs = Plan.of(load_config(content, source="test")).runs
    assert [run.workload_name for run in runs] == ["short-p8-o4", "short-p16-o4"]
    assert [run.name.rsplit("_", 1)[0] for run in runs] == [
        "short-p8-o4_burst_p8_o4_c0002_r1",
        "short-p16-o4_burst_p16_o4_c0002_r1",
    ]
    assert {run.definition["family"] for run in runs} == {"short"}


def test_a_study_has_the_figures_that_its_runs_can_answer():
    for name, has, lacks in (
        ("families", {"kv-saturation", "throughput", "ttft", "latency-by-length", "settings"}, set()),
        ("quick", {"kv-saturation", "ttft"}, {"settings", "latency-by-length"}),
        ("factors", set(), {"latency-by-length"}),
    ):
        figures = set(figures_of(plan(name).rows))
        assert has <= figures, name
        assert not lacks & figures, name

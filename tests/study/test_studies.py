"""The studies that ship: each lists exactly the runs that it says it has."""

import functools
from collections import Counter

from bench.beside.archive.pack import packed_study
from bench.findings.registry import figures_of
from bench.study.plan import Plan
from bench.study.precision import thin_levels
from bench.study.read import load_config, load_file
from bench.yaml_file import read_yaml
from tests.support.study import ROOT

STUDIES = ROOT / "config/studies"
TEMPLATES = ROOT / "config/templates"
TENS = [1, *range(10, 161, 10)]
HUNDREDS = [1, 10, 50, *range(100, 1201, 100)]


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


def test_the_published_families_have_the_levels_of_the_documents():
    study = plan("families")
    steps = [1, *range(10, 251, 10)]
    bursts = {"gpt2-xl": HUNDREDS, "deepseek-7b": HUNDREDS[:9], "qwen1.5-14b": TENS, "falcon-40b": TENS}
    assert levels(study) == {**bursts, "mistral-7b": [1] * 34, "llama-70b-tp1": steps, "llama-70b-tp2": steps}
    assert {run.name.split("_r1")[0].rsplit("_", 1)[0] for run in study.runs if run.family == "short"} == {
        "short_burst_p128_o512"
    }
    assert [spec.deployment.tensor_parallel for spec in study.deployments.values()][-3:] == [2, 1, 2]
    lengths = [run for run in study.runs if run.deployment.name == "mistral-7b"]
    shapes = Counter((run.family, run.workload.prompt_tokens.fixed, run.workload.output_tokens.fixed) for run in lengths)
    thousands = range(8000, 128001, 8000)
    assert shapes == Counter(
        [*(("prefill", n, 1) for n in thousands), *(("decode", 128, n) for n in thousands),
         ("streamed", 64000, 64000), ("whole", 64000, 64000)]
    )  # fmt: skip
    assert {run.workload.stream for run in lengths if run.family == "whole"} == {False}


def test_factors_crosses_them_all_and_repeats_some():
    rows = plan("factors").rows
    crossed = [row for row in rows if row["family"] == "crossed"]
    lengths = {16, 32, 64, 128, 256, 512}
    assert len(crossed) == 2 * 4 * 7 * 6 * 6
    assert {row["level"] for row in crossed} == {1, 2, 4, 8, 16, 32, 64}
    assert {row["prompt_fixed"] for row in crossed} == {row["output_fixed"] for row in crossed} == lengths
    assert {(row["model"], row["tensor_parallel"]) for row in crossed} == {
        *(("gpt2", n) for n in (1, 2, 4, 6)),
        *(("llama-3-8b", n) for n in (1, 2, 4, 8)),
    }
    assert len(rows) - len(crossed) == 2 * 4 * 7 * 10


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
        assert all(f"{plan(each).of_study} runs" in said for each in RUNS if each.partition("@")[0] == name), name
    never = {name for name, text in texts.items() if text.startswith("# Never measured on GPUs")}
    assert never == {"families", "factors", "archetypes", "precision"}


def test_a_real_model_answers_real_prompts():
    study = plan("real-small")
    (spec,) = study.deployments.values()
    assert (
        spec.model.gguf and not spec.model.synthetic and spec.checkpoint is None
    )  # its package's hash is part of every digest
    assert {(run.level, run.workload.natural, run.workload.prompts.source) for run in study.runs} == {
        (level, True, "file") for level in (1, 2, 4)
    }


def test_settings_compete_in_a_race_of_eight():
    study = plan("tuning-small")
    assert list(study.deployments) == ["llama-seqs4-ubatch-size512"]
    assert len(study.tuned.deployments) == 8
    assert {spec.deployment.max_num_seqs for spec in study.tuned.deployments.values()} == {2, 4, 8, 16}


def test_precisions_differ_in_nothing_else_and_one_is_measured_twice():
    """The one that is measured twice shows how many answers change by themselves."""
    for name, key, values, settings in (
        ("precision", "model", ["fp16", "fp8", "int8", "int4"], set()),
        ("precision@cpu", "kv_cache_dtype", ["auto", "q8_0", "q4_0"], {"settings"}),
    ):
        study = plan(name)
        *swept, again = study.deployments.values()
        assert [getattr(spec.deployment, key) for spec in swept] == values
        assert len({spec.deployment.model_copy(update={key: "auto"}).model_dump_json() for spec in swept}) == 1
        assert again.deployment == swept[0].deployment and study.config.study.baseline == swept[0].name
        tasks = [run.workload for run in study.runs if run.family == "tasks"]
        assert {(each.keep_answers, each.cache, each.natural) for each in tasks} == {(True, "as_is", True)}
        assert {"answers", "comparison"} | settings <= set(figures_of(study.rows))


def test_classes_are_mixed_at_rising_load():
    study = plan("archetypes@cpu")
    assert {tuple(run.workload.classes) for run in study.runs if run.family == "mix"} == {("chat", "rag", "summary")}
    assert {slo.request_class for slo in study.config.decision.slos} == {"chat", "rag", "summary"}


def test_two_engines_get_the_same_model_memory_and_load():
    study = plan("two-engines-small")
    vllm, llama = study.deployments["vllm"], study.deployments["llama-cpp"]
    assert (vllm.engine.kind, llama.engine.kind) == ("vllm", "llama.cpp")
    assert (vllm.model, vllm.deployment.kv_cache_memory) == (llama.model, llama.deployment.kv_cache_memory)
    loads = [{(r.workload_name, r.level) for r in study.runs if r.deployment.name == name} for name in study.deployments]
    assert len(loads[0] & loads[1]) >= 9


def test_the_quick_study_is_of_few_runs_on_llama_cpp():
    study = plan("quick")
    assert ({spec.engine.kind for spec in study.deployments.values()}, len(study.runs)) == ({"llama.cpp"}, 7)


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


def test_every_template_is_named_where_configurations_are_explained():
    text = (ROOT / "config/README.md").read_text()
    names = {path.stem for path in TEMPLATES.iterdir()}
    assert names == {"sizing", "running-server", "two-settings"}
    assert all(f"`config/templates/{name}.yaml`" in text for name in names)


def test_a_study_has_the_figures_that_its_runs_can_answer():
    for name, has, lacks in (
        ("families", {"kv-saturation", "throughput", "ttft", "latency-by-length", "settings"}, set()),
        ("quick", {"kv-saturation", "ttft"}, {"settings", "latency-by-length"}),
        ("factors", set(), {"latency-by-length"}),
    ):
        figures = set(figures_of(plan(name).rows))
        assert has <= figures, name
        assert not lacks & figures, name


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

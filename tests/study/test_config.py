"""A configuration that is wrong is refused before any job starts, with the key, the value and the fix."""

import copy
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from bench.errors import BenchError
from bench.study import Plan, load_config, load_file, load_workload
from bench.study.reference import reference, schema
from bench.study.renamed import with_new_names
from tests.support.study import CONTENT, ROOT


def put(content, path, value):
    *parents, last = path
    for key in parents:
        content = content[key]
    content[last] = value


CASES = [
    (("study", "ladders", 0, "concurrency", 2), 0, r"study\.ladders\[0\]\.concurrency\[2\] is 0: .*greater than or equal to 1.*requests in flight"),
    (("study", "ladders", 0, "concurrency"), [1, 2, 1], r"concurrency is \[1, 2, 1\]: level 1 stands twice"),
    (("study", "ladders", 0, "concurrency"), [], r"no levels"),
    (("study", "ladders", 0, "concurency"), [1], r"concurency is not a key\. Did you mean concurrency\?"),
    (("deployments", "a", "kv_cache_size"), "1GiB", r"kv_cache_size is not a key\. Did you mean kv_cache_memory\?"),
    (("deployments", "a", "max_concurrency"), 8, r"a\.max_concurrency is not a key\. Did you mean max_num_seqs\?"),
    (("deployments", "a", "max-model-len"), 8, r"a\.max-model-len is not a key\. Did you mean flags\?"),
    (("deployments", "a", "tp"), 2, r"a\.tp is not a key\. Did you mean tensor_parallel\?"),
    (("deployments", "a", "qps"), 2, r"a\.qps is not a key\. Known here: model, engine"),
    (("models", "m", "architecture", "max_model_len"), 8, r"max_model_len is not a key\. Did you mean context\?"),
    (("study", "ladders", 0, "max_concurrency"), [8], r"max_concurrency is not a key\. Did you mean concurrency\?"),
    (("study", "ladders", 0, "qps"), [8], r"qps is not a key\. Did you mean request_rate\?"),
    (("workloads", "short", "isl"), 8, r"isl is not a key\. Did you mean prompt_tokens\?"),
    (("decision",), {"qps": 8}, r"decision\.qps is not a key\. Did you mean peak_rps\?"),
    (("wrokloads",), {}, r"wrokloads is not a key\. Did you mean workloads\?"),
    (("workloads", "short", "arrival"), "close", r"arrival is 'close': did you mean closed\? It should be 'burst', 'closed', .* or 'trace'\. When"),
    (("workloads", "short", "arrival"), "monthly", r"arrival is 'monthly': it should be 'burst', 'closed'"),
    (("deployments", "a", "dtype"), "FP16", r"dtype is 'FP16': did you mean float16\? It should be 'auto', 'float32'"),
    (("engines", "e", "backend"), "gpu", r"backend is 'gpu': did you mean cuda\?"),
    (("engines", "e", "omit"), ["ignore-eos"], r"omit\[0\] is 'ignore-eos': did you mean ignore_eos\?"),
    (("engines", "e", "kind"), "llamacpp", r"kind is 'llamacpp': no engine that can be started here; did you mean llama\.cpp\? There are vllm, llama\.cpp\."),
    (("study", "ladders", 0, "concurrency"), "atuo", r"concurrency is 'atuo': did you mean auto\?"),
    (("deployments", "a", "balance"), "round-robin", r"balance is 'round-robin': did you mean roundrobin\? Not of the form \^\(leastconn\|"),
    (("deployments", "a", "model"), None, r"deployments\.a\.model is missing: a server that is started here needs one"),
    (("deployments", "a", "kv_cache_memory"), "64 potatoes", r"deployments\.a\.kv_cache_memory is '64 potatoes': a size is"),
    (("deployments", "a", "max_num_seqs"), "256", r"deployments\.a\.max_num_seqs is '256': not a whole number; write it without quotes\. Most sequences"),
    (("deployments", "a", "model"), "gpt5", r"deployments\.a\.model is 'gpt5', which models does not define\. Defined: m\."),
    (("deployments", "a", "kv_cache_memory"), None, r"deployments\.a\.kv_cache_memory is missing\. On a CPU"),
    (("study", "ladders", 0, "workload"), "long", r"study\.ladders\[0\]\.workload is 'long', which workloads does not define"),
    (("workloads", "short", "output_tokens"), 1000, r"prompt_tokens 32 \+ output_tokens 1000 = 1032 is beyond the context of models\.m, 256 tokens\. Shorten"),
    (("workloads", "short"), {"arrival": "closed", "prompt_tokens": 8, "output_tokens": 8, "num_requests": 3}, r"reaches 4, but workloads\.short\.num_requests is 3.*Raise num_requests to 4"),
    (("workloads", "short"), {"arrival": "poisson", "prompt_tokens": 8, "output_tokens": 8, "duration_s": 5}, r"ladders\[0\] gives concurrency, but arrival poisson of workloads\.short has request_rate as its load"),
    (("workloads", "short"), {"arrival": "poisson", "prompt_tokens": 8, "output_tokens": 8, "num_requests": 5, "duration_s": 5}, r"workloads\.short: both num_requests and duration_s are given"),
    (("workloads", "short"), {"arrival": "gamma", "prompt_tokens": 8, "output_tokens": 8, "duration_s": 5}, r"arrival gamma and burstiness go together"),
    (("workloads", "short"), {"arrival": "burst", "prompt_tokens": 8, "output_tokens": 8, "step": {"factor": 2, "start_s": 1, "duration_s": 1}}, r"step and ramp belong to constant, poisson, gamma, not to burst"),
    (("workloads", "short"), {"arrival": "burst"}, r"prompt_tokens and output_tokens say how long requests are"),
    (("workloads", "short"), {"arrival": "trace", "trace": "none.csv"}, r"none\.csv: no such trace"),
    (("workloads", "short", "cache"), "shared", r"cache shared and shared_prefix go together"),
    (("workloads", "short", "archetype"), "poetry", r"archetype is 'poetry'.*'chat', 'rag'"),
    (("workloads", "short", "prompt_tokens"), {"distribution": "lognormal", "median": 20, "sigma": 0.5}, r"lognormal needs median, sigma, max; max is missing"),
    (("workloads", "short", "prompt_tokens"), {"distribution": "uniform", "min": 8, "max": 4}, r"max 4 is below min 8"),
    (("workloads", "short", "prompt_tokens"), {"distribution": "normal", "mean": 20, "sd": 5, "max": 300}, r"prompt_tokens 300 \+ output_tokens 32 = 332 is beyond the context"),
    (("workloads", "short", "turns"), {"count": 4, "new_tokens": 64}, r"its longest request, 352 tokens with its output, is beyond the context"),
    (("workloads", "short", "archetype"), ["chat"], r"archetype is \['chat'\]"),
    (("workloads", "short", "prompt_tokens"), "long", r"prompt_tokens is 'long': neither a whole number nor a distribution, such as"),
    (("workloads", "short", "prompt_tokens"), "500", r"neither a whole number nor a distribution, such as .*; write it without quotes\."),
    (("hardware",), {"h100": {"price_per_hour": "x"}}, r"(?<!hardware: )hardware\.h100: price_per_hour: Input should be a valid number"),
    (("study", "ladders", 0, "concurrency"), 4, r"concurrency is 4: not a list; write \[4\]\. Levels"),
    (("study", "baseline"), "b", r"study\.baseline is 'b', which deployments does not define\. Defined: a\."),
    (("study", "baseline"), "a", r"study\.baseline is 'a', and no other deployment shares a workload and a level with it\. Give .*level 1 of short"),
    (("study", "ladders", 0, "request_rate"), [1.0], r"concurrency and request_rate are given; keep one"),
    (("models", "m", "architecture", "kv_heads"), 3, r"models\.m\.architecture: kv_heads 3 does not divide heads 4"),
    (("deployments", "a", "flags"), {"port": 8000}, r"deployments\.a\.flags\.port: every server gets a free port of its own when it starts\. Remove the flag"),
    (("models", "m"), {"hub": "x/y"}, r"models\.m: hub without revision"),
    (("models", "m"), {}, r"models\.m: nothing says which model it is; give catalogue"),
    (("thresholds",), {"failed_share": 0.1}, r"thresholds: failed_share is no longer a threshold.*decision\.failed_share"),
    (("decision",), {"failed_share": 2}, r"decision\.failed_share is 2: .*less than or equal to 1.*may fail"),
    (("engines", "e", "image"), "x:1", r"engines\.e: image belongs to source container, not to command"),
    (("models", "m"), {"catalogue": "gpt2xl"}, r"models\.m\.catalogue is 'gpt2xl': the catalogue has no such model; the nearest are gpt2-xl, gpt2.*`bench models` lists it"),
    (("models", "m"), {"catalogue": "claude"}, r"models\.m\.catalogue is 'claude': the catalogue has no such model"),
    (("models", "m"), {"catalogue": 2}, r"models\.m\.catalogue is 2: not a text; quote it"),
    (("models", "m", "catalogue"), "gpt2", r"models\.m: both architecture and catalogue state its shape; keep one"),
    (("models", "m", "config"), {"model_type": "llama"}, r"models\.m: both architecture and config state its shape; keep one"),
    (("models", "m"), {"catalogue": "gpt2", "config": "tiny"}, r"models\.m\.config is 'tiny': not a mapping"),
    (("models", "m"), {"catalogue": "gpt2", "config": {"n_positions": 48}}, r"prompt_tokens 32 \+ output_tokens 32 = 64 is beyond the context of models\.m, 48 tokens"),
    (("models", "m"), {"path": "/models/nope"}, r"models\.m\.path is '/models/nope': no such folder\. Name the folder of a checkpoint, or a \.gguf file; for random weights"),
    (("models", "m"), {"catalogue": "gpt2", "path": "/models/nope"}, r"models\.m\.path is '/models/nope': no such folder"),
    (("models", "m"), {"config": {"hello": 1}}, r"models\.m: model_type \(none stated\) is not a family that is read here.*models\.NAME\.architecture"),
    (("models", "m"), {"config": {"model_type": "llama", "num_hidden_layers": "junk"}}, r"models\.m: config\.json: num_hidden_layers is 'junk'"),
    (("models", "Big_Model"), {"path": "/x"}, r"Big_Model.*lower case letters"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "message"), CASES, ids=[".".join(map(str, c[0])) + f"={c[1]}"[:40] for c in CASES])
def test_refused(content, path, value, message):
    put(content, path, value)
    with pytest.raises(BenchError, match=message):
        load_config(content, source="f.yaml")


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "cannot be read as JSON"), ('{"a": [1', "cannot be read as JSON"), ("[]", "holds no JSON object"), ('{"hello": 1}', "model_type")],
)  # fmt: skip
@pytest.mark.parametrize("engine", [{"source": "external", "base_url": "http://x"}, None])
def test_a_config_json_that_is_none_is_refused(content, text, said, engine, tmp_path):
    (tmp_path / "config.json").write_text(text)
    content["models"]["m"] = {"path": str(tmp_path)}
    content["engines"]["e"] = engine or content["engines"]["e"]
    with pytest.raises(BenchError, match=rf"models\.m: .*{said}"):
        load_config(content, source="test")


def test_a_workload_by_itself_is_refused_with_its_keys():
    content = {"arrival": "burst", "prompt_tokens": 8, "output_tokens": 8}
    with pytest.raises(BenchError, match=r"^f: shared_prefix is 1\.5: it should be less than 1\. `cache: shared`: share of"):
        load_workload({**content, "cache": "shared", "shared_prefix": 1.5}, source="f")
    with pytest.raises(BenchError, match=r"^f: prompt_token is not a key\. Did you mean prompt_tokens\?$"):
        load_workload({**content, "prompt_token": 1}, source="f")
    with pytest.raises(BenchError, match=r"^f: turns\.count is 1: "):
        load_workload({**content, "turns": {"count": 1, "new_tokens": 1}}, source="f")
    with pytest.raises(BenchError, match=r"^f: endpoint embeddings answers no turns"):
        load_workload({**content, "endpoint": "embeddings", "turns": {"count": 2, "new_tokens": 1}}, source="f")


def test_every_fault_is_told_at_once_with_the_file(content):
    put(content, ("study", "ladders", 0, "concurrency", 0), 0)
    put(content, ("deployments", "a", "modle"), "m")
    with pytest.raises(BenchError) as caught:
        load_config(content, source="f.yaml")
    assert str(caught.value).count("f.yaml: ") == 2


def test_a_baseline_shares_a_load_with_another_deployment(content):
    content["deployments"]["b"] = content["deployments"]["a"]
    content["study"]["baseline"] = "b"
    with pytest.raises(BenchError, match=r"study\.baseline is 'b', which no ladder measures\. Measured: a\."):
        load_config(content, source="f.yaml")
    content["study"]["ladders"].append({"deployment": "b", "workload": "short", "concurrency": [8]})
    with pytest.raises(BenchError, match=r"no other deployment shares a workload and a level with it.*level 8 of short"):
        load_config(content, source="f.yaml")
    content["study"]["ladders"][1]["concurrency"] = [4, 8]
    rows = Plan.of(load_config(content, source="f.yaml")).rows
    assert {(row["deployment"], row["baseline"]) for row in rows} == {("a", False), ("b", True)}


def test_the_same_run_twice_is_refused(content):
    content["study"]["ladders"].append(copy.deepcopy(content["study"]["ladders"][0]))
    with pytest.raises(BenchError, match=r"ladders\[1\].*level 1 of short on a already stands in study.ladders\[0\]"):
        load_config(content, source="f.yaml")


def test_a_repeated_name_in_the_file_is_refused(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(yaml.safe_dump(CONTENT) + "\nmodels: {}\n")
    with pytest.raises(BenchError, match=r"c\.yaml: line \d+: the name 'models' stands twice"):
        load_file(file)


def test_a_merged_key_may_be_overridden():
    config = load_file(ROOT / "config/config.yaml")
    assert config.models["tiny-mqa"].architecture.kv_heads == 1
    assert config.models["tiny-mha"].architecture.kv_heads == 4


@pytest.mark.parametrize("text", ["", "- 1\n", "a: [", "a: b: c"])
def test_what_is_no_configuration_is_refused(tmp_path, text):
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(BenchError, match=r"c\.yaml"):
        load_file(file)


@pytest.mark.parametrize(
    "file",
    sorted((ROOT / "config").rglob("*.yaml")),
    ids=lambda f: f.name,
)
def test_every_shipped_configuration_is_accepted(file):
    assert load_file(file).study.ladders


def test_the_reference_and_the_schema_are_those_of_the_models():
    assert (ROOT / "config/README.md").read_text() == reference(), "run `bench config` and commit the result"
    assert (ROOT / "workflow/schemas/config.schema.json").read_text() == schema(), "run `bench config` and commit the result"


def test_every_key_has_a_meaning():
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert len(rows) > 50
    assert not [row for row in rows if row.rstrip().endswith("|  |")]


def test_the_reference_has_each_part_of_a_file():
    """By the sentence that says what it is."""
    parts = json.loads(schema())["$defs"].values()
    assert not [
        part["title"] for part in parts if "properties" in part and part["description"].splitlines()[0] not in reference()
    ]


def test_select_on_the_command_line_narrows_the_study():
    snakemake = Path(sys.executable).parent / "snakemake"
    done = subprocess.run(
        [snakemake, "-n", "--nolock", "--cores", "1", "--config", "select=*mha/*_c0024_r1*"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(re.findall(r"_c(\d{4})_", done.stdout + done.stderr)) == {"0024"}
    assert "mqa" not in done.stdout + done.stderr


def test_the_workflow_refuses_before_any_job(tmp_path, content):
    """Through Snakemake itself: the message is there, no job is."""
    content["study"]["ladders"][0]["concurrency"][1] = 0
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump(content))
    snakemake = Path(sys.executable).parent / "snakemake"
    done = subprocess.run(
        [snakemake, "-n", "--nolock", "--cores", "1", "--configfile", file], cwd=ROOT, capture_output=True, text=True
    )
    result = done.stdout + done.stderr
    assert done.returncode != 0
    assert "study.ladders[0].concurrency[1] is 0" in result
    assert "Traceback" not in result
    assert "rule " not in result


def test_a_key_that_was_renamed_is_refused_with_its_new_name(content):
    content["engines"]["e"]["device"] = "cuda"
    content["decision"] = {"device": "h100"}
    with pytest.raises(BenchError) as refusal:
        load_config(content, source="x.yaml")
    assert "x.yaml: engines.e: `device` is now called `backend`; write backend: cuda." in str(refusal.value)
    assert "x.yaml: decision: `device` is now called `accelerator`; write accelerator: h100." in str(refusal.value)


def test_renaming_a_key_measures_nothing_again(content):
    content["engines"]["e"]["backend"] = "cuda"
    engine = Plan.of(load_config(content, source="t")).deployments["a"].identity["engine"]
    assert engine == {"source": "command", "command": ["true"], "device": "cuda"}


def test_an_older_packs_keys_are_brought_up_to_date(content):
    older = {**content, "engines": {"e": {**content["engines"]["e"], "device": "cuda"}}, "decision": {"device": "h100"}}
    config = load_config(with_new_names(older), source="t")
    assert (config.engines["e"].backend, config.decision.accelerator) == ("cuda", "h100")

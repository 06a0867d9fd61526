"""What is refused of a configuration: before any job starts, with the key, the value and the fix."""

import copy
import re

import yaml

from bench.errors import BenchError
from bench.study.read import load_config, load_file, load_workload
from tests.support.study import CONTENT
from tests.support.swept import STUDY, study


def refusal(load, *given, **more):
    """What is said; nothing where it is taken."""
    try:
        load(*given, **more)
    except BenchError as error:
        return str(error)
    return ""


def put(content, path, value):
    *parents, last = path
    for key in parents:
        content = content[key]
    content[last] = value


# The key, what stands there, and a pattern of what is said.
KEYS = [
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
    (("workloads", "short"), {"arrival": "gamma", "prompt_tokens": 8, "output_tokens": 8, "duration_s": 5}, r"arrival gamma needs burstiness, the shape of its gaps"),
    (("workloads", "short"), {"arrival": "burst", "prompt_tokens": 8, "output_tokens": 8, "step": {"factor": 2, "start_s": 1, "duration_s": 1}}, r"step belongs to arrival constant, poisson, gamma, and arrival is burst; remove it"),
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
    (("decision",), {"failed_share": 2}, r"decision\.failed_share is 2: .*less than or equal to 1.*may fail"),
    (("engines", "e", "image"), "x:1", r"engines\.e: image belongs to source container, not to command"),
    (("models", "m"), {"catalogue": "gpt2xl"}, r"models\.m\.catalogue is 'gpt2xl': the catalogue has no such model; the nearest are gpt2-xl, gpt2.*`bench plan` lists it"),
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
    (("study", "ladders", 0, "prompt_tokens"), [8, 300], r"prompt_tokens 300 \+ output_tokens 32 = 332 is beyond the context"),
    (("engines", "e", "device"), "cuda", r"x\.yaml: engines\.e\.device is not a key\. Known here: .*backend"),
]  # fmt: skip


def test_a_wrong_value_is_refused_with_its_key():
    for path, value, pattern in KEYS:
        content = copy.deepcopy(CONTENT)
        put(content, path, value)
        said = refusal(load_config, content, source="x.yaml")
        assert re.search(pattern, said), (path, value, said)


def test_a_workload_by_itself_is_refused_with_its_keys():
    content = {"arrival": "burst", "prompt_tokens": 8, "output_tokens": 8}
    for change, start in (
        ({"cache": "shared", "shared_prefix": 1.5}, "f: shared_prefix is 1.5: it should be less than 1. `cache: shared`: share of"),
        ({"prompt_token": 1}, "f: prompt_token is not a key. Did you mean prompt_tokens?"),
        ({"turns": {"count": 1, "new_tokens": 1}}, "f: turns.count is 1: "),
        ({"endpoint": "embeddings", "turns": {"count": 2, "new_tokens": 1}}, "f: endpoint embeddings answers no turns"),
    ):  # fmt: skip
        assert refusal(load_workload, {**content, **change}, source="f").startswith(start), change


def test_a_config_json_that_is_none_is_refused(content, tmp_path):
    for engine in ({"source": "external", "base_url": "http://x"}, content["engines"]["e"]):
        for text, said in (
            ("", "cannot be read as JSON"),
            ('{"a": [1', "cannot be read as JSON"),
            ("[]", "holds no JSON object"),
            ('{"hello": 1}', "model_type"),
        ):
            (tmp_path / "config.json").write_text(text)
            content["models"]["m"], content["engines"]["e"] = {"path": str(tmp_path)}, engine
            assert re.search(rf"models\.m: .*{said}", refusal(load_config, content, source="test")), (text, engine)


def test_what_is_no_configuration_is_refused_with_its_file(tmp_path):
    file = tmp_path / "c.yaml"
    for text in ("", "- 1\n", "a: [", "a: b: c"):
        file.write_text(text)
        assert "c.yaml" in refusal(load_file, file), text
    file.write_text(yaml.safe_dump(CONTENT) + "\nmodels: {}\n")
    assert re.search(r"c\.yaml: line \d+: the name 'models' stands twice", refusal(load_file, file))


def test_every_fault_is_told_at_once_with_the_file(content):
    put(content, ("study", "ladders", 0, "concurrency", 0), 0)
    put(content, ("deployments", "a", "modle"), "m")
    assert refusal(load_config, content, source="f.yaml").count("f.yaml: ") == 2


# --- Ladders, and the deployments that they name


def test_a_ladder_that_cannot_be_is_refused(content):
    ladders, b = content["study"]["ladders"], {**content["deployments"]["a"]}
    trace = {"arrival": "trace", "trace": "x.csv"}
    replayed = {"deployment": "a", "workload": "short", "time_scale": [1], "prompt_tokens": [8]}
    for change, pattern in (
        ({"study": {"ladders": [*ladders, *ladders]}}, r"ladders\[1\].*level 1 of short on a already stands in study.ladders\[0\]"),
        ({"study": {"baseline": "b"}, "deployments": {"b": b}}, r"study\.baseline is 'b', which no ladder measures\. Measured: a\."),
        ({"study": {"baseline": "b", "ladders": [*ladders, {"deployment": "b", "workload": "short", "concurrency": [8]}]}, "deployments": {"b": b}},
         r"no other deployment shares a workload and a level with it.*level 8 of short"),
        ({"study": {"ladders": [replayed]}, "workloads": {"short": trace}}, r"gives lengths, but workloads\.short replays a trace, which has its own"),
    ):  # fmt: skip
        wrong = copy.deepcopy(content)
        for section, more in change.items():
            wrong[section] |= more
        said = refusal(load_config, wrong, source="t")
        assert re.search(pattern, said), (change, said)


# The sweep, and the start of what is said.
SWEEPS = [
    ({"tp": [1, 2]}, ".tp is not a key of a deployment. Did you mean tensor_parallel?"),
    ({"zzz": [1]}, ".zzz is not a key of a deployment. Known here: model, engine, "),
    ({"flags": [{}]}, ".flags: name what is swept of it, such as flags.max-num-batched-tokens: [...]."),
    ({"block_size": []}, ".block_size has no values. Give at least one."),
    ({"block_size": [{"from": 1}]}, ".block_size has the value {'from': 1}, which is neither"),
    ({"block_size": [8, 8]}, ".block_size has the value 8 twice. Remove one."),
    ({"flags.api-key": ["abc"]}, ".flags.api-key holds a secret"),
    ({"max_num_seqs": [None, 256]}, ": one and one-seqs256 are the same server. Remove one of them."),
    ({"kv_cache_memory": ["1GiB", "1024MiB"]}, ": one-kv1gib and one-kv1024mib are the same server. Remove one of them."),
    ([{"flags.a": 1, "flags.b": 2}, {"flags.b": 2, "flags.a": 1}], ": one-a1-b2 and one-b2-a1 are the same server. Remove one"),
    ([{"max_num_seqs": [32, 64]}, {"max_num_seqs": 64}], ": `max_num_seqs: 64` stands twice. Remove one."),
    ([{}, {}], ": `nothing changed` stands twice. Remove one."),
    ({"flags.x": [1, "1"]}, ": `flags.x: 1` stands twice. Remove one."),
    ({"flags.x": ["A", "a"]}, ": `flags.x: A` and `flags.x: a` would both be called one-x-a. Write one of them out as a"),
    ({"model": ["mha", "other"]}, ": the combination one-other has the name of another deployment."),
    ({}, " has no keys."),
    (None, " has no keys."),
    ([], " is []: no combinations."),
    ("x", " is 'x': no combinations."),
    ({"block_size": list(range(1, 40)), "max_num_seqs": list(range(1, 40))}, " has 1,521 combinations, and"),
]


def test_a_wrong_sweep_is_refused_alone_with_its_line(tmp_path):
    file = tmp_path / "study.yaml"
    for sweep, start in SWEEPS:
        content = study(sweep)
        content["deployments"]["one-other"] = STUDY["deployments"]["one"]
        file.write_text(text := yaml.safe_dump(content, sort_keys=False))
        line = next(i for i, row in enumerate(text.splitlines(), start=1) if row.startswith("    sweep:"))
        said = refusal(load_file, file)
        assert said.startswith(f"{file}: line {line}: deployments.one.sweep{start}"), (sweep, said)
        assert "\n" not in said


def test_a_combination_that_cannot_be_is_named_and_what_all_have_is_said_once():
    said = refusal(load_config, study({"tensor_parallel": [1, 2, 3], "max_num_seqs": [32, 64]}, model="mha"), source="t")
    assert said.startswith("t: deployments.one-tp3-seqs32.tensor_parallel is 3: so many devices cannot share 4 query heads")
    assert said.endswith(
        "This is the combination `tensor_parallel: 3, max_num_seqs: 32` of deployments.one.sweep. Likewise: one-tp3-seqs64. "
        "A list of mappings in its place can leave it out."
    )
    for sweep, more, start in (
        ({"max_num_seqs": [32, 64]}, {"blok_size": 4}, "t: deployments.one.blok_size is not a key. Did you mean block_size?"),
        ({"environment.OMP_NUM_THREADS": [1, 2]}, {}, "t: deployments.one-omp-num-threads1.environment.OMP_NUM_THREADS is 1: not a text"),
        ({"max_num_seqs": ["a", "b"]}, {}, "t: deployments.one-seqs-a.max_num_seqs is 'a': not a whole number"),
    ):  # fmt: skip
        assert refusal(load_config, study(sweep, **more), source="t").startswith(start), sweep
    assert len(refusal(load_config, study({"max_num_seqs": [32, 64]}, blok_size=4), source="t").splitlines()) == 1
    said = refusal(load_config, study({"zzz": [1]}), source="t").splitlines()[0]
    assert said.endswith(", served_name, flags.NAME and environment.NAME.")


def test_a_key_that_is_no_text_is_refused_with_the_message_of_any_deployment():
    """YAML has numbers as keys, and reads `on:` as true."""
    for key in (1, True, None):
        content = study({"max_num_seqs": [32, 64]})
        content["deployments"]["one"][key] = "x"
        said = refusal(load_config, content, source="t")
        assert re.search(r"^t: deployments\.one[.[].*: keys should be strings\.$", said), key


def test_a_ladder_or_a_baseline_of_a_sweep_is_told_what_the_file_defines():
    """Ladders are numbered as in the file, and of many combinations the first are named."""
    content = study({"max_num_seqs": [32, 64]})
    content["study"]["ladders"].append({"deployment": "one", "workload": "none", "concurrency": [2]})
    said = refusal(load_config, content, source="t")
    assert said == "t: study.ladders[1].workload is 'none', which workloads does not define. Defined: closed."
    content = study({"max_num_seqs": [32, 64]})
    content["study"]["baseline"] = "one"
    said = refusal(load_config, content, source="t")
    assert said.startswith("t: study.baseline is 'one', which has a sweep, and a baseline is a single server.")
    assert said.endswith("one-seqs32, one-seqs64.")
    content = study({"max_num_seqs": list(range(1, 13))})
    content["deployments"]["two"] = STUDY["deployments"]["one"]
    content["study"]["ladders"][0]["deployment"] = "oen"
    defined = "Defined: one, two, one-seqs1, one-seqs2, one-seqs3, one-seqs4, one-seqs5, one-seqs6 and 6 more."
    said = refusal(load_config, content, source="t")
    assert said == f"t: study.ladders[0].deployment is 'oen', which deployments does not define. {defined}"
    content["study"] |= {"baseline": "oen", "ladders": STUDY["study"]["ladders"]}
    said = refusal(load_config, content, source="t")
    assert said == f"t: study.baseline is 'oen', which deployments does not define. {defined}"

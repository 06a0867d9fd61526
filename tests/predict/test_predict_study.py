"""The models of a study: what they are made of, when they are made again, and where they stand."""

import json
from dataclasses import replace

import polars as pl
import pytest

from bench.errors import BenchError
from bench.findings.predicted import (
    judgement_lines,
    no_model,
    predictions_title,
    shares_text,
)
from bench.findings.registry import load_figure
from bench.predict.calibrate import planned_again
from bench.predict.calibration import Calibration, Doubt
from bench.predict.limits import Given, Limits, limits_of
from bench.predict.predict import predict
from bench.predict.sources import NO_STEPS, measured_runs
from bench.predict.step_time import fit_steps
from bench.predict.study import calibrate_study
from bench.runs.files import read_known, write_record
from bench.runs.summary import read_summary
from bench.study.read import load_workload
from bench.study.slo import parse_slo
from tests.support import records
from tests.support.figures import results
from tests.support.planted import calibrated
from tests.support.predict import LIMITS, TRUE, drawn, planned, run_of, written
from tests.support.snapshots import same

LENGTHS = {
    "prompt_tokens": {"distribution": "uniform", "min": 20, "max": 200},
    "output_tokens": {"distribution": "uniform", "min": 30, "max": 60},
}
BURST = load_workload({"arrival": "burst", **LENGTHS}, source="test")


def workloads(runs):
    chat = {"arrival": "closed", **LENGTHS, "output_tokens": {"distribution": "uniform", "min": 1, "max": 60}}
    return {
        ("a", run.name): load_workload({**chat, "num_requests": run.requests.height}, source="test") if run.held else BURST
        for run in runs
    }


def made(folder, runs, **options):
    """The calibration of a folder, and what it said."""
    said = []
    found = calibrate_study(
        read_summary(folder / "summary.parquet"), folder, workloads(runs), **{"code": "c", **options}, say=said.append
    )
    return found, said


@pytest.mark.long(part="truth")
def test_a_study_s_model_is_fitted_judged_and_asked_for_loads_that_were_not_measured(tmp_path, summary, runs):
    folder = written(tmp_path / "results", summary, runs)
    found, said = made(folder, runs)
    (model,) = found.models
    assert said == ["calibrating a, 1 of 1"]
    assert model.why_not is None
    assert model.parameters["step_s"].low <= TRUE.fixed_s <= model.parameters["step_s"].high * 1.1
    assert {each.fold for each in model.judged} == {"level", "workload"}
    (rate,) = (each for each in model.judged if (each.fold, each.metric) == ("level", "throughput_tokens_per_s"))
    assert rate.error < 0.05
    assert rate.coverage >= 0.75
    assert {load.run for load in model.measured} == {run.name for run in runs}
    levels = {name: [load.level for load in model.predicted if load.workload == name] for name in ("w", "chat")}
    assert (levels["chat"][0], levels["chat"][-1]) == (4, 19)
    assert len(levels["w"]) > 6
    assert all(level % 1 == 0 for each in levels.values() for level in each)
    rates = [
        load.numbers["throughput_tokens_per_s"].value for load in model.predicted if load.workload == "chat" and not load.doubts
    ]
    assert rates == sorted(rates)
    by_run = {load.run: load.numbers for load in model.measured}
    again = next(load for load in model.predicted if load.workload == "chat" and load.level == 4)
    assert again.numbers["throughput_tokens_per_s"].value == pytest.approx(by_run["c4"]["throughput_tokens_per_s"], rel=0.1)
    file = tmp_path / "calibration.json"
    write_record(found, file)
    assert read_known(Calibration, file) == found


def test_a_model_is_made_again_where_what_decides_it_has_changed(tmp_path, summary, runs):
    folder = written(tmp_path / "results", summary, runs)
    table = read_summary(folder / "summary.parquet").with_columns(valid=pl.col("run") != "c16")
    table.write_parquet(folder / "summary.parquet")
    found, _ = made(folder, runs)
    (model,) = found.models
    assert {load.run for load in model.measured} == {"b1", "b8", "b30", "c4"}
    assert [load.workload for load in model.predicted if load.workload == "chat"] == []  # one level is no curve
    assert made(folder, runs, known=found) == (found, [])
    # The models of deployments that are not selected are kept.
    kept, said = made(folder, runs, known=Calibration(models=(replace(model, deployment="b"), *found.models)))
    assert ([model.deployment for model in kept.models], said, kept.models[:1]) == (["a", "b"], [], found.models)

    def made_again(**options):
        class Made(Exception):
            pass

        def say(_):
            raise Made

        try:
            calibrate_study(read_summary(folder / "summary.parquet"), folder, workloads(runs), known=found, say=say, **options)
        except Made:
            return True
        return False

    assert [made_again(code="c"), made_again(code="d")] == [False, True]
    table.with_columns(valid=pl.lit(True)).write_parquet(folder / "summary.parquet")
    assert made_again(code="c")
    table.write_parquet(folder / "summary.parquet")
    file = folder / "runs/a/b8/requests.parquet"
    pl.read_parquet(file).with_columns(pl.col("sent_s") + 1e-3).write_parquet(file)
    assert made_again(code="c")


def why_not(folder, summary, runs, **launched):
    """Why the only deployment of a folder with these runs has no model."""
    return made(written(folder, summary, runs, **launched), runs)[0].models[0].why_not


def test_a_scheduler_whose_limits_are_not_known_is_not_replayed():
    stranger = "not known of its scheduler: "
    speculates = {
        name: ({**launched, "argv": ("serve", "--pooling", "none", *flag)}, "it speculates; only steps that make one token")
        for name, launched, flag in (
            ("draft", {}, ("--speculative-config", '{"method": "ngram", "num_speculative_tokens": 4}')),
            ("method", {}, ("--spec-method=ngram",)),
            ("llama.cpp", {"kind": "llama.cpp"}, ("--spec-type", "ngram-simple")),
        )
    }
    cases = {
        "no cache": (
            {},
            "not known of its scheduler: the size of its KV cache; name for `bench fleet` --set kv_tokens=N",
        ),
        "stages": ({"pipeline_parallel": 2}, "its 2 stages (pipeline_parallel) share the load"),
        "engines": ({"data_parallel": 2}, "its 2 engines (data_parallel) share the load"),
        "running": (  # all at once, not one after the other
            {"argv": None, "max_num_seqs": None},
            f"{stranger}how many requests run at once, the tokens of a step, whether prompts share a prefix cache and the size of its "
            "KV cache; name in its deployment max_num_seqs, flags: max-num-batched-tokens and prefix_caching, or for `bench fleet` "
            "--set max_num_seqs=N, max_num_batched_tokens=N, prefix_caching=true (or false), kv_tokens=N",
        ),
        "slots": ({"max_num_seqs": None}, f"{stranger}how many requests run at once"),
        "a GPU": ({"argv": ("serve",)}, f"{stranger}the tokens of a step and the size of its KV cache"),
        "one cache": (
            {"kind": "llama.cpp", "argv": ("llama-server", "--kv-unified")},
            "its slots share one KV cache (--kv-unified)",
        ),
        **speculates,
    }
    for name, (launched, why) in cases.items():
        launch = records.launch(**{"argv": ("serve", "--max-num-batched-tokens", "512"), "max_num_seqs": 32, **launched})
        with pytest.raises(BenchError) as raised:
            limits_of(launch, records.facts())
        assert str(raised.value).startswith(why), name


def test_the_tokens_of_a_step_come_from_the_flag_else_the_log_else_the_rule_of_a_cpu():
    flag, none = ("serve", "--max-num-batched-tokens", "512"), ("serve",)
    launched = {"max_num_seqs": 32, "device": "cpu", "tensor_parallel": 2, "pipeline_parallel": 1}
    for argv, logged, tokens in ((flag, 4096, 512), (none, 8192, 8192), (none, None, 2 * 2048)):
        found = limits_of(records.launch(**launched, argv=argv), records.facts(step_tokens=logged, kv_blocks=4096))
        assert found.tokens == tokens
    a_gpu = limits_of(records.launch(max_num_seqs=32, argv=none), records.facts(step_tokens=8192, kv_blocks=4096))
    assert a_gpu.tokens == 8192
    for argv in [("taskset 1 llama-server -b 1024 -ub 256",), ("llama-server", "--batch-size=1024", "--ubatch-size", "256")]:
        launch = records.launch(kind="llama.cpp", max_num_seqs=12, device="cpu", argv=argv, slots=True)
        found = limits_of(launch, records.facts())
        assert (found.tokens, found.pass_tokens) == (1024, 256), argv


def test_steps_are_scheduled_ahead_where_vllm_does_so():
    for device, version, flags, ahead in [
        ("cuda", "0.32.0", (), True),
        ("cuda", "0.14.0rc1", (), True),
        ("cuda", "0.13.2", (), False),
        ("cuda", "0.13.2", ("--async-scheduling",), True),
        ("cuda", "0.32.0", ("--async-scheduling", "--no-async-scheduling"), False),
        ("cuda", "0.1.dev1", (), False),
        ("cuda", None, (), False),
        ("cpu", "0.32.0", ("--async-scheduling",), False),
    ]:
        argv = ("serve", "--max-num-batched-tokens", "512", *flags)
        launch = records.launch(argv=argv, max_num_seqs=32, device=device)
        found = limits_of(launch, records.facts(kv_blocks=4096, engine_version=version))
        assert found.ahead == ahead, version


def stated(**keys):
    """The launch of a running server, with what its deployment says of it."""
    return records.launch(argv=None, max_num_seqs=None, configured=keys)


def test_limits_that_are_given_or_stated_are_those_of_one_engine():
    launch, given = records.launch(argv=None, max_num_seqs=None), Given(512, 32, cached=False)
    found = limits_of(launch, records.facts(kv_blocks=4096, block_size=16, engines=1), given)
    assert (found.tokens, found.sequences, found.blocks) == (512, 32, 4096)
    with pytest.raises(BenchError, match="its 2 engines share the load"):
        limits_of(launch, records.facts(kv_blocks=4096, block_size=16, engines=2), given)
    with pytest.raises(BenchError, match="not known of its scheduler: the size of its KV cache"):
        limits_of(launch, records.facts(), given)
    said = {"max_num_seqs": 32, "flag_max_num_batched_tokens": "512", "flag_async_scheduling": "true"}
    reported = records.facts(kind="vllm", kv_blocks=4096, block_size=16, engines=1, prefix_caching=True)
    there = limits_of(stated(**said), reported)
    argv = ("serve", "--max-num-batched-tokens", "512")
    started = limits_of(records.launch(argv=argv, max_num_seqs=32), replace(reported, kind=None))
    assert there == started
    assert limits_of(stated(**said, prefix_caching=False), reported) == replace(started, cached=False)
    assert limits_of(stated(**said), reported, Given(1024, 8)) == started  # what it obeys is known
    with pytest.raises(BenchError, match="not known of its scheduler: whether prompts share a prefix cache"):
        limits_of(stated(**said), replace(reported, prefix_caching=None))
    assert not limits_of(stated(**said | {"flag_async_scheduling": "false"}), reported).ahead
    for lacking in (said.keys() - {"max_num_seqs"}, said.keys() - {"flag_max_num_batched_tokens"}):
        with pytest.raises(BenchError, match="name in its deployment"):
            limits_of(stated(**{key: said[key] for key in lacking}), reported)
    with pytest.raises(BenchError, match="it speculates"):
        limits_of(stated(**said, flag_spec_method="ngram"), reported)


def test_two_levels_with_a_run_each_are_few_and_no_fault(tmp_path, summary):
    """What was left out leaves one run to fit, some draws of which see no step that decodes."""
    for levels, outputs in [((1, 2), (30, 31)), ((1, 8), (1, 2))]:
        lengths = {"prompts": (100, 101), "outputs": outputs}
        chat = {"workload": "chat", "arrival": "closed"}
        few = [run_of(drawn(40, seed=n, **lengths), name=f"c{n}", level=float(n), held=n, **chat) for n in levels]
        (model,) = made(written(tmp_path / str(levels), summary, few), few)[0].models
        assert model.why_not is None or "too few steps" in model.why_not, levels
        numbers = [interval for load in model.predicted for interval in load.numbers.values()]
        assert all(0 < each.low <= each.value <= each.high for each in numbers), levels


def test_turns_are_planned_again_with_the_time_to_think():
    """Of a conversation whose second turn was due 3 s after the first one's end."""
    run = run_of([(0, 20, 30, 0.0), (1, 60, 30, 0.0)])
    ended = float(run.requests["end_s"][0])
    turns = run.requests.with_columns(after=pl.Series([None, 0], dtype=pl.Int64), scheduled_s=pl.Series([0.0, ended + 3.0]))
    first, second = planned_again(replace(run, requests=turns))
    assert (first.after, first.think_s) == ((), 0.0)
    assert (second.after, second.think_s, second.due_s) == ((0,), pytest.approx(3.0), None)


def test_predictions_are_lines_never_among_the_points(summary):
    study = results(summary)
    drawing = load_figure("predicted-loads").draw
    spec = drawing(study).to_dict()
    assert len(spec["concat"]) == 2  # throughput and TTFT
    for panel in spec["concat"]:
        marks = {
            layer["mark"]["type"]: layer["data"]["name"]
            for layer in panel["layer"]
            if layer["mark"]["type"] in ("line", "point")
        }
        line, point = ({row["value"] / row["level"] for row in spec["datasets"][marks[mark]]} for mark in ("line", "point"))
        (scale,) = {round(each, 6) for each in line}
        assert list(point) == pytest.approx([1.05 * scale] * len(point))
    (model, *_) = study.calibration.models
    none = replace(model, predicted=(), doubts=(Doubt("drift", 0.3, 0.2),))
    said = str(drawing(replace(study, calibration=Calibration(models=(none,)))).to_dict())
    assert f"Nothing to show: no load can be predicted; {model.deployment}: the runs differ in speed by 30 %" in said


def test_what_is_said_of_models(summary):
    ttft = parse_slo("ttft_p50=1s")
    found = calibrated(results(summary).runs)
    first = found.models[0]
    refused = replace(first, doubts=(Doubt("drift", 0.3, 0.2), Doubt("longest", 900.0, 300.0)))
    shares = [{"queue": 0.004, "prefill": 0.296, "decode": 0.7}, {}]
    assert predictions_title((), ttft) is None
    same("predictions", [
        predictions_title(found.models, ttft), str(no_model(first)), str(no_model(refused)), *map(" | ".join, judgement_lines(first.judged)), *(shares_text("20 requests in flight", each) for each in shares),
    ])  # fmt: skip


def test_shares_of_time_of_a_predicted_load(model):
    busy = predict(model, lambda _: planned(drawn(60, outputs=(50, 60))), limits=replace(LIMITS, sequences=8), members=3).shares
    assert sum(busy.values()) == pytest.approx(1)
    assert busy["queue"] > 0.3
    alone = predict(model, lambda _: planned([(0, 300, 40, 0.0)]), members=3).shares
    prompt, step = (TRUE.seconds(decodes=0, firsts=1, prefill=300, context=0, attended=300 * 150), TRUE.fixed_s)
    assert alone["prefill"] == pytest.approx(prompt / (prompt + 39 * step), rel=0.15)


def test_classes_or_an_engine_ahead_of_its_clients_are_why_no_run_shows_steps(tmp_path, summary, runs):
    """Runs of classes alike in all but lengths, which drafted tokens or whose requests are gone, are no less left out for that."""
    mixed = {"a": {"share": 0.5, "model": "adapter"}, "b": {"share": 0.5}}
    alike = {name: {"share": 0.5} for name in mixed}
    for name, told in (
        ("mixed", {"classes": json.dumps(mixed), "cache": "unique"}),
        ("alike", {"classes": json.dumps(alike), "cache": "unique", "spec_draft_tokens": 9.0}),
        ("ahead", {"itl_mean_s": 0.024, "server_itl_mean_s": 0.013}),
    ):
        found = why_not(tmp_path / name, summary, [replace(run, row={**run.row, **told}) for run in runs])
        assert found == NO_STEPS, name
    for name, told in (("as fast", {"itl_mean_s": 0.024, "server_itl_mean_s": 0.0235}), ("idle", {"spec_draft_tokens": 0.0})):
        folder = written(tmp_path / name, summary, [replace(run, row={**run.row, **told}) for run in runs])
        assert len(measured_runs(read_summary(folder / "summary.parquet"), folder, "a", LIMITS)) == len(runs), name


def test_what_the_cache_serves_is_known_where_the_server_does_not_report_it(tmp_path, summary):
    """Prompts of 200 tokens that share 150 leave 56 to be computed: whole blocks of 16 are served."""
    limits = Limits(tokens=512, sequences=32, blocks=400, block_size=16, cached=True)
    run = run_of([(i, 200, 20, 0.0) for i in range(3)], limits=limits)
    unknown = replace(run, requests=run.requests.with_columns(cached_tokens=pl.lit(None, dtype=pl.Int64)))
    shared = {"cache": "shared", "shared_prefix": 0.75, "prefix_hit_rate_expected": 0.72, "prefix_hit_rate": 0.72}
    folder = written(tmp_path / "r", {**summary, **shared}, [unknown])
    table = read_summary(folder / "summary.parquet")

    def served(table, limits=limits):
        return [each.requests["cached_tokens"].to_list() for each in measured_runs(table, folder, "a", limits)]

    assert (served(table), served(table, replace(limits, cached=False))) == ([[144] * 3], [[0] * 3])
    assert served(table.with_columns(cache=pl.lit("repeated"))) == [[192] * 3]
    assert served(table.with_columns(prefix_hit_rate=pl.lit(0.3))) == []  # evicted
    trace = table.with_columns(cache=pl.lit("unique"), arrival=pl.lit("trace"))
    assert served(trace) == []  # which blocks its prompts share, no record says
    assert served(trace.with_columns(prefix_hit_rate_expected=pl.lit(0.0))) == [[0] * 3]
    turns = unknown.requests.with_columns(after=pl.Series([None, 0, 1], dtype=pl.Int64), prompt_asked=pl.Series([50, 100, 200]))
    (folder / "runs/a/r/requests.parquet").unlink()
    turns.write_parquet(folder / "runs/a/r/requests.parquet")
    assert served(table.with_columns(cache=pl.lit("unique"))) == [[0, 48, 96]]


def test_few_odd_steps_do_not_decide_the_fit(runs):
    """Relative errors make short times count: a few of a microsecond must not."""
    steps = [run.steps(LIMITS) for run in runs]
    odd = steps[1].head(4).with_columns(took_s=pl.lit(1e-6), decodes=pl.lit(7, pl.Int64), prefill=pl.lit(0, pl.Int64))
    whole, split = fit_steps(steps, draws=2), fit_steps([steps[0], pl.concat([steps[1], odd]), *steps[2:]], draws=2)
    assert split.residual == pytest.approx(whole.residual, rel=0.1)
    assert split.best.fixed_s == pytest.approx(TRUE.fixed_s, rel=0.2)


def test_a_fit_that_does_not_explain_its_server_is_no_model(tmp_path, summary, runs):
    """Of two runs the machine was half as fast."""
    three = [pl.col("sent_s", "first_token_s", "end_s") * 3, pl.col("token_times_s").list.eval(pl.element() * 3)]
    slow = [replace(run, requests=run.requests.with_columns(three)) if run.name in ("b30", "c16") else run for run in runs]
    (model,) = made(written(tmp_path / "r", summary, slow), slow)[0].models
    assert no_model(model).startswith(("the runs differ in speed by", "the engine's steps stray from the fit by"))
    assert model.predicted == model.judged == ()


def test_llama_cpp_is_recognised_by_its_metrics_and_reports_its_slots():
    """Although the configuration's `kind` of a running server is that of a default."""
    reported = records.facts(kind="llama.cpp", kv_blocks=8, block_size=512, engines=1)
    argv = ("llama-server", "--batch-size", "2048", "--ubatch-size", "128")
    started = limits_of(records.launch(kind="llama.cpp", argv=argv, max_num_seqs=8, slots=True), reported)
    there = stated(flag_batch_size="2048", flag_ub="128")
    assert limits_of(there, reported) == replace(started, cached=True)  # its default, which it does not report
    assert limits_of(there, reported, Given(cached=False)) == started
    for off in ({"flag_cache_prompt": "false"}, {"flag_no_cache_prompt": "true"}):
        assert not limits_of(stated(flag_batch_size="2048", **off), reported).cached
    with pytest.raises(BenchError, match="in its deployment flags: batch-size, or"):
        limits_of(stated(), reported)

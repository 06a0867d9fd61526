"""Each question's answer, its certainty and its advice, for evidence made by hand: kept in snapshots (RENEW=1). What the runs show is tested elsewhere."""

import math
from dataclasses import replace

from bench.findings import course, lengths
from bench.findings import levels as alone
from bench.findings import saturation as saturates
from bench.findings import settings as setting_gain
from bench.findings.comparison.compare import Differs
from bench.findings.comparison.effects import Ratio
from bench.findings.factors import decided as factors
from bench.findings.factors.decided import Decided
from bench.findings.lengths import LengthCost, StreamingGain
from bench.findings.settings import Load, SettingGain
from bench.study.slo import Slo
from tests.support import snapshots
from tests.support.words import TURNS, cell


def written(name, answer):
    parts = (("", answer.lines), ("sure: ", answer.sure), ("do: ", answer.do))
    return [f"{name}: {answer.question}", *(f"  {part}{line}" for part, lines in parts for line in lines)]


def test_lengths_and_streaming():
    at = {"deployment": "a", "axis": "concurrency", "level": 1.0, "measured": 16, "runs": 16}
    line = {"slope": 0.5, "slope_half": 0.02, "r_squared": 0.997}
    prompt = LengthCost(workload="prefill", kind="prompt", lengths=(128, 2048), **at, **line)
    output = LengthCost(workload="decode", kind="output", lengths=(32, 512), **at, **{**line, "slope": 10.0})
    gain = StreamingGain("a", "concurrency", 1.0, 1024, 512, 0.35, 5.5, 5.6, 2, 2)
    cases = {
        "both and streaming": ([prompt, output], [gain]),
        "at two loads": ([prompt, replace(prompt, level=16.0), replace(output, level=16.0)], []),
        "not significant": ([prompt, replace(output, slope_half=20.0)], []),
        "too few": ([replace(prompt, lengths=None, slope=None, measured=0)], []),
        "streaming not known": ([], [replace(gain, first_s=None, valid=1)]),
    }  # fmt: skip
    snapshots.same("lengths", [line for name, case in cases.items() for line in written(name, lengths.answer(*case))])


def test_settings_and_devices():
    gain = Ratio(1.5, 1.4, 1.6)
    loads = (
        Load(1.0, Ratio(0.8, 0.7, 0.9), "worse", None, (1,), (1,), 0.42),
        Load(16.0, Ratio(3.5, None, None), "no evidence", None, (1, 2), ()),
    )
    devices = SettingGain("m", "e", "w", "concurrency", "tensor_parallel", (), (1, 2), (1, 2), ("one", "two"), gain, "better",
                          loads, 12, True, True, ())  # fmt: skip
    seqs = replace(devices, setting="max_num_seqs", values=(8, 64), devices=(1, 1), spread_assumed=False, loads=loads[:1])
    ngram = replace(seqs, setting="flag_spec_size_m", values=(None, "8"), beside=("flag_spec_type",), deployments=("plain", "ngram"),
                    differences=(Differs("flag_spec_type", None, "ngram"),))  # fmt: skip
    cases = {
        "devices": [devices],
        "workers": [replace(devices, devices=(1, 4), gpus=False)],
        "without a pair": [replace(devices, pairs=0, whole=None, verdict=None, loads=())],
        "a setting": [seqs],
        "for the worse, and not established": [
            replace(seqs, verdict="worse"),
            replace(seqs, verdict="no evidence", whole=Ratio(1.1, None, None)),
        ],
        "a mode and its parameters": [ngram],
    }
    lines = [line for name, gains in cases.items() for line in written(name, setting_gain.answer(gains))]
    lines += [", ".join(map(str, row.values())) for row in setting_gain.rows([devices, seqs])]
    snapshots.same("settings", lines)


def test_factors():
    row = {"metric": "makespan (s)", "factor": "output length", "importance": 1.0, "low": 0.5, "high": 1.5, "score": 0.9, "n": 24,
           "change": 12.0, "first": "16.0", "last": "512.0"}  # fmt: skip
    others = [
        {**row, "factor": name, "importance": 0.5, "low": low, "change": change, "first": first, "last": last}
        for name, low, change, first, last in (
            ("kv_cache_memory", 0.1, 1.5, str(2.0**30), str(2.0**31)), ("devices", 0.1, 1.01, "1.0", "2.5"), ("engine", 0.1, 1.5, "a", "b"),
            ("model", 0.1, None, None, None), ("dtype", 0.0, 1.5, "a", "b"),
        )
    ]  # fmt: skip
    found = Decided("f", (row, *others, {**row, "metric": "TTFT (s)", "low": 0.0}), 24, 24)
    unknown = replace(found, effects=({**row, "importance": None, "score": -0.2},))
    cases = {
        "known": [found],
        "two families of no model": [unknown, replace(unknown, family="g")],
        "too few, of invalid runs": [replace(found, effects=(), configurations=6)],
        "too few measured": [replace(found, effects=(), configurations=6, measured=6)],
    }
    snapshots.same("factors", [line for name, each in cases.items() for line in written(name, factors.answer(each))])


def test_single_loads_and_steps():
    level = {"deployment": "a", "workload": "w", "axis": "concurrency", "level": 4.0, "work": None, "runs": 1, "valid": 1, "tokens_per_s": 123.0,
             "latencies": [(0.1, True), (math.inf, False)]}  # fmt: skip
    levels = [level, {**level, "runs": 2, "work": "embedding"}, {**level, "tokens_per_s": None, "latencies": [(None, False)] * 2},
              {**level, "valid": 0}, {**level, "valid": 0, "runs": 2}]  # fmt: skip
    shown = [Slo("ttft", "p50", 1.0), Slo("e2e", "p95", 1.0)]
    step = {"deployment": "a", "workload": "w", "axis": "request_rate", "level": 4.0}
    steps = [
        {**step, "valid": valid, "recovered": recovered, "recovery_s": after}
        for valid, recovered, after in ((True, True, 1.7), (True, False, None), (False, None, None))
    ]
    snapshots.same("alone", [*written("one load", alone.answer(levels, shown)), *written("steps", course.answer(steps))])


def test_where_curves_saturate():
    """As many are sent as fit: 16 that fill the cache exactly do not wait; between two levels the prediction decides if it lies there."""
    rows = [{"deployment": f"d{i}", "workload": "w", "axis": "concurrency", "predicted": predicted, "below": below, "measured": measured, "levels_apart": apart,
             "cache_known": i != 1, **cell("saturation", point)}
            for i, (point, predicted, below, measured, apart) in enumerate([
                (TURNS[0], 16.0, 15.0, 16.0, 0), (TURNS[3], None, None, None, None), (TURNS[5], 42.7, 40.0, 50.0, 1), (TURNS[8], 10.0, 12.0, 16.0, None),
                (TURNS[4], 10.0, None, None, None), (TURNS[1], None, None, 8.0, None)])]  # fmt: skip
    answers = (saturates.answer(rows, several_workloads=each) for each in (False, True))
    snapshots.same("saturates", [line for each in answers for line in written("", each)])

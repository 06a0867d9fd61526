"""A tuning's record, and candidates whose rates are known."""

from __future__ import annotations

import math
from dataclasses import replace

from bench.runs.searches import Confirmed, TuningRecord, Visit


def competing(content, **tune):
    content["study"] = {"title": "t"}
    content["deployments"] = {"a": {**content["deployments"]["a"], "sweep": {"max_num_seqs": [64, 32, 128]}}}
    content["workloads"]["w"] = {"arrival": "poisson", "num_requests": "auto", "prompt_tokens": 16, "output_tokens": 4}
    content["decision"] = {"slo": ["ttft_p90=1s"]}
    content["tune"] = {"deployments": "a", "workload": "w", **tune}
    return content


def record(**changed):
    visits = [
        Visit(deployment=name, phase=phase, round=number, middle=math.log(rate), error=0.05, low=rate, high=rate, why=why, runs=6,
              load_s=100.0, began=0.0, seconds=130.0)
        for name, phase, number, rate, why in (
            ("d", "first look", 1, 10.0, "found"),
            ("b", "first look", 2, 13.0, "found"),
            ("c", "first look", 3, 7.0, "lost"),
            ("b", "race", 1, 13.0, "found"),
            ("d", "confirmation", 1, 10.0, "found"),
            ("b", "confirmation", 1, 13.0, "found"),
            ("b", "confirmation", 2, 13.0, "found"),
            ("d", "confirmation", 2, 10.0, "found"),
        )
    ]  # fmt: skip
    whole = TuningRecord(
        digest="x", objective="requests", workload="w", slos=("TTFT P90 ≤ 1 s",), default="d", candidates=("d", "b", "c", "e"),
        settings={name: {"max_num_seqs": 128 if name == "b" else 64} for name in "dbce"}, units={}, visits=tuple(visits), dropped={"c": 3}, untried=("e",), settled=False, leader="b",
        confirmed=Confirmed(pairs=2, gain=1.3, low=1.18, high=1.43, rate=13.0, rate_low=12.1, rate_high=14.0), winner="b", minutes=30, seconds=1040.0,
    )  # fmt: skip
    return replace(whole, **changed)

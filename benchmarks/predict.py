"""How far `bench fleet` is off, and how often its intervals hold, on engines whose truth is planted.

    python -m benchmarks.predict                 # 40 engines; two to three minutes on two cores
    python -m benchmarks.predict --engines 8 --seed 2
    python -m benchmarks.predict --kind slots    # of llama.cpp; ahead: steps are scheduled while those before them run

Each engine has step times, limits and noise of its own (`tests.support.naive_engine`, which shares no code with the replay). A model is
calibrated on bursts of one and of many requests and on two closed loops; then loads are predicted that it has not seen, and measured.
Beside it stands what an M/G/c queue says by the same runs (`benchmarks.queueing`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from tests.support.naive_engine import serve

from bench.predict.calibrate import MeasuredRun, calibrate
from bench.predict.limits import Limits
from bench.predict.predict import predict
from bench.predict.step_time import StepTime
from bench.predict.study import measured, self_judged
from bench.workloads.schedule import PlannedRequest
from benchmarks.harness import Referee, print_table
from benchmarks.queueing import Service

Request = tuple[int, int, int, float]
METRICS = ("throughput_tokens_per_s", "ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "tpot_p90_s", "itl_p99_s")
_AGAIN = 1000  # of a seed: the same load once more


@dataclass(frozen=True)
class Engine:
    """A server's truth.

    Attributes:
        step_noise, run_noise: standard deviations of ln time. prompt, output: usual lengths (tokens). path_s: from the client to the
            queue. wake_s: what a step takes longer that finds the engine idle.
    """

    step: StepTime
    limits: Limits
    step_noise: float
    run_noise: float
    prompt: int
    output: int
    path_s: float
    wake_s: float

    def run(self, requests: Sequence[Request], *, held: int | None, seed: int, workload: str, level: float) -> MeasuredRun:
        """Measure a load."""
        random = np.random.default_rng(seed)
        speed = math.exp(self.run_noise * random.standard_normal())
        table = serve(
            requests,
            lambda **computed: speed * self.step.seconds(**computed),
            tokens=self.limits.tokens,
            sequences=self.limits.sequences,
            blocks=self.limits.blocks,
            block_size=self.limits.block_size,
            held=held,
            random=random,
            noise=self.step_noise,
            path_s=self.path_s,
            wake_s=self.wake_s,
            planned_steps=2 if self.limits.ahead else 1,
            slots=None if self.limits.pass_tokens is None else random.permutation(self.limits.sequences).tolist(),
            pass_tokens=self.limits.pass_tokens or 0,
        )
        arrival = "closed" if held else "poisson" if workload != "burst" else "burst"
        return MeasuredRun(f"{workload}-{level:g}-{seed}", {"arrival": arrival, "level": level, "workload": workload}, table)


def drawn_engine(seed: int, kind: str = "plain") -> Engine:
    """An engine of random speed and size; two in three have KV blocks, the others room for all. Of kind `slots` all have slots."""
    random = np.random.default_rng(seed)
    slope = math.exp(random.uniform(math.log(5e-5), math.log(4e-4)))
    step = StepTime(
        idle_s=0.0,
        fixed_s=random.uniform(0.002, 0.015),
        sequence_s=random.uniform(0.0, 3e-4),
        knots=(float(random.choice([32, 64, 128])),),
        slopes_s=(slope, slope * random.uniform(0.5, 1.2)),
        context_s=random.uniform(0.0, 2e-6),
        attended_s=random.uniform(0.0, 5e-9),
    )
    prompt, output = int(random.integers(60, 400)), int(random.integers(20, 100))
    sequences = int(random.integers(12, 48))
    whole = -(-(prompt + output) // 16)
    blocks = int(sequences * whole * random.uniform(0.5, 1.2)) + 2 * whole if random.random() < 2 / 3 else None
    limits = Limits(int(random.choice([512, 1024, 2048])), sequences, blocks, 16 if blocks else 1)
    noises = random.uniform(0.03, 0.15), random.uniform(0.01, 0.06)
    way = random.uniform(0.0, 0.006), random.uniform(0.0, 0.004)
    if kind == "slots":
        limits = Limits(limits.tokens, sequences, None, pass_tokens=512)
        step = replace(step, pass_s=step.fixed_s * random.uniform(0.1, 1.0))
    return Engine(step, replace(limits, ahead=kind == "ahead"), *noises, prompt, output, *way)


def drawn_requests(engine: Engine, count: int, seed: int, *, rate: float | None = None, longer: float = 1.0) -> list[Request]:
    """Requests of lengths about the engine's usual ones. Args: longer: times as long."""
    random = np.random.default_rng(seed)
    due = np.cumsum(random.exponential(1 / rate, count)) if rate else np.zeros(count)
    spread = random.uniform(0.6, 1.4, (2, count)) * longer
    prompts, outputs = (
        np.maximum(1, usual * each).astype(int) for usual, each in zip((engine.prompt, engine.output), spread, strict=True)
    )
    return [(i, int(prompts[i]), int(outputs[i]), float(due[i])) for i in range(count)]


def planned(requests: Sequence[Request]) -> list[PlannedRequest]:
    """The same for the replay."""
    return [PlannedRequest(i, i, prompt, output, due) for i, prompt, output, due in requests]


def judge(seed: int, engines: str = "plain") -> list[tuple[str, str, float, float, bool, float]]:
    """Predictions for one engine: kind of load, metric, error, the same between two measurements, whether the interval holds, the error
    of a queueing formula; an error of NaN where it was refused.
    """
    engine = drawn_engine(seed, engines)
    many = engine.limits.sequences
    training = [
        engine.run(drawn_requests(engine, size, seed + size), held=None, seed=seed + size, workload="burst", level=size)
        for size in (1, many // 2, 2 * many)
    ]
    for held in (max(2, many // 4), many):
        own = seed + 100 + held
        training.append(engine.run(drawn_requests(engine, 10 * held, own), held=held, seed=own, workload="chat", level=held))
    model = calibrate(training, engine.limits)
    if model is None:
        return []
    model = self_judged(model, training)
    carried = measured(training[-1])["throughput_requests_per_s"]
    queue = Service.of(training, _served_at_once(engine))
    loads: dict[str, tuple[list[Request], int | None]] = {
        "closed": (drawn_requests(engine, 200, seed + 200), max(1, many // 2)),
        "poisson, half of what it sustains": (drawn_requests(engine, 300, seed + 201, rate=0.5 * carried), None),
        "poisson, 85 %": (drawn_requests(engine, 400, seed + 202, rate=0.85 * carried), None),
        "poisson, 120 %": (drawn_requests(engine, 300, seed + 203, rate=1.2 * carried), None),
        "shorter requests": (drawn_requests(engine, 300, seed + 204, rate=0.7 * carried, longer=0.6), None),
        "half of the KV blocks": (drawn_requests(engine, 200, seed + 205), many),
    }
    found = []
    for kind, (requests, held) in loads.items():
        asked, rate = engine, len(requests) / max(due for *_, due in requests) if not held else 0.0
        if kind == "half of the KV blocks":
            if engine.limits.blocks is None:
                continue
            asked = replace(engine, limits=replace(engine.limits, blocks=engine.limits.blocks // 2))
        truth, again = (
            measured(asked.run(requests, held=held, seed=seed + 300 + more, workload=kind, level=float(held or 1)))
            for more in (0, _AGAIN)
        )
        tokens = float(np.mean([output for _, _, output, _ in requests]))
        longer = 0.6 if kind == "shorter requests" else 1.0
        formula = queue if asked is engine else queue.with_slots(_served_at_once(asked))
        by_queue = formula.closed(held, tokens) if held else formula.at_rate(rate, len(requests), tokens, longer=longer)
        plan = planned(requests)
        prediction = predict(model, lambda _, plan=plan: plan, held=held, limits=asked.limits)
        for metric in METRICS:
            if prediction.doubts:
                found.append((kind, metric, math.nan, math.nan, False, math.nan))
                continue
            interval = prediction.numbers[metric]
            errors = [
                abs(value / truth[metric] - 1) for value in (interval.value, again[metric], by_queue.get(metric, math.nan))
            ]
            found.append((kind, metric, *errors[:2], interval.low <= truth[metric] <= interval.high, errors[2]))
    return found


def _served_at_once(engine: Engine) -> float:
    """Requests of the usual lengths that it serves at a time: all its slots, or as many as have room in the KV cache."""
    limits = engine.limits
    if limits.blocks is None:
        return limits.sequences
    return min(limits.sequences, limits.blocks * limits.block_size / (engine.prompt + engine.output / 2))


_OF_EACH_LOAD = ("throughput_tokens_per_s", "ttft_p99_s")  # the surest and the least sure; of others `--json` has each


def main() -> None:
    referee = Referee(__doc__, seed=1, engines=40)
    referee.option("--kind", choices=("plain", "ahead", "slots"), default="plain", help="of engine")
    options = referee.options()
    seeds = [10_000 * options.seed + 17 * number for number in range(options.engines)]
    rows = [row for found in referee.spread(partial(judge, engines=options.kind), seeds) for row in found]
    referee.keep(rows)
    groups: dict[tuple[str, str], list[tuple[float, ...]]] = defaultdict(list)
    for kind, metric, *numbers in rows:
        groups["all", metric].append(tuple(numbers))
        if metric in _OF_EACH_LOAD:
            groups[kind, metric].append(tuple(numbers))
    lines = []
    for (kind, metric), each in groups.items():
        if predicted := [row for row in each if not math.isnan(row[0])]:
            error, floor, held, queue = (float(np.mean([row[i] for row in predicted])) for i in range(4))
            shares = ("–" if math.isnan(share) else f"{100 * share:.1f} %" for share in (error, queue, floor))
            lines.append([kind, metric, *shares, f"{100 * held:.0f} %", len(predicted)])
    heads = ("load", "number", "error", "a queueing formula's", "two measurements", "90 % interval holds", "n")
    print_table(heads, lines, texts=2)
    print(f"\nrefused: {sum(math.isnan(row[2]) for row in rows)} of {len(rows)}")


if __name__ == "__main__":
    main()

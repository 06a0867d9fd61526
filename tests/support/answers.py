"""Made studies with an effect, without one, or with one that nobody can know."""

import math

import numpy as np
import polars as pl

from bench.findings import headline
from bench.findings.answers import answers
from bench.findings.capacity.curves import curves_of
from bench.findings.tables import Tables
from bench.findings.view import View
from bench.parse.table import summary_frame
from bench.study.config import Thresholds
from bench.study.decision import Decision
from tests.support import records

EMPTY = pl.DataFrame(schema={"deployment": pl.String, "run": pl.String})
WRONG = {"host_other_share": 0.9, "scrape_gap_max_s": 99.0}  # no part of a run with them can be trusted


def study(rows, *, decision=None, baseline=None, launches=None):
    """Results of made summary rows. Args: launches: what differs in a deployment's launch, by its name."""
    by_name = {
        row["deployment"]: records.launch(deployment=row["deployment"], **(launches or {}).get(row["deployment"], {}))
        for row in rows
    }
    facts = {name: records.facts(deployment=name, kv_tokens=640, kv_blocks=20) for name in by_name}
    return Tables(summary_frame(rows, by_name, facts, Thresholds(), baseline), EMPTY, None, decision or Decision())


def answered(results):
    """The answers by the names of their questions, and all of their text."""
    found = answers(results, curves_of(results))
    return {each.name: each for each in found}


def screen(results):
    """What the first screen says: its rows by curve, and its notes."""
    view = View(results)
    (*_, notes) = headline.section(view).short
    return {curve.name: vars(curve) for curve in view.judged}, list(notes.lines)


def text(answer):
    return "\n".join((answer.question, *answer.lines, *answer.sure, *answer.do))


def noisy(value, noise, random):
    return value * math.exp(noise * random.standard_normal())


def length_rows(summary, *, prompt_ms=0.5, noise=0.01, wrong=()):
    random = np.random.default_rng(1)
    rows = []
    for i in range(1, 17):
        prompt, output = 128 * i, 32 * i
        ttft = noisy(20 + prompt_ms * prompt, noise, random) / 1000
        e2e = noisy(50 + 10 * output, noise, random) / 1000
        common = {**summary, "axis": "concurrency", "level": 1.0, "concurrency": 1, "deployment": "a"}
        sweeps = (
            {
                "workload": f"prefill-p{prompt}",
                "family": "prefill",
                "prompt_fixed": prompt,
                "output_fixed": 1,
                "ttft_p50_s": ttft,
            },
            {"workload": f"decode-o{output}", "family": "decode", "prompt_fixed": 32, "output_fixed": output, "e2e_p50_s": e2e},
        )
        rows += [{**common, "run": each["workload"], **each, **(WRONG if i in wrong else {})} for each in sweeps]
    return rows


def streamed_rows(summary, *, wrong=()):
    common = {**summary, "axis": "concurrency", "level": 1.0, "concurrency": 1, "deployment": "a"}
    common |= {"prompt_fixed": 1024, "output_fixed": 512, "e2e_p50_s": 5.6}
    kinds = (("streamed", True, 0.35), ("whole", False, None))
    return [
        {**common, "workload": name, "family": name, "run": name, "stream": stream, "ttft_p50_s": ttft, **(WRONG if name in wrong else {})}
        for name, stream, ttft in kinds
    ]  # fmt: skip


def named(runs):
    """The made runs of a factor study under the names of deployments."""
    return runs.with_columns(deployment=pl.format("{}-{}", "model", "tensor_parallel"))


TWO = {"one": {"tensor_parallel": 1}, "two": {"tensor_parallel": 2}}


def rows_of(summary, throughput, *, levels=(1, 2, 4, 8, 16), axis="concurrency", noise=0.001, full=None, wrong=()):
    """Args: throughput: of each deployment, by the level. full: from where on the first one's KV cache is. wrong: (deployment, level)."""
    random = np.random.default_rng(5)
    return [
        {**summary, "deployment": name, "workload": "w", "family": "w", "run": f"w_{level}_{session}", "axis": axis, "level": float(level),
         "session": session, "repeat": session, "preemptions": 0, "kv_usage_peak": 1.0 if i == 0 and full and level >= full else 0.5,
         "throughput_tokens_per_s": noisy(at(level), noise, random), **(WRONG if (name, level) in wrong else {})}
        for session in range(1, 5) for level in levels for i, (name, at) in enumerate(throughput.items())
    ]  # fmt: skip


STEADY = {1: [10.0, 10.1], 2: [20.0, 20.2], 4: [40.0, 40.4], 8: [80.0, 80.8]}

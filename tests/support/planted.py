"""Summary rows, tables of requests and a server with planted numbers, whose capacity and limit are known."""

import numpy as np
import polars as pl

from bench.parse.latency import latency_columns
from bench.parse.run import summarise
from bench.parse.scrapes import TELEMETRY_SCHEMA
from bench.parse.slo import goodput, judged_requests
from bench.parse.table import summary_frame
from bench.predict.calibration import METRICS, Calibration, Interval, Judgement, MeasuredLoad, ModelRecord, PredictedLoad
from bench.runs.columns import COLUMNS
from bench.runs.request_table import REQUEST_SCHEMA
from bench.runs.searches import SearchRecord
from bench.runs.summary import complete
from bench.study.config import Thresholds
from tests.support import records

PARAMETERS = ("step_s", "request_s", "prompt_s", "context_s", "idle_s", "pass_s")  # of a model


def summary_rows(rows):
    """Summary rows by hand, as a frame takes them: the columns that they leave out are null, as in a table that was read."""
    return complete(pl.DataFrame(rows, infer_schema_length=None))


def summary_row(**told):
    """One of them, as a mapping."""
    return {**dict.fromkeys(COLUMNS), **told}


def evenly(count, marked):
    """Which of `count` requests are marked, evenly apart: neighbours are no more alike than others."""
    return [(i + 1) * marked // count > i * marked // count for i in range(count)]


def answers(count=400, *, slow=0, failed=0, ttft=0.1, tpot=0.01, e2e=0.5):
    """Requests as a summary's column `judged` has them. `slow` and `failed` count requests; times are in s, one for all or a list."""
    late, lost = evenly(count, slow), evenly(count, failed)[::-1]
    each = {name: value if isinstance(value, list) else [value] * count for name, value in (("ttft", ttft), ("tpot", tpot), ("e2e", e2e))}  # fmt: skip
    return [
        {"ok": not lost[i], **{name: values[i] for name, values in each.items()}, **({"ttft": 9.0} if late[i] else {})}
        for i in range(count)
    ]


def steady_row(summary, level, *, requests=400, slow=0, failed=0, ttft=0.1, tpot=0.01, e2e=0.5, rps=None, **more):
    """A closed loop in steady state: `requests` are judged, `rps` (2 × level by default) are carried."""
    rps = 2.0 * level if rps is None else rps
    judged = answers(requests, slow=slow, failed=failed, ttft=ttft, tpot=tpot, e2e=e2e)
    return {
        **summary,
        "arrival": "closed",
        "level": float(level),
        "concurrency": int(level),
        "run": f"r{level:g}",
        "requests": requests,
        "ok": requests - failed,
        "failed": failed,
        "in_flight_peak": int(level),
        "throughput_requests_per_s": rps,
        "judged": judged,
        "steady": True,
        "steady_why": None,
        "steady_from_s": 5.0,
        "steady_until_s": 65.0,
        "steady_judged_until_s": 60.0,
        "steady_requests": requests,
        "steady_failed": failed,
        "steady_offered_rate": rps,
        "steady_requests_per_s": rps,
        "steady_tokens_per_s": 32 * rps,
        "steady_error": 0.01,
        "steady_in_flight": float(level),
        **{f"steady_ttft_{name}_s": ttft if isinstance(ttft, float) else None for name in ("p50", "p99")},
        "steady_e2e_mean_s": e2e if isinstance(e2e, float) else None,
        **more,
    }


def rate_row(summary, level, *, growth=0.0, growth_error=0.005, **more):
    """An open loop of `level` requests/s, all of which are carried unless `rps` says otherwise."""
    loop = {"axis": "request_rate", "arrival": "poisson", "concurrency": None, "request_rate": float(level)}
    grows = {"steady_growth": growth, "steady_growth_error": growth_error}
    return steady_row(summary, level, **{"rps": float(level), **loop, **grows, **more})


def short_row(row, needs_s):
    """The row as of a window that was too short, whose load should last `needs_s`."""
    return {**row, "steady": False, "steady_why": "short", "steady_needs_s": needs_s}


def frame(rows, *, kv_tokens=None, kv_blocks=None, slots=None, of_cache=None):
    """The rows as a summary table. Args: slots: `max_num_seqs`. of_cache: whether each is a slot of the KV cache, as on llama.cpp."""
    launch = records.launch(max_num_seqs=slots, slots=of_cache)
    names = {row["deployment"] for row in rows}
    facts = records.facts(kv_tokens=kv_tokens, kv_blocks=kv_blocks)
    return summary_frame(rows, dict.fromkeys(names, launch), dict.fromkeys(names, facts), Thresholds())


def served_row(summary, level, *, base_ms=10.0, each_ms=0.1, prompt_ms=1.0, room=None, output=32, **more):
    """A closed loop on a server whose steps take `base_ms` + `each_ms` a request, and whose prompts take `prompt_ms` of the engine each.

    Args:
        room: requests that it admits at once; the others wait.
    """
    running = min(level, room or level)
    step, rps = (base_ms + each_ms * running) / 1000, 0.0
    prompt = prompt_ms / 1000
    for _ in range(200):  # the rate decides how much of the engine's time prompts take, and this the rate
        gap = step / (1 - min(0.95, rps * prompt * (running - 1) / running))
        service = prompt + output * gap
        rps = (rps + running / service) / 2
    wait = (level - running) / rps
    ttft = wait + prompt / (1 - min(0.95, rps * prompt * (running - 1) / running)) + step
    gauges = {
        "steady_running": float(running),
        "steady_running_high": float(running),
        "steady_waiting": float(level - running),
        "steady_queued_share": float(level > running),
        "steady_kv_usage": 0.5,
        "steady_kv_usage_queued": 0.5 if level > running else None,
        "waiting_standing": float(level - running),
        "running_peak": float(running),
    }
    planted = {"ttft": ttft, "tpot": gap, "e2e": wait + service, "rps": rps, "output_tokens": output}
    return steady_row(summary, level, **{**planted, **gauges, **more})


def reasons(verdict):
    """The checks that a run did not pass."""
    return [reason.check for reason in verdict.found]


def poisson(rate, count, seed):
    """Moments (s) of `count` arrivals."""
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))


def queue(arrivals, service_s, *, tokens=16):
    """When each token of each request comes from a server that answers one after another: requests × tokens (s)."""
    end, moments = 0.0, []
    for arrival, service in zip(arrivals, np.broadcast_to(service_s, len(arrivals)), strict=True):
        begin = max(end, arrival)
        end = begin + service
        moments.append(np.linspace(begin, end, tokens + 1)[1:])
    return np.array(moments)


def table(sent, times, *, failed=(), stream=True):
    """The tidy table of requests. Args: times: requests × tokens (s). failed: indices of requests that got a 503 after 10 ms."""
    rows = []
    for i, (at, tokens) in enumerate(zip(sent, times, strict=True)):
        whole = {"headers_s": float(tokens[-1]), "first_token_s": None, "first_output_s": None, "ttft_s": None}
        nothing = dict.fromkeys(
            ("first_token_s", "first_output_s", "last_token_s", "ttft_s", "e2e_s", "prompt_tokens", "completion_tokens")
        )
        lost = {"outcome": "http_error", "status": 503, "headers_s": at + 0.01, "end_s": at + 0.01, "token_times_s": []}
        told = {**nothing, **lost} if i in failed else {} if stream else {**whole, "token_times_s": [float(tokens[-1])]}
        rows.append(vars(records.answered([float(each) for each in tokens], index=i, sent_s=float(at), prompt=8, **told)))
    return latency_columns(pl.LazyFrame(rows, schema=REQUEST_SCHEMA)).collect()


def parsed(requests, *, rate=None, level=None, slos=(), arrival="poisson", run="r", telemetry=None, **definition):
    """The summary of a run whose table of requests is given, with its goodput. Args: telemetry: None: nothing was scraped."""
    axis = "concurrency" if rate is None else "request_rate"
    asked = {"deployment": "a", "run": run, "workload": "w", "arrival": arrival, "prompt_tokens": 8, "output_tokens": 16,
             "num_requests": len(requests), "axis": axis, "level": float(level if rate is None else rate), "repeat": 1, "seed": 0}  # fmt: skip
    record = records.run(definition={**asked, **definition})
    samples = pl.DataFrame(schema=TELEMETRY_SCHEMA) if telemetry is None else telemetry
    summary = summarise(record, requests, samples, samples["elapsed_s"].unique().sort().to_list())
    return {**summary, **goodput(summary, judged_requests(summary, requests), slos)}


def calibrated(runs):
    """A model of each deployment of a summary table, whose predictions are the levels themselves, 10 % about them; measured is 5 % more."""

    def predicted(level, **place):
        numbers = dict.fromkeys(METRICS, Interval(level, 0.9 * level, 1.1 * level))
        return PredictedLoad(**place, level=level, numbers=numbers, doubts=(), shares={"queue": 0.25, "decode": 0.75})

    def model(name, rows):
        known = {
            "digest": "d",
            "parameters": dict.fromkeys(PARAMETERS, Interval(0.002, 0.001, 0.003)),
        }
        return ModelRecord(
            deployment=name, **known,
            judged=tuple(Judgement("level", metric, 0.04, 0.9, len(rows), len(rows) + 1) for metric in METRICS),
            predicted=tuple(predicted(**{key: row[key] for key in ("workload", "axis", "level")}) for row in rows),
            measured=tuple(MeasuredLoad(**row, numbers=dict.fromkeys(METRICS, 1.05 * row["level"])) for row in rows),
        )  # fmt: skip

    parts = runs.select("deployment", "run", "workload", "axis", "level").partition_by(
        "deployment", as_dict=True, include_key=False
    )
    return Calibration(models=tuple(model(name, part.to_dicts()) for (name,), part in parts.items()))


def searched(**changed):
    """What a search found."""
    of = {
        "name": "w_auto",
        "workload": "short",
        "digest": "d",
        "axis": "concurrency",
        "slos": ("TTFT P99 ≤ 1 s",),
        "precision": 0.2,
    }
    return SearchRecord(**{**of, "why": "found", "limit": 3, "low": 2, "high": 3, "seconds": 60, "runs": (), **changed})

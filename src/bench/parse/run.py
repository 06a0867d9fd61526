"""One run's raw records, as tidy tables and one summary."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import polars as pl

from bench.parse.devices import device_figures, device_samples
from bench.parse.drift import place_of_run
from bench.parse.fleet import FLEET, fleet_telemetry, worker_rows
from bench.parse.latency import by_chunk, by_turn, latency_columns
from bench.parse.load import asked_figures, load_figures
from bench.parse.scrapes import SCRAPE_SCHEMA, TELEMETRY_SCHEMA, scrape_tables, wide_table
from bench.parse.server import (
    FEWEST_SCRAPES,
    counted_bounds,
    counted_tokens,
    server_figures,
    speculation_figures,
)
from bench.parse.steady import (
    SteadyWindow,
    in_steady_state,
    is_natural,
    rates_between,
    request_share,
    steady_figures,
    whole_requests,
)
from bench.parse.stream import gaps_between_tokens, stream_figures, supported
from bench.runs.environment import environment_text
from bench.runs.latencies import LATENCIES, class_column
from bench.runs.request import KEPT, RequestForm
from bench.runs.request_table import request_table
from bench.runs.run import REQUESTS, TELEMETRY, RunRecord, read_run
from bench.runs.summary import RunSummary, write_run_summary
from bench.statistics.percentiles import percentile, upper_bound
from bench.workloads.endpoints import ENDPOINTS, Endpoint

PEAK_WINDOW_S = 1.0  # window of the highest throughput (s); convention
_SHARES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}  # percentiles as shares; derived


def parse_run(folder: Path, *, requests: Path, telemetry: Path, wide: Path, summary: Path) -> dict[str, Any]:
    """Parse the run in `folder` into `requests` and `telemetry` (Parquet), `wide` (CSV) and `summary` (JSON).

    Returns:
        The summary.

    Raises:
        BenchError: a file is missing, or differs from what was measured.
    """
    record = read_run(folder)
    sent = request_table(folder / REQUESTS).lazy()
    # Prompts of a file, and answers that end by themselves, have the lengths that the server counts.
    counted = [pl.coalesce("prompt_asked", "prompt_tokens")]
    if is_natural(record.definition):
        counted.append(pl.coalesce("output_asked", "completion_tokens"))
    table = latency_columns(sent.with_columns(counted)).collect()
    raw = folder / TELEMETRY
    scraped = raw.name in record.files
    if scraped:
        scrapes, samples = scrape_tables(raw, record.clock_start_s)
    else:
        scrapes, samples = pl.DataFrame(schema=SCRAPE_SCHEMA), pl.DataFrame(schema=TELEMETRY_SCHEMA)
    engine = record.scrape_endpoint
    times = {  # by endpoint, when its successful scrapes arrived (s since the start)
        str(endpoint): tried.filter(pl.col("error").is_null())["received_s"].to_list()
        for (endpoint,), tried in scrapes.group_by("endpoint", maintain_order=True)
    }
    mine = times.pop(engine, []) if engine else []
    if record.workers and scraped:
        engine = FLEET
        together, mine = fleet_telemetry(samples, scrapes, record.workers)
        samples = pl.concat([samples, together])
    content = summarise(record, table, samples.filter(pl.col("endpoint") == (engine or "")), mine)
    endpoint = _endpoint(record)
    table = supported(table, reasons=endpoint.reasons)
    if record.definition.get("keep_answers"):
        content["kept_answers"] = table.filter(pl.col("outcome") == "ok").select(KEPT).to_dicts()
    else:
        table = table.drop(KEPT)
    content["by_turn"] = by_turn(table)
    if not record.definition.get("classes"):
        table = table.drop("request_class")
    window = _load_window(table)
    tokens = counted_tokens(table.filter(pl.col("outcome") == "ok"), endpoint.work)
    content |= device_figures(device_samples(samples), window, tokens)
    content["scrape_endpoint"] = engine
    content["scrape_error"] = _most_often(scrapes.filter(pl.col("endpoint") == (record.scrape_endpoint or ""))["error"])
    if times:
        begin, end = window
        content["scrape_gaps"] = {name: _longest_gap(at, begin, end) for name, at in times.items()}
    if engine == FLEET:
        content["workers"] = worker_rows(samples, content.get("scrape_gaps", {}), record.workers, window)
        lacking = [f"{metric} at {row['worker']}" for row in content["workers"] for metric in row["metrics_missing"]]
        if lacking or any(worker.role for worker in record.workers):  # whose fleet has no queue, though each shows one
            content["metrics_missing"] = lacking
    for path in (requests, telemetry, wide, summary):
        path.parent.mkdir(parents=True, exist_ok=True)
    table.write_parquet(requests)
    samples.write_parquet(telemetry)
    (wide_table(samples) if len(samples) else pl.DataFrame({"elapsed_s": []})).write_csv(wide)
    write_run_summary(RunSummary.of(content), summary)
    return content


def _endpoint(record: RunRecord) -> Endpoint:
    return ENDPOINTS[record.definition.get("endpoint", "completions")]


def summarise(record: RunRecord, requests: pl.DataFrame, telemetry: pl.DataFrame, scrapes: list[float]) -> dict[str, Any]:
    """One run's numbers: what was asked, what came, how long it took, what the server reported, how the client kept up.

    Args:
        requests: the tidy table. telemetry: the samples of the engine's endpoint. scrapes: arrival of each
            scrape of it (s since the start).
    """
    endpoint = _endpoint(record)
    reasons, work = endpoint.reasons, endpoint.work
    streams = stream_figures(requests.filter(pl.col("outcome") == "ok"), reasons=reasons)
    requests = supported(requests, reasons=reasons)
    ok = requests.filter(pl.col("outcome") == "ok")
    begin, end = window = _load_window(requests)
    span = end - begin or None
    tokens = counted_tokens(ok, work)
    # Tokens of a whole answer all come with its last byte: they have no rate over time; nor have those of a tool that keeps no stamps.
    streamed = not ok.filter(pl.col("first_token_s").is_not_null() & (pl.col("token_times_s").list.len() > 0)).is_empty()
    content: dict[str, Any] = {
        **asked_figures(record.definition, requests),
        **({"num_requests": record.stopped.planned} if record.stopped else {}),
        "stopped_at_s": record.stopped.at_s if record.stopped else None,
        "digest": record.digest,
        "commit": record.commit,
        "environment": environment_text(record.environment),
        "started": record.started,
        **place_of_run(record),
        "requests": len(requests),
        "ok": len(ok),
        "failed": len(requests) - len(ok),
        **_failures(requests),
        "failure_said": _most_often(requests.filter(pl.col("outcome") != "ok")["error"]),
        **_lengths(record.form, ok, endpoint, natural=is_natural(record.definition)),
        "duration_s": span,
        "throughput_tokens_per_s": tokens / span if span and tokens is not None else None,
        "throughput_requests_per_s": len(ok) / span if span else None,
        "throughput_peak_tokens_per_s": _peak(ok, span) if streamed and tokens is not None else None,
        "drain_s": record.drain_s,
        **{f"client_{key}": value for key, value in vars(record.client).items()},
        **{f"host_{key}": value for key, value in vars(record.host).items()},
    }
    content |= streams
    one_each = gaps_between_tokens(content)
    content |= _latencies(ok, one_each)
    # From the moment at which it was due: what a client that sends late, or waits for answers, would leave out.
    content |= _distribution("ttft_due", ok["first_token_s"] - ok["scheduled_s"], bounds=True)
    steady, figures = steady_figures(record.definition, requests, telemetry, stopped=record.stopped is not None)
    judged = ok.filter(in_steady_state(steady)) if steady else ok.clear()
    content |= figures | {f"steady_{key}": value for key, value in _latencies(judged, one_each).items()}
    content |= _classes(record, requests, steady, span, one_each=one_each)
    content |= server_figures(telemetry, scraped=bool(scrapes), version=record.engine_version)
    content |= counted_bounds(requests, telemetry)
    content |= speculation_figures(telemetry)
    within = telemetry.filter(pl.col("elapsed_s").is_between(steady.begin_s, steady.end_s)) if steady else telemetry.clear()
    content |= {f"steady_{key}": value for key, value in speculation_figures(within).items()}
    content |= load_figures(record, requests, telemetry, content, window)
    to_scrape = record.scrape_endpoint or record.workers
    content |= _scrape_figures(scrapes, record.scrape_interval_s if to_scrape else None, begin, end)
    return content


def _classes(
    record: RunRecord, requests: pl.DataFrame, steady: SteadyWindow | None, span: float | None, *, one_each: bool
) -> dict[str, Any]:
    """Requests, lengths, throughput and latencies of each class, of the whole run and of its steady window.

    Args:
        requests: the tidy table, with `request_class`. span: of the load (s). one_each: as of `_latencies`.
    """
    work, share = _endpoint(record).work, request_share(record.definition, requests)
    content: dict[str, Any] = {}
    for name in record.definition.get("classes") or {}:
        mine = requests.filter(pl.col("request_class") == name)
        ok = mine.filter(pl.col("outcome") == "ok")
        tokens = counted_tokens(ok, work)
        judged = mine.filter(in_steady_state(steady)) if steady else mine.clear()
        answered = judged.filter(pl.col("outcome") == "ok")
        figures = {
            "requests": len(mine),
            "failed": len(mine) - len(ok),
            "prompt_tokens": mine["prompt_asked"].mean(),
            "output_tokens": whole_requests(record.definition, mine)["output_asked"].mean(),
            "throughput_requests_per_s": len(ok) / span if span else None,
            "throughput_tokens_per_s": tokens / span if span and tokens is not None else None,
            **_latencies(ok, one_each),
            "steady_requests": len(judged),
            "steady_failed": len(judged) - len(answered),
            **(rates_between(ok, steady.begin_s, steady.end_s, share, work) if steady else {}),
            **{f"steady_{key}": value for key, value in _latencies(answered, one_each).items()},
        }
        content |= {class_column(name, key): value for key, value in figures.items()}
    return content


def _latencies(ok: pl.DataFrame, one_each: bool) -> dict[str, Any]:
    """The distributions of each latency, and of ITL, of requests that were answered.

    Args:
        one_each: whether a gap between chunks is one between tokens; else there is no ITL.
    """
    content: dict[str, Any] = {}
    for name in LATENCIES:
        content |= _distribution(name, ok[f"{name}_s"], bounds=True)
    gaps = ok.select(pl.col("token_times_s").list.diff(null_behavior="drop").explode())["token_times_s"].drop_nulls()
    # A step of the server gives every running request a token, so gaps come in equal groups: they are not independent samples.
    gaps = gaps if one_each else gaps.clear()
    return content | _distribution("itl", gaps, bounds=False)


def _failures(requests: pl.DataFrame) -> dict[str, int]:
    """How many requests failed by each outcome: `outcome_http_503` and the like for a status other than 200, `outcome_unreachable`
    for a connection that never stood.
    """
    unsent = pl.col("sent_s").is_null() & pl.col("outcome").is_in(["disconnect", "timeout"])
    answered = pl.when(pl.col("outcome") == "http_error").then(pl.format("http_{}", pl.col("status").fill_null(0)))
    kind = answered.when(unsent).then(pl.lit("unreachable")).otherwise("outcome")
    failed = requests.filter(pl.col("outcome") != "ok").select(kind=kind)["kind"]
    return {f"outcome_{name}": count for name, count in failed.value_counts().sort("kind").iter_rows()}


def _most_often(said: pl.Series) -> str | None:
    counts = said.drop_nulls().value_counts().sort("count", said.name, descending=[True, False])
    return counts[said.name][0] if len(counts) else None


def _lengths(form: RequestForm, ok: pl.DataFrame, endpoint: Endpoint, *, natural: bool) -> dict[str, Any]:
    """Whether answered requests had the lengths that were asked for, by the server's counts, and in what form they were sent.

    Without `ignore_eos` an answer may end early, and is as it should be; one that is no tokens has no length.

    Args:
        natural: whether answers end by themselves.
    """
    work = endpoint.work
    short = pl.lit(value=False) if form.sends("ignore_eos") else pl.col("completion_tokens") < pl.col("output_asked")
    wrong = ok.select(
        prompt=pl.col("prompt_tokens").ne_missing(pl.col("prompt_asked")),
        output=pl.col("completion_tokens").ne_missing(pl.col("output_asked")) & ~short.fill_null(value=False) & work.generates,
        short=short,
        silent=pl.col("completion_tokens").is_null() & work.generates,
        uncounted=pl.col("prompt_tokens").is_null() | (pl.col("completion_tokens").is_null() & work.generates),
    )
    return {
        "wrong_prompt_tokens": int(wrong["prompt"].sum()),
        "wrong_output_tokens": int(wrong["output"].sum()),
        "asked_prompt_tokens": ok["prompt_asked"].mean(),
        "asked_output_tokens": None if natural else ok["output_asked"].mean(),
        "counted_prompt_tokens": ok["prompt_tokens"].mean(),
        "counted_output_tokens": ok["completion_tokens"].mean() if work.generates else None,
        "cut_answers": ok.filter(pl.col("finish_reason") == "length").height if natural else None,
        "uncounted_answers": int(wrong["uncounted"].sum()),
        "uncounted_outputs": int(wrong["silent"].sum()),
        "reasoning_tokens": None if ok["reasoning_tokens"].null_count() else ok["reasoning_tokens"].mean(),
        "short_answers": int(wrong["short"].sum() or 0),
        "requests_omit": ", ".join(form.omitted) or None,
        "template_tokens": form.template_tokens,
        "sdk_differs": form.sdk_differs,
    }


def _distribution(name: str, values: pl.Series, *, bounds: bool) -> dict[str, Any]:
    """Number, mean and percentiles of `values` (s), each percentile with its upper bound (null where n carries none) if `bounds`."""
    known = values.drop_nulls().sort()
    content: dict[str, Any] = {f"{name}_n": len(known), f"{name}_mean_s": known.mean()}
    for label, share in _SHARES.items():
        content[f"{name}_{label}_s"] = percentile(known, share)
        if bounds:
            content[f"{name}_{label}_bound_s"] = upper_bound(known, share)
    return content


def _peak(ok: pl.DataFrame, span: float | None) -> float | None:
    """Most output tokens in any window of one second; the mean, where the run is shorter than the window.

    Args:
        ok: answered requests, each with its count of tokens. span: of the load (s).
    """
    if not span or ok.is_empty():
        return None
    if span <= PEAK_WINDOW_S:
        return float(ok["completion_tokens"].sum()) / span
    chunks = by_chunk(ok, tokens=pl.col("completion_tokens")).sort("token_times_s")
    times, total = chunks["token_times_s"], chunks["tokens"].cum_sum().rename("total")
    before = times.search_sorted(times - PEAK_WINDOW_S, side="right")
    earlier = pl.concat([pl.Series("total", [0.0]), total])[before]
    return float((total - earlier).max()) / PEAK_WINDOW_S  # type: ignore[arg-type]


def _load_window(requests: pl.DataFrame) -> tuple[float, float]:
    """When the first request was sent and when the last token came (s since the start); 0 and 0 where nothing was, or did."""
    begin, end = requests["sent_s"].min(), requests["last_token_s"].max()
    return (float(begin), float(end)) if begin is not None and end is not None else (0.0, 0.0)  # type: ignore[arg-type]


def _scrape_figures(scrapes: list[float], interval_s: float | None, begin: float, end: float) -> dict[str, Any]:
    """How well the engine's metrics were scraped during the load; nulls where they were not to be.

    Args:
        scrapes: arrival of each scrape that succeeded (s). begin, end: of the load (s).
    """
    due = (end - begin) // interval_s if interval_s else 0
    whole = interval_s is not None and end > begin
    return {
        "scrapes": len(scrapes),
        "scraped": None if interval_s is None else bool(scrapes),
        "scraped_before": scrapes[0] <= begin if scrapes and whole else None,
        "scraped_after": scrapes[-1] >= end if scrapes and whole else None,
        "scrape_share": sum(begin <= t <= end for t in scrapes) / due if due >= FEWEST_SCRAPES else None,
        "scrape_gap_max_s": _longest_gap(scrapes, begin, end),
    }


def _longest_gap(scrapes: list[float], begin: float, end: float) -> float | None:
    """Longest time without a scrape that touches the load, whose beginning and end bound it if there was no scrape (s)."""
    if not scrapes:
        return None
    gaps = [b - a for a, b in itertools.pairwise(scrapes) if b > begin and a < end]
    gaps += [scrapes[0] - begin, end - scrapes[-1]]
    return round(max(0.0, *gaps), 4)

"""`bench parse`: one run's folder becomes tables and a summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bench.cli.entry import command
from bench.cli.options import Json, ThresholdValues, thresholds_of
from bench.cli.output import print_json
from bench.errors import count_text


@command("bench parse runs/one", "bench parse runs/one --json")
def parse(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of a run, from `bench workload` or a study.")],
    threshold: ThresholdValues = None,
    json: Json = False,
) -> None:
    """Reads run.json, requests.jsonl and, if present, telemetry.jsonl.gz. Writes requests.parquet, telemetry.parquet, metrics.csv
    (elapsed seconds, then a column a series) and summary.json beside them.
    """
    from bench.findings.streams import stream_notes
    from bench.findings.trust import accept_option, others_alone
    from bench.parse.run import parse_run
    from bench.parse.table import verdict_columns
    from bench.parse.validity import failures, hits, reason_text, retries, stopped, verdict

    thresholds = thresholds_of(threshold)
    summary = parse_run(
        folder,
        requests=folder / "requests.parquet",
        telemetry=folder / "telemetry.parquet",
        wide=folder / "metrics.csv",
        summary=folder / "summary.json",
    )
    judged = verdict(summary, thresholds)
    if json:
        print_json({**summary, **verdict_columns(judged)})
        return
    print(f"{folder}: {count_text(summary['ok'], 'request', of=summary['requests'])} ok")
    valid = "invalid" if not judged.valid else "valid" if summary["ok"] else "none: no request was answered"
    counts = "not taken" if summary.get("scraped") is None else "valid" if judged.counts_valid else "invalid"
    facts = {
        "prefix cache": hits(summary),
        "failed": failures(summary) if judged.failed else None,
        "sent again": retries(summary),
        "ended early": stopped(summary),
    }
    for head, text in (
        *_numbers(summary),
        *((head, text) for head, text in facts.items() if text),
        *_classes(summary),
        *(("note", text) for text in stream_notes(summary)),
        ("latency, throughput", valid),
        ("the server's counts", counts),
    ):
        print(f"  {head:<20} {text}")
    for reason in judged.found:
        print(f"    {reason.part}: {reason_text(reason)}")
    others = summary["host_other_share"] if others_alone(reason.code for reason in judged.found) else None
    if allowed := accept_option(others, thresholds.other_share):
        print(allowed)


def _numbers(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each number that is known, by what it is called."""
    from bench.statistics.percentiles import tail_text
    from bench.workloads.endpoints.kind import WORKS

    bound, reasons = summary["ttft_p99_bound_s"], bool(summary["reasoning_tokens"])
    estimate = f" (an estimate: n = {summary['ttft_n']} is too few for a 99 % bound)" if bound is None else ""
    for key, unit, head in (
        ("throughput_tokens_per_s", "tokens/s", f"{WORKS[summary['work']].unit.split()[0]} throughput"),
        ("ttft_p50_s", "s", "TTFT P50"),
        ("ttft_p99_s", f"s{estimate}", "TTFT P99"),
        *((("ttfo_p50_s", "s", "TTFO P50"), ("ttfo_p99_s", "s", "TTFO P99")) if reasons else ()),
        *((("reasoning_tokens", "tokens in the mean", "reasoning"),) if reasons else ()),
        ("tpot_p50_s", "s", "TPOT P50"),
        ("e2e_p50_s", "s", "E2E P50"),
        ("kv_usage_peak", "", "peak KV-cache usage"),
        ("acceptance_rate", "", "acceptance of drafts"),
        ("accepted_length", "tokens", "accepted length"),
    ):
        value = summary.get(key)
        if value is not None:
            yield head, f"{tail_text(value, bound) if key == 'ttft_p99_s' else f'{value:.4g}'} {unit}"
        elif key == "kv_usage_peak" and summary["server_generation_tokens"]:
            yield head, "not known"
    prompts, answers = (summary[key] for key in ("prompt_tokens", "output_tokens"))
    if summary["prompts"] != "random" and prompts is not None:
        yield "prompts", f"{prompts:.4g} tokens in the mean, as the server counts them"
    if summary["answers"] == "natural":
        length = "" if answers is None else f"{answers:.4g} tokens in the mean; "
        yield "answers", f"{length}{summary['cut_answers']} of {summary['ok']} cut at the limit"


def _classes(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    from bench.runs.latencies import class_column, class_names
    from bench.statistics.percentiles import tail_text

    columns = ("requests", "ttft_p50_s", "ttft_p99_s", "ttft_p99_bound_s")
    for name in class_names(summary["classes"]):
        requests, p50, p99, bound = (summary[class_column(name, column)] for column in columns)
        times = "" if p50 is None else f", TTFT P50 {p50:.4g} s, P99 {tail_text(p99, bound)} s"
        yield name, count_text(requests, "request") + times

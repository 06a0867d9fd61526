"""`bench runs` and `bench discard`: what a study consists of, and what of it is to be measured again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypedDict

from bench.cli.output import print_json, print_table
from bench.cli.study import load_plan
from bench.errors import BenchError
from bench.shipped import BENCH
from bench.store import Store, run_states
from bench.study import Paths, Plan, RunSpec
from bench.study.precision import auto_lines, prompt_lines, thin_levels
from bench.study.searches import SearchSpec, search_records
from bench.words.searches import search_ended, search_limit, search_sentence

__all__ = ["forget_runs", "list_runs"]


class Verdict(TypedDict):
    """What the summary table says of a run: parts at fault, why, requests that failed and that it ended early (None if not)."""

    faults: list[str]
    reasons: list[str]
    failures: str | None
    stopped: str | None


def list_runs(configfile: Path | None, select: str | None, *, json: bool) -> None:
    _, plan = load_plan(configfile, select, json=json)
    judged = _judged()
    rejected = {digest for digest, verdict in judged.items() if verdict["faults"]}
    states = run_states(plan, Store(), rejected)
    if json:
        unknown: Verdict = {"faults": [], "reasons": [], "failures": None, "stopped": None}
        print_json(
            [
                {
                    **run.definition,
                    **asdict(plan.place_of(run)),
                    "digest": run.digest,
                    "state": state,
                    **judged.get(run.digest, unknown),
                }
                for run, state in states
            ]
        )
        return
    rows = []
    for run, state in states:
        verdict = judged.get(run.digest) if state in ("measured", "invalid") else None
        rows.append([state, run.key, _why(verdict) if verdict else ""])
    rows += [[state, search.key, text] for search, state, text in _searched(plan)]
    print_table(rows, "<<<", head=False)
    counts = Counter(state for _, state in states)
    print(f"{len(states)} runs: " + ", ".join(f"{count} {state}" for state, count in counts.items()) if states else "0 runs")
    if unjudged := _unjudged(states, judged):
        print(f"Note: {unjudged}")
    for line in (*prompt_lines(plan), *auto_lines(plan), *thin_levels(plan.listed, plan.config.decision.slos)):
        print(f"Note: {line}")


def _searched(plan: Plan) -> list[tuple[SearchSpec, str, str]]:
    """Each search with its state and its answers."""
    found = []
    for search in plan.searches:
        answers = search_records(search)
        found_text = search_limit if len(answers) == 1 else search_sentence
        text = [f"{found_text(answer)}; {search_ended(answer)}" for answer in answers]
        found += [(search, "measured", each) for each in text] or [(search, "missing", "")]
    return found


def _why(verdict: Verdict) -> str:
    """The parts at fault with the reasons, the requests that failed, and that it ended early; empty where there is nothing to say."""
    faults = [f"{', '.join(verdict['faults'])}: {'; '.join(verdict['reasons'])}"] if verdict["faults"] else []
    return "  ".join((*faults, *filter(None, (verdict["failures"], verdict["stopped"]))))


def _judged() -> dict[str, Verdict]:
    """The verdict on each run, by digest, from the last aggregate; none where there was none, or an older version wrote it."""
    path = Path(Paths.SUMMARY)
    if not path.exists():
        return {}
    import polars as pl  # noqa: PLC0415 - a list of runs must not cost half a second

    from bench.words.verdicts import failures, reason_texts, stopped  # noqa: PLC0415 - likewise

    columns, further = ["faults", "reasons"], ["stopped_at_s", "num_requests", "failure_said"]
    try:
        table = pl.scan_parquet(path)
        known = table.collect_schema().names()
        if not {*columns, "failed", "requests"} <= set(known):
            return {}
        counts = [name for name in known if name in further or name.startswith("outcome_")]
        rows = table.select("digest", *columns, "failed", "requests", *counts).collect().to_dicts()
    except pl.exceptions.PolarsError as error:
        raise BenchError(
            f"{path}: damaged ({str(error).splitlines()[0]}). Remove it and {Paths.MANIFEST}; the study's command makes both again."
        ) from None
    return {
        row["digest"]: {
            "faults": row["faults"],
            "reasons": reason_texts(row["reasons"]),
            "failures": failures(row),
            "stopped": stopped(row),
        }
        for row in rows
    }


def _unjudged(states: Sequence[tuple[RunSpec, str]], judged: Mapping[str, Verdict]) -> str:
    """That measured runs have no verdict here, and what gives them one; empty where all have."""
    count = sum(state in ("measured", "invalid") and run.digest not in judged for run, state in states)
    return (
        f"{count} of the measured runs {'has' if count == 1 else 'have'} no verdict: {Paths.SUMMARY} is of another study, or is "
        "not there. The command that measured this study judges them, and measures none of them again."
        if count
        else ""
    )


def forget_runs(
    configfile: Path | None, select: str | None, patterns: Sequence[str], *, invalid: bool, dry_run: bool, json: bool
) -> None:
    if not patterns and not invalid:
        raise BenchError("name the runs to forget: a pattern, such as '*_c0020_*', or --invalid.")
    _, plan = load_plan(configfile, select, json=json)
    judged = _judged() if invalid else {}
    rejected = {digest for digest, verdict in judged.items() if verdict["faults"]}
    wanted = [
        run
        for run in plan.runs
        if run.digest in rejected
        or any(fnmatchcase(run.key, pattern) or fnmatchcase(run.name, pattern) for pattern in patterns)
    ]
    if invalid and (unjudged := _unjudged(run_states(plan, Store(), rejected), judged)):
        raise BenchError(unjudged)
    if not wanted and invalid and not patterns:
        if json:
            print_json([])
        else:
            print("No measured run of this study is invalid: nothing to forget.")
        return
    if not wanted:
        what = " or ".join([*patterns, *(["invalid"] if invalid else [])])
        raise BenchError(f"no run matches {what}; `{BENCH} runs` lists them.")
    store = Store()
    if not dry_run:
        for run in wanted:
            store.discard(run)
    if json:
        print_json([run.key for run in wanted])
        return
    for run in wanted:
        print(("would forget " if dry_run else "forgot ") + run.key)

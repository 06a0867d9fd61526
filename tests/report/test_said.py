"""What a study's outputs say is what its tables have, over planted studies of all kinds; and a fault that is put in is found."""

import re
import shutil
from collections import Counter

import polars as pl
import pytest
from benchmarks.said.check import KINDS, check
from benchmarks.said.studies import KINDS as STUDIES
from benchmarks.said.studies import make

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
DRAWN = {"workloads", "open"}  # whose figures are drawn too: they take most of the time


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The results of a study of each kind."""
    found = {}
    for number, kind in enumerate(STUDIES):
        found[kind] = tmp_path_factory.mktemp("said")
        make(number, 1, found[kind], figures=kind in DRAWN)
    return found


@pytest.fixture(scope="module")
def checked(folders):
    return {kind: check(folder) for kind, folder in folders.items()}


def test_outputs_say_what_the_tables_have(checked):
    assert [f"{kind}: {finding}" for kind, found in checked.items() for finding in found.findings] == []


def test_claims_of_every_kind_are_recognised(checked):
    """So that no rewriting of a sentence hides it from the checker."""
    claims = sum((found.claims for found in checked.values()), Counter())
    assert [kind for kind in KINDS if not claims[kind]] == []


# A fault to be found: its kind, the study and the file in which it is planted, what is replaced, and by what.
FAULTS = (
    ("missed", "both", "report.md", r"(It misses TTFT P90 ≤ )[\d.]+ ms", r"\g<1>9000 ms"),
    ("missed", "overloaded", "report.*", r"miss", "mark"),
    ("met", "both", "report.md", r"(sustains [\d.]+ requests/s(?: \([^)]*\))? at )[\d.]+", r"\g<1>20"),
    ("met", "both", "report.md", r"\| (\d+ ms) \|", r"| **\1** |"),
    ("met", "both", "report.md", r"\| \*\*(\d+ ms)\*\* \|", r"| \1 |"),
    ("met", "workloads", "report.md", r"(requests? of alpha · short \()\d+", r"\g<1>1"),
    ("interval", "both", "report.md", r"\([\d.]+ to [\d.]+ at 95", "(0.1 to 0.2 at 95"),
    ("interval", "both", "report.md", r"( requests/s(?: at [\d.]+ requests in flight)? \([\d.]+ to )[\d.]+ at 95", r"\g<1>900 at 95"),
    ("interval", "both", "report.md", r"(at least )\d+, below \d+", r"\g<1>1, below 2"),
    ("one value", "both", "report.md", r"sustains [\d.]+ requests/s", "sustains 19.9 requests/s"),
    ("one value", "both", "report.html", r"(data-value=\"[\d.]+\">)(\d{3})<", r"\g<1>1\2<"),
    ("one value", "open", "figures/latency-throughput.json", r"(\"throughput_tokens_per_s\": )(\d)", r"\g<1>1\2"),
    ("one value", "open", "figures/slo-margin.json", r"(\"seconds\": 0\.)", r"\g<1>1"),
    ("no more", "relieved", "report.md", r"(Replayed with [^,]*), [^;]*", r"\1, no more"),
    ("no more", "relieved", "report.md", r"(alpha: sustains [\d.]+ requests/s(?: \([^)]*\))? at )8( requests in flight)", r"\g<1>2\2; up to 8 meet the SLOs too, but sustain no more"),
    ("agree", "open", "report.html", r"KV cache before queue", "KV cache and queue cannot be told apart"),
    ("best", "overloaded", "report.md", r"[\d.]+( requests(?:/s| in flight)), the lowest", r"777\1, the lowest"),
    ("flat", "searched", "report.md", r"stops growing at \d+( in flight)? \(\d+", r"stops growing at 2\1 (1"),
    ("full", "searched", "report.md", r"full at \d+ in flight, and not at \d+", "full at 2 in flight, and not at 1"),
    ("named", "workloads", "report.html", r"alpha · chat: sustains", "alpha: sustains"),
    ("unit", "searched", "report.html", r" requests in flight", ""),
    ("beyond", "searched", "report.md", r"At \d+ requests in flight", "At 99 requests in flight"),
    ("cause", "both", "report.md", r"the KV cache (?:is full|admits no more)[^.]*\.(?:\d[^.]*\.)?", "prompts take too long to compute."),
    ("cause", "both", "report.md", r"(alpha · chat: )sustains", r"\1no answer has a TTFT, as answers are not streamed. Sustains"),
    ("model", "workloads", "report.md", r"\A", "No model of alpha: its steps stray. Where the time goes, by the calibrated model: in the queue.\n"),
    ("count", "both", "report.md", r"takes \d+ instances", "takes 99 instances"),
    ("count", "both", "report.md", r"\(\d+ instances, times", "(97 instances, times"),
    ("count", "both", "report.md", r"All \d+ runs", "All 3 runs"),
    ("ticks", "open", "figures/*.json", r'"values": \[[^\]]*\]', '"values": [777]'),
)  # fmt: skip


@pytest.mark.parametrize(("kind", "study", "files", "pattern", "replacement"), FAULTS)
def test_a_fault_is_found(folders, checked, tmp_path, kind, study, files, pattern, replacement):
    folder = shutil.copytree(folders[study], tmp_path / "results", ignore=shutil.ignore_patterns("runs"))
    replaced = 0
    for path in folder.glob(files):
        text, count = re.subn(pattern, replacement, path.read_text())
        path.write_text(text)
        replaced += count
    assert replaced
    assert kind in {each.kind for each in set(check(folder).findings) - set(checked[study].findings)}


@pytest.mark.parametrize(("table", "column", "kind"), [
    ("capacity", "usable_low", "one value"), ("capacity", "c_max", "one value"), ("saturation", "measured", "one value"),
    ("regions", "saturation_at", "one value"), ("saturation", "queue", "agree"),
])  # fmt: skip
def test_a_table_that_differs_is_found(folders, checked, tmp_path, table, column, kind):
    study = "searched" if kind == "one value" else next(name for name, found in checked.items() if found.claims["agree"])
    folder = shutil.copytree(folders[study], tmp_path / "results", ignore=shutil.ignore_patterns("runs"))
    path = folder / "analysis" / f"{table}.parquet"
    changed = pl.read_parquet(path).with_columns(pl.col(column) * 3 + 0.5)
    changed.with_columns(queue_below=pl.col("queue") - 1 if "queue" in changed.columns else None).write_parquet(path)
    assert kind in {each.kind for each in set(check(folder).findings) - set(checked[study].findings)}

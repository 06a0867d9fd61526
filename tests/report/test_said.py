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
FEW = ("searched", "overloaded")  # of the quick suite
DRAWN = {"workloads", "open"}  # whose figures are drawn too: they take most of the time


class Studies:
    """Planted studies, each made and checked when it is first asked for."""

    def __init__(self, folder):
        self.folder, self.checked = folder, {}

    def __getitem__(self, kind):
        """Its folder, and what is found in it."""
        folder = self.folder / kind.replace(" ", "-")
        if kind not in self.checked:
            folder.mkdir()
            make(list(STUDIES).index(kind), 1, folder, figures=kind in DRAWN)
            self.checked[kind] = check(folder)
        return folder, self.checked[kind]

    def changed(self, kind, place):
        """A copy of a study to spoil, and what is found in the copy alone."""
        folder, before = self[kind]
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder, place, ignore=shutil.ignore_patterns("runs"))
        return place, lambda: {each.kind for each in set(check(place).findings) - set(before.findings)}


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    return Studies(tmp_path_factory.mktemp("said"))


@pytest.mark.long(part="outputs")
@pytest.mark.timeout(600)
def test_outputs_say_what_the_tables_have_and_claims_of_every_kind_are_recognised(studies):
    """So that no rewriting of a sentence hides it from the checker."""
    found = {kind: studies[kind][1] for kind in STUDIES}
    assert [f"{kind}: {finding}" for kind, each in found.items() for finding in each.findings] == []
    claims = sum((each.claims for each in found.values()), Counter())
    assert [kind for kind in KINDS if not claims[kind]] == []


@pytest.mark.long(part="outputs")
@pytest.mark.timeout(600)
def test_studies_in_which_something_was_once_found(tmp_path):
    """A window in which some requests failed; conversations whose loads have windows or not."""
    for number, seed in ((12, 167853), (22, 612704)):
        make(number, seed, tmp_path / str(seed))
        assert check(tmp_path / str(seed)).findings == []


# A fault to be found: its kind, the study and the file in which it is planted, what is replaced, and by what.
FAULTS = (
    ("missed", "both", "report.md", r"(in flight: TTFT P90 ≤ )[\d.]+ ms", r"\g<1>9000 ms"),
    ("missed", "overloaded", "[rt]e[pr]*", r"miss|not sustained", "mark"),
    ("met", "both", "report.md", r"(\*\* requests/s \([^)]*\) at )[\d.]+", r"\g<1>20"),
    ("met", "both", "report.md", r"\| ([\d.]+ ms) \|", r"| **\1** |"),
    ("met", "both", "report.md", r"\| \*\*([\d.]+ ms)\*\* \|", r"| \1 |"),
    ("met", "workloads", "report.md", r"(a burst of \d+\*\* requests? \|[^|]*\| at )\d+", r"\g<1>1"),
    ("interval", "both", "report.md", r"\([\d.]+ to [\d.]+\) at", "(0.1 to 0.2) at"),
    ("interval", "both", "report.md", r"( requests/s \([\d.]+ to )[\d.]+", r"\g<1>900"),
    ("one value", "both", "report.md", r"[\d.]+ to [\d.]+ (requests/s|requests in flight), most", r"1 to 2 \g<1>, most"),
    ("one value", "both", "report.md", r"\*\*(?:about )?[\d.]+\*\* requests/s", "**19.9** requests/s"),
    ("one value", "both", "report.html", r"(data-value=\"[\d.]+\">)(\d{3})<", r"\g<1>1\2<"),
    ("one value", "open", "figures/latency-throughput.json", r"(\"throughput_tokens_per_s\": ?)(\d)", r"\g<1>1\2"),
    ("one value", "open", "figures/slo-margin.json", r"(\"ttft_p90_of_limit\": ?0\.)", r"\g<1>1"),
    ("one value", "open", "figures/ttft.json", r"(\"ttft_p50_ms\": ?)", r"\g<1>1"),
    ("one value", "open", "figures/kv-saturation.json", r"(\"kv_usage_peak\": ?)0", r"\g<1>7"),
    ("no more", "relieved", "report.md", r"(replayed with [^,]*), [^;|]*", r"\1, no more"),
    ("no more", "relieved", "report.md", r"(\| alpha \| [^|]* at )8( requests in flight)", r"\g<1>2\2; hardly more up to 8 requests in flight"),
    ("best", "overloaded", "report.md", r"[\d.]+( requests(?:/s| in flight)), the lowest", r"777\1, the lowest"),
    ("flat", "free", "report.md", r"stops growing at (?:about )?[\d.]+( in flight)? \(\d+", r"stops growing at 2\1 (1"),
    ("full", "searched", "report.html", r"\d+ \(not yet at \d+\)", "2 (not yet at 1)"),
    ("named", "workloads", "report.html", r"alpha · chat sustains", "alpha sustains"),
    ("unit", "searched", "report.html", r" requests in flight", ""),
    ("beyond", "searched", "report.md", r"at \d+ requests in flight", "at 99 requests in flight"),
    ("cause", "both", "report.md", r"the KV cache is full[^|]*\|", "prompts take too long to compute |"),
    ("cause", "both", "report.md", r"(\| alpha · chat \| )", r"\1no answer has a TTFT, as answers are not streamed. "),
    ("model", "workloads", "report.md", r"\A", "No model of alpha: its steps stray. Where the time goes, by the calibrated model: in the queue.\n"),
    ("count", "both", "report.md", r"takes \d+ instances", "takes 99 instances"),
    ("count", "both", "report.md", r"\(\d+ instances, times", "(97 instances, times"),
    ("count", "both", "report.md", r"All \d+ runs", "All 3 runs"),
    ("ticks", "open", "figures/*.json", r'"values": ?\[[^\]]*\]', '"values": [777]'),
)  # fmt: skip


# A table that is changed, its column, the study and the kind of contradiction.
TABLES = (
    ("capacity", "usable_low", "searched", "one value"), ("capacity", "operate_at", "searched", "one value"),
    ("saturation", "measured", "searched", "one value"), ("saturation", "saturation_at", "free", "one value"),
)  # fmt: skip


def find_faults(studies, place, faults):
    for kind, study, files, pattern, replacement in faults:
        folder, found = studies.changed(study, place)
        replaced = 0
        for path in folder.glob(files):
            text, count = re.subn(pattern, replacement, path.read_text())
            path.write_text(text)
            replaced += count
        assert replaced, pattern
        assert kind in found(), pattern


def find_tables(studies, place, tables):
    for table, column, study, kind in tables:
        folder, found = studies.changed(study, place)
        path = folder / "analysis" / f"{table}.parquet"
        pl.read_parquet(path).with_columns(pl.col(column) * 3 + 0.5).write_parquet(path)
        assert kind in found(), (table, column)


@pytest.mark.long(part="outputs")
@pytest.mark.timeout(600)
def test_every_fault_is_found(studies, tmp_path):
    find_faults(studies, tmp_path / "results", FAULTS)
    find_tables(studies, tmp_path / "results", TABLES)


@pytest.fixture(scope="module")
def few(studies):
    return {kind: studies[kind][1] for kind in FEW}


def test_two_studies_say_what_their_tables_have(few):
    assert [f"{kind}: {finding}" for kind, found in few.items() for finding in found.findings] == []
    claims = sum((found.claims for found in few.values()), Counter())
    assert {"missed", "interval", "one value", "met", "count", "best", "full"} <= {kind for kind in KINDS if claims[kind]}


@pytest.mark.usefixtures("few")
def test_faults_in_them_are_found(studies, tmp_path):
    """One of each kind in their reports, and in a table."""
    own = {fault[0]: fault for fault in reversed(FAULTS) if fault[1] in FEW}
    assert own.keys() == {"missed", "best", "full", "unit", "beyond"}
    find_faults(studies, tmp_path / "results", own.values())
    find_tables(studies, tmp_path / "results", TABLES[1:2])


@pytest.mark.long(part="outputs")
@pytest.mark.timeout(600)
def test_a_run_whose_latencies_alone_are_invalid_counts_in_the_figure_of_the_cache(studies, tmp_path):
    folder, _ = studies.changed("open", tmp_path / "results")
    runs = pl.read_parquet(folder / "summary.parquet")
    fullest = pl.col("kv_usage_peak") > pl.col("kv_usage_peak").min().over("level")
    assert runs.filter(fullest).height
    runs.with_columns(valid=~fullest).write_parquet(folder / "summary.parquet")
    assert "figure kv-saturation" not in {each.where for each in check(folder).findings}

"""The tables of an analysis: what is written is read again, and nobody who has them works anything out."""

import json
from dataclasses import asdict, fields, replace
from types import SimpleNamespace

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from bench.errors import BenchError
from bench.findings import analysis as stage
from bench.findings.analysis import Analysis, read_analysis, write_analysis
from bench.findings.causes import RULES, Bottleneck
from bench.findings.tables import Tables
from bench.runs.columns import ANALYSIS, schema_of
from bench.runs.paths import TABLES
from bench.study.decision import Decision
from tests.support.answers import EMPTY, TWO, length_rows, named, rows_of
from tests.support.answers import study as of_rows
from tests.support.crossed import planted as crossed
from tests.support.figures import results
from tests.support.planted import rate_row
from tests.support.words import CAUSE


@pytest.fixture
def compared(summary):
    rows = rows_of(summary, {"one": lambda x: 10.0 * min(x, 8), "two": lambda x: 18.0 * min(x, 8)}, full=8, wrong=[("one", 4)])
    kept = [{"answer": "a", "request_digest": "q", "prompt_place": None, "prompt_digest": None}]
    failing = [
        {**row, "kept_answers": kept, "failed": 1 if row["deployment"] == "two" and row["level"] == 16 else 0} for row in rows
    ]
    return of_rows(failing, launches=TWO, baseline="one", decision=Decision(slo=["ttft_p99=1s"]))


def test_what_is_written_is_read_again(tmp_path, compared):
    found = Analysis(compared.runs, compared.decision)
    write_analysis(found, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*TABLES, "causes.parquet", "findings.json"])
    for name in ANALYSIS.keys() - {"grades"}:  # of which tests/beside/test_grading.py knows
        assert pl.read_parquet_schema(tmp_path / f"{name}.parquet") == schema_of(name), name
    read = read_analysis(tmp_path)
    for name in ("capacity", "saturation"):
        assert_frame_equal(getattr(found, name), getattr(read, name))
        assert found.capacity.height
    assert found.causes == read.causes
    assert found.findings == read.findings
    assert found.comparisons.keys() == read.comparisons.keys() == {"two"}
    ours, theirs = found.comparisons["two"], read.comparisons["two"]
    for field in (field.name for field in fields(ours) if field.name != "pairs"):
        one, other = getattr(ours, field), getattr(theirs, field)
        if isinstance(one, pl.DataFrame):
            assert one.height
            assert_frame_equal(one, other)
        else:
            assert one == other, field


def test_every_evidence_is_a_row_and_back(tmp_path):
    for numbers in ({}, CAUSE):
        for evidence in (None, *RULES):
            gains = {"gains": CAUSE["gains"]} if evidence == "relieved" else {}
            causes = {("a", "w"): Bottleneck(evidence=evidence, runs=("one", "two"), **{**numbers, **gains})}
            write_analysis(SimpleNamespace(causes=causes), tmp_path, ["causes"])
            assert read_analysis(tmp_path).causes == causes, (numbers, evidence)


def read_again(study, kind, folder):
    write_analysis(study.analysis, folder / kind)
    read = read_analysis(folder / kind).findings
    stored, made = (json.loads(json.dumps(asdict(each))) for each in (read, study.analysis.findings))
    assert stored == made, kind  # a fleet's pairs are lists where they were read
    assert getattr(read, kind), kind


def test_findings_are_read_again(tmp_path, compared):
    read_again(compared, "settings", tmp_path)


@pytest.mark.long(part="outputs")
def test_findings_of_every_kind_are_read_again(tmp_path, summary):
    read_again(of_rows(length_rows(summary)), "lengths", tmp_path)
    read_again(Tables(named(crossed(1, 0.05)), EMPTY), "factors", tmp_path)


def test_figures_and_report_take_what_was_read(summary, monkeypatch):
    study = results(summary)
    known = replace(study, analysed=study.analysis)

    def refuse(*_):
        raise AssertionError("analysed again")

    monkeypatch.setattr(stage, "Analysis", refuse)
    for part in (known, *known.by_axis(), known.given(["slo"])):
        assert part.points.height
        assert part.saturation.height
        assert part.comparisons.keys() == {"b"}
    alone = replace(known, runs=known.runs.filter(deployment="a"), whole=known.runs)
    assert set(alone.points["deployment"]) == set(alone.saturation["deployment"]) == {"a"}


def test_without_slos_the_loads_that_last_have_a_capacity(summary):
    open_loop = of_rows([rate_row(summary, level) for level in (1, 2)])
    assert open_loop.analysis.capacity.select("axis", "slos").rows() == [("request_rate", [])]
    assert open_loop.points.is_empty()
    assert results(summary, levels=(1, 4)).analysis.capacity.height == 2
    closed = replace(results(summary, levels=(1, 4)), decision=Decision())
    assert closed.analysis.capacity.is_empty()


def test_a_table_of_another_version_is_refused(tmp_path, compared):
    write_analysis(Analysis(compared.runs, compared.decision), tmp_path)
    pl.read_parquet(tmp_path / "saturation.parquet").drop("noise").write_parquet(tmp_path / "saturation.parquet")
    with pytest.raises(BenchError, match=r"saturation\.parquet: another version wrote it, with other columns \(noise\)"):
        _ = read_analysis(tmp_path).saturation
    (tmp_path / "capacity.parquet").unlink()
    with pytest.raises(BenchError, match=r"capacity\.parquet: not a table"):
        _ = read_analysis(tmp_path).capacity

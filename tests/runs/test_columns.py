"""The catalogue of the summary's columns, and tables that have them all, whoever wrote them."""

import polars as pl
import pytest

from bench.errors import BenchError
from bench.findings.tables import Tables
from bench.parse.table import summary_frame
from bench.runs.columns import ANALYSIS, COLUMNS, METRICS, SECTIONS, columns_of, with_tables
from bench.runs.summary import read_summary, summary_table
from bench.study.config import Thresholds
from tests.support.planted import steady_row
from tests.support.study import ROOT

OLD = {"deployment": "a", "workload": "w", "axis": "concurrency", "level": 1, "repeat": 1, "seed": 7, "valid": True,
       "counts_valid": True, "telemetry_valid": True, "failed_share": 0.0, "tensor_parallel": 2}  # fmt: skip


def test_a_name_in_braces_stands_for_several_and_each_may_have_a_steady_twin():
    assert {f"{start}e2e_{p}_bound_s" for start in ("", "steady_") for p in ("p50", "p90", "p95", "p99")} <= COLUMNS.keys()
    assert COLUMNS["ttft_p99_s"].steady == "steady_ttft_p99_s"
    assert COLUMNS["throughput_tokens_per_s"].steady == "steady_tokens_per_s"
    twin = COLUMNS["steady_ttft_p99_s"]
    assert (twin.unit, twin.better, twin.title, twin.steady) == ("s", "lower", None, None)
    assert all(column.steady in COLUMNS for column in COLUMNS.values() if column.steady)


def test_units_agree_with_names_and_what_is_compared_has_a_direction():
    seconds = {name for name in COLUMNS if name.endswith("_s") and not name.endswith("_per_s")}
    assert {column.unit for name, column in COLUMNS.items() if name in seconds} == {"s"}
    assert {column.unit for name, column in COLUMNS.items() if name.endswith(("_share", "_rate_expected"))} == {"0–1"}
    assert all(column.better for column in METRICS.values())
    assert METRICS["tokens_per_joule"].higher_is_better
    assert not METRICS["ttft_p50_s"].higher_is_better


def test_the_pages_of_the_docs_have_a_table_of_each_section():
    text = (ROOT / "docs/reference/metrics.md").read_text()
    whole = with_tables(text)
    assert "<!-- columns" not in whole
    assert all(f"| `{name}`" in whole for section in SECTIONS.values() for name in section.rows)
    assert "| `c_max` |" in with_tables((ROOT / "docs/reference/analysis.md").read_text(), ANALYSIS)
    with pytest.raises(ValueError, match=r"^the sections of the catalogue are run, "):
        with_tables(text.replace("<!-- columns: slo -->", ""))


def test_every_summary_has_every_column_in_one_order_and_typed(summary):
    bare, full = (summary_frame(rows, {}, {}, Thresholds()) for rows in ([summary], [steady_row(summary, 4), summary]))
    assert bare.schema == full.schema == {name: column.dtype for name, column in COLUMNS.items()}
    assert set(bare.select(columns_of("devices")).row(0)) == {None}


def test_what_is_no_column_is_refused_with_the_place_to_add_it(summary):
    with pytest.raises(BenchError, match=r"^watts, volts: not a column .* to src/bench/runs/columns\.toml\."):
        summary_frame([{**summary, "watts": 1, "volts": 2}], {}, {}, Thresholds())
    with pytest.raises(BenchError, match=r"^failed is 1\.5, but must be a whole number"):
        summary_table([{"failed": 1.5}])
    assert summary_table([{"failed": 1.0}])["failed"].to_list() == [1]


def test_a_table_that_lacks_columns_is_read_with_all(tmp_path):
    pl.DataFrame([OLD]).write_parquet(tmp_path / "summary.parquet")
    read = read_summary(tmp_path / "summary.parquet")
    assert read.schema == {name: column.dtype for name, column in COLUMNS.items()}
    assert read.select("level", "seed", "ttft_p50_s").row(0) == (1.0, "7", None)
    pl.DataFrame({"elapsed_s": [0.0]}).write_parquet(tmp_path / "timeseries.parquet")
    assert Tables.read(tmp_path / "summary.parquet", tmp_path / "timeseries.parquet").runs.equals(read)

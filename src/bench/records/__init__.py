"""What crosses from stage to stage. It knows nothing of the stages."""

from bench.records.columns import COLUMNS, METRICS, Column, columns_of
from bench.records.summary import complete, read_summary, summary_table

__all__ = ["COLUMNS", "METRICS", "Column", "columns_of", "complete", "read_summary", "summary_table"]

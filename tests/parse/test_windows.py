"""Throughput and latencies of steady windows in place of those of whole runs, and only where both sides have them."""

from bench.analysis.windows import of_windows
from bench.report.levels import level_rows
from tests.support.planted import steady_row, summary_rows
from tests.support.summaries import table


def row(summary, level, **more):
    told = {"throughput_tokens_per_s": 1.0, "steady_tokens_per_s": 2.0, "ttft_p99_s": 9.0, "steady_ttft_p99_s": 0.5}
    return {**steady_row(summary, level), **told, **more}


def test_a_load_that_goes_on_is_that_of_its_window(summary):
    (found,) = of_windows(table(row(summary, 1), row(summary, 2)))
    assert found["throughput_tokens_per_s"].to_list() == [2.0, 2.0]
    assert found["ttft_p99_s"].to_list() == [0.5, 0.5]


def test_a_window_is_not_compared_with_a_whole_run(summary):
    ours = table(row(summary, 1), row(summary, 2))
    theirs = table(row(summary, 1, steady=False, steady_why="short"), row(summary, 2))
    assert [side["throughput_tokens_per_s"].to_list() for side in of_windows(ours, theirs)] == [[1.0, 2.0], [1.0, 2.0]]
    invalid = table(row(summary, 1, steady=False, steady_why="short", wrong_output_tokens=1), row(summary, 2))
    assert of_windows(ours, invalid)[0]["throughput_tokens_per_s"].to_list() == [2.0, 2.0]


def test_bursts_and_older_tables_stay_as_they_are(summary):
    burst = table(row(summary, 1, arrival="burst", steady=None, steady_from_s=None))
    assert of_windows(burst)[0].equals(burst)
    older = summary_rows([{"workload": "w", "valid": True, "throughput_tokens_per_s": 1.0}])
    assert of_windows(older)[0].equals(older)


def test_the_table_of_levels_has_the_figures_rates(summary):
    """A level whose window is too short for one run of it is that of whole runs, by its requests/s as by its tokens/s."""
    whole = {"throughput_requests_per_s": 5.0, "steady_requests_per_s": 7.0}
    runs = table(row(summary, 1, **whole), row(summary, 2, **whole, steady=False, steady_why="short"))
    levels = level_rows(of_windows(runs)[0], [])
    assert [(level["requests_per_s"], level["tokens_per_s"]) for level in levels] == [(7.0, 2.0), (5.0, 1.0)]

"""How long requests wait before the engines: rows of known waits, and a real HAProxy that lets one request in at a time."""

import polars as pl
import pytest

from bench.parse.stream import front_wait, long_wait

ROW = {"deployment": "a", "workload": "w", "arrival": "closed", "level": 1.0, "ttft_n": 100.0, "server_ttft_n": 100.0, "ttft_mean_s": 0.2,
       "server_ttft_mean_s": 0.18, "tokens_per_chunk": 1.0, "tokens_per_arrival": 1.0, "itl_mean_s": 0.02, "tpot_mean_s": 0.02,
       "server_itl_mean_s": 0.02}  # fmt: skip
LATE = {**ROW, "level": 8.0, "ttft_mean_s": 1.0, "server_ttft_mean_s": 0.2}


def test_a_wait_is_what_ttft_has_beyond_the_engine_s_and_the_shortest_way():
    for change, wait in (
        ({}, 0.78),
        ({"level": 1.0}, None),  # a single load has no other to compare with
        ({"server_ttft_n": 90.0}, None),  # of other requests
        ({"tokens_per_arrival": 4.0}, None),
        ({"server_itl_mean_s": 0.01}, None),  # the engine is ahead of its clients
    ):
        found = pl.DataFrame([ROW, {**LATE, **change}]).with_columns(wait=front_wait())["wait"][1]
        assert found == (None if wait is None else pytest.approx(wait)), change
    for wait, ttft, named in ((0.06, 0.2, 0.06), (0.04, 0.04, None), (0.06, 0.3, None), (None, 0.3, None), (0.06, None, None)):
        assert long_wait({"front_wait_s": wait, "ttft_mean_s": ttft}) == named, (wait, ttft)

"""What servers call our metrics: expositions of real ones (`tests/data`; those of SGLang and TGI are derived from source, as they say)."""

import re

import polars as pl
import pytest
from packaging.version import Version

from bench.measure.exposition import kv_facts, metric_names
from bench.parse.scrapes import TELEMETRY_SCHEMA
from bench.parse.server import gauges, server_figures
from bench.servers.engines import ENGINES
from bench.servers.metrics import COUNTERS, GAUGES, HISTOGRAMS, MEANS, find_catalogue
from tests.support.scrapes import scraped
from tests.support.study import ROOT

KNOWN = ", ".join(kind.title for kind in ENGINES)
OURS = {*GAUGES, *COUNTERS, *HISTOGRAMS, *MEANS}
DRAFTED = {"spec_drafts", "spec_draft_tokens", "spec_accepted_tokens"}
ACCEPTED = {"spec_accepted_length"}
SPECULATION = DRAFTED | ACCEPTED  # these servers of vLLM do not speculate
TOLD_BY_TGI = {"running", "waiting", "server_prompt_tokens", "server_generation_tokens", "server_queue_time", "server_e2e"}
TOLD_BY_LLAMACPP = {"running", "waiting", "server_prompt_tokens", "server_generation_tokens", "prefix_hits", *DRAFTED}
NEVER_TOLD = {
    "vllm-0.8.5": {"prefix_queries", "prefix_hits", *SPECULATION},  # an engine of the older kind
    "vllm-0.9.2": SPECULATION,
    "vllm-0.11.2": SPECULATION,
    "vllm-0.30.0": SPECULATION,
    "vllm-0.32.0": SPECULATION,
    "sglang-0.5.3": {"preemptions", "server_prefill_time", "server_decode_time", *DRAFTED},
    "sglang-0.5.23": {"server_prefill_time", "server_decode_time", *DRAFTED},
    "tgi-3.3.7": OURS - TOLD_BY_TGI,
    "llamacpp-2026.10.11549": OURS - TOLD_BY_LLAMACPP,
}
TITLES = {"vllm": "vLLM", "sglang": "SGLang", "tgi": "TGI", "llamacpp": "llama.cpp"}


def exposition(golden):
    return (ROOT / f"tests/data/{golden}.prom").read_text()


def test_every_golden_exposition_is_looked_at():
    assert {path.stem for engine in TITLES for path in (ROOT / "tests/data").glob(f"{engine}-*.prom")} == set(NEVER_TOLD)


def test_a_metric_is_there_or_known_to_be_absent():
    for golden, never in NEVER_TOLD.items():
        engine, version = golden.split("-")
        found = find_catalogue(metric_names(exposition(golden)), version)
        assert (found.engine, found.missing) == (f"{TITLES[engine]} {version}", [])
        assert found.zero == ({"prefix_hits"} if golden == "sglang-0.5.3" else set())  # nothing came from its cache yet
        assert OURS - found.names.keys() - found.zero == never, golden
        # A version of which nothing is known is taken for the newest.
        found = find_catalogue(metric_names(exposition(golden)), None)
        missing = ["prefix_hits", "prefix_queries"] if golden == "vllm-0.8.5" else []
        assert (found.engine, found.zero, [text.split(" ")[0] for text in found.missing]) == (TITLES[engine], set(), missing)


# Metrics that are shown only when there is something to tell, or not by every build.
RARE = {"sglang": {"preemptions", "prefix_hits", "server_itl", *ACCEPTED}, "llamacpp": {"prefix_hits", *DRAFTED}}


@pytest.mark.parametrize("golden", ["vllm-0.32.0", "vllm-0.11.2", "sglang-0.5.23", "tgi-3.3.7", "llamacpp-2026.10.11549"])
def test_a_renamed_metric_is_a_named_error(golden):
    """The newest name and all before it get a syllable more: as if the next release had called it so."""
    engine, version = golden.split("-")
    known = next(e for e in ENGINES if e.prefix.startswith(engine)).metrics
    for metric in sorted(OURS - NEVER_TOLD[golden]):
        renamed = exposition(golden)
        for name in {row.name for row in known[metric]}:
            family = re.sub("_total$|_sum$", "", name)
            renamed = re.sub(rf"\b{family}(?=[_{{ ]|_total|_sum)", f"{family}_v2", renamed)
        found = find_catalogue(metric_names(renamed), version)
        missing = [text for text in found.missing if text.startswith(f"{metric} ")]
        assert len(missing) == (metric not in RARE.get(engine, ())), metric
        for text in missing:
            assert known[metric][0].name in text
            assert f"in {TITLES[engine]} {version}" in text


def test_versions_as_engines_write_them():
    """Where there is none, the newest names are expected. setuptools-scm calls a vLLM without tags 0.1.dev…: no old version."""
    names = metric_names(exposition("vllm-0.32.0")) - {"vllm:kv_cache_usage_perc"}
    for version in ("0.32.0+cpu", "v0.32.0", "0.32.0rc1", "0.32"):
        assert find_catalogue(names, version).missing == [f"kv_usage (vllm:kv_cache_usage_perc in vLLM {version})"]
    for version in ("", "dev", "main-1a2b3c4", None):
        assert find_catalogue(names, version).missing == ["kv_usage (vllm:kv_cache_usage_perc in vLLM)"], version
    assert find_catalogue(names, "0.1.dev12+g1a2b3c4").missing == []


def test_the_table_is_sound():
    for engine in ENGINES:
        assert engine.metrics.keys() <= OURS
        for metric, rows in engine.metrics.items():
            since = [Version(row.since) for row in rows]
            assert since == sorted(since, reverse=True), metric
            for row in rows:
                assert row.name.startswith(engine.prefix)
                assert row.absent in (None, "unknown", "zero")
                assert row.until is None or Version(row.since) < Version(row.until)
        assert all(name.startswith(engine.prefix) for name in engine.facts.values())


# What each file says, read off by hand: sums over counts of its histograms, and its counters.
FIGURES = {
    "vllm-0.8.5": {
        "preemptions": 4, "server_prompt_tokens": 3620, "server_generation_tokens": 768, "prefix_hits": None, "kv_usage_peak": None,
        "server_ttft_mean_s": 29.86169457435608 / 28, "server_itl_mean_s": 37.300174713134766 / 740, "server_e2e_mean_s": 67.20805644989014 / 24,
        "server_decode_time_mean_s": 42.961002588272095 / 24,
    },
    "vllm-0.9.2": {
        "preemptions": 1, "prefix_queries": 0, "kv_usage_peak": 0.01041666666666663, "server_itl_mean_s": 27.424447764002252 / 744,
    },
    "vllm-0.11.2": {
        "preemptions": 0, "server_prompt_tokens": 3072, "prefix_hits": 0, "kv_usage_peak": None,
        "server_ttft_mean_s": 83.33325409889221 / 24, "server_itl_mean_s": 80.02336266599741 / 744, "server_queue_time_mean_s": 34.472269506033626 / 24,
    },
    "vllm-0.30.0": {
        "preemptions": 0, "server_generation_tokens": 768, "kv_usage_peak": None,
        "server_itl_mean_s": 56.97934344695386 / 744, "server_prefill_time_mean_s": 28.953634144017997 / 24,
    },
    "sglang-0.5.3": {
        "preemptions": None, "prefix_hits": 0.0, "prefix_queries": 24 * 128, "kv_usage_peak": 0.9375, "running_peak": 18, "waiting_peak": 6,
        "server_queue_time_mean_s": 0.25, "server_itl_mean_s": 0.0625, "server_prefill_time_mean_s": None,
    },
    "sglang-0.5.23": {
        "preemptions": 2, "prefix_hits": 64, "prefix_queries": 24 * 128, "server_prompt_tokens": 24 * 128, "server_generation_tokens": 24 * 32,
        "kv_usage_peak": 0.9375, "running_peak": 18, "waiting_peak": 6, "server_ttft_mean_s": 0.5, "server_itl_mean_s": 0.0625,
        "server_queue_time_mean_s": 0.25, "server_e2e_mean_s": 2.5, "server_decode_time_mean_s": None,
    },
    "tgi-3.3.7": {
        "kv_usage_peak": None, "preemptions": None, "prefix_hits": None, "running_peak": 18, "waiting_peak": 6,
        "server_prompt_tokens": 24 * 128, "server_generation_tokens": 24 * 32, "server_queue_time_mean_s": 0.25, "server_e2e_mean_s": 2.5,
        "server_ttft_mean_s": None, "server_itl_mean_s": None,
    },
    "llamacpp-2026.10.11549": {
        "kv_usage_peak": None, "preemptions": None, "prefix_queries": None, "prefix_hits": 0, "running_peak": 16, "waiting_peak": 8,
        "server_prompt_tokens": 32 * 128, "server_generation_tokens": 16 * 48,  # output counts when its request is done
    },
}  # fmt: skip


def test_the_figures_of_a_run_that_ends_with_that_exposition(tmp_path):
    """At first the server has nothing to tell but zeros."""
    for golden, figures in FIGURES.items():
        text = exposition(golden)
        zeros = re.sub(r"^([^#\n][^\n]*) [^ \n]+$", r"\1 0", text, flags=re.MULTILINE)
        table = scraped(tmp_path, zeros, text, text)
        result = server_figures(table, scraped=True, version=golden.split("-")[1])
        assert (result["metrics_missing"], result["counters_fell"]) == ([], []), golden
        assert {key: result[key] for key in figures} == {key: pytest.approx(value) for key, value in figures.items()}, golden
        assert gauges(table)["gauge"].unique().sort().to_list() == sorted(set(GAUGES) - NEVER_TOLD[golden]), golden


def test_a_server_that_begins_with_nothing_to_tell(tmp_path):
    """SGLang shows a counter when it first counts: its first scrapes have none, and the rise counts from 0."""
    text = exposition("sglang-0.5.23")
    without = "".join(
        line + "\n" for line in text.splitlines() if not re.search(r"retracted_requests|cached_tokens|_seconds", line)
    )
    result = server_figures(scraped(tmp_path, without, without, text), scraped=True, version="0.5.23")
    keys = ("preemptions", "prefix_hits", "server_ttft_mean_s", "metrics_missing")
    assert [result[key] for key in keys] == [2, 64, 0.5, []]


def test_the_kv_cache_as_a_server_tells_it():
    for golden, info, *told in (
        ("vllm-0.8.5", {}, 3072, 192, 16, False),
        ("vllm-0.9.2", {}, 3072, 96, 32, False),
        ("vllm-0.11.2", {}, 3072, 96, 32, False),
        ("vllm-0.30.0", {}, 3072, 96, 32, False),
        ("vllm-0.32.0", {}, 3072, 96, 32, False),
        ("sglang-0.5.23", {"disable_radix_cache": False}, 3072, 3072, 1, True),
        ("sglang-0.5.23", {}, 3072, 3072, 1, None),
        ("sglang-0.5.3", {"disable_radix_cache": True}, None, None, None, False),
        ("tgi-3.3.7", {}, None, None, None, None),
        ("llamacpp-2026.10.11549", {}, None, None, None, None),
    ):
        result = kv_facts(exposition(golden), info)
        assert [result.kv_tokens, result.kv_blocks, result.block_size, result.prefix_caching] == told, (golden, info)
        assert bool(result.cache_config) == golden.startswith("vllm"), golden
    assert kv_facts("", {}).kv_tokens is None


def test_a_server_of_which_nothing_was_read_lacks_its_metrics_only_where_it_was_asked():
    nothing = pl.DataFrame(schema=TELEMETRY_SCHEMA)
    asked = server_figures(nothing, scraped=True, version=None)
    assert asked["metrics_missing"] == [f"the metrics of any engine that is known ({KNOWN})"]
    assert server_figures(nothing, scraped=False)["metrics_missing"] == []
    assert (asked["kv_usage_peak"], asked["preemptions"], asked["server_ttft_mean_s"]) == (None, None, None)
    assert asked["counters_fell"] == []

"""Results of all kinds, and what a figure and the report's page show of them."""

import json
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import polars as pl
import vl_convert

from bench.findings.registry import draw_figure, load_figure
from bench.findings.report import write_report
from bench.findings.tables import Tables
from bench.parse.table import summary_frame
from bench.report import save
from bench.runs.deployment import Hardware
from bench.runs.files import write_record
from bench.runs.launch import Settings
from bench.study.config import Thresholds
from bench.study.decision import Decision
from tests.support import records
from tests.support.planted import calibrated
from tests.support.study import bare_summary
from tests.support.summaries import FACTS, LAUNCH

DECISION = Decision(slo=["ttft_p99=1s"], peak_rps=10, price_per_hour=1, price_per_million_tokens=10)
LAUNCHES = {name: replace(LAUNCH["a"], deployment=name) for name in ("a", "b")}
KNOWN = {name: replace(FACTS["a"], deployment=name) for name in ("a", "b")}
SERIES = {"throughput": 50.0, "completed": 1.0, "running": 2.0, "waiting": 1.0, "kv_usage": 0.5}


def results(summary, levels=(1, 4, 16), *, deployments=("a", "b"), workloads=("short",), known=True, baseline="a", **changes):
    runs = [
        {
            **summary, "deployment": d, "workload": w, "family": w, "run": f"{w}_{level}", "axis": "concurrency", "level": float(level), "concurrency": level, "kv_usage_peak": min(1.0, level / 10),
            "throughput_peak_tokens_per_s": 20.0 * level, "throughput_tokens_per_s": 10.0 * level, "throughput_requests_per_s": 0.5 * level, "duration_s": 2.0, "e2e_mean_s": 1.0,
            "ttft_mean_s": 0.1 * level, "ttft_p50_s": 0.1 * level, "ttft_p99_s": 0.2 * level, "ttft_n": 4,
            "ttft_p99_bound_s": None, "tpot_p50_s": 0.01, "e2e_p50_s": 1.0,
            "digest": f"{d}{w}{level}", **{key: values[i] for key, values in changes.items()},
        }
        for d in deployments for w in workloads for i, level in enumerate(levels)
    ]  # fmt: skip
    series = SERIES | {f"gpu_utilisation/{gpu}": 0.3 + 0.1 * gpu for gpu in range(runs[0].get("gpu_count_seen") or 0)}
    rows = [
        {"deployment": run["deployment"], "run": run["run"], "level": run["level"], "repeat": 1, "elapsed_s": t,
         "series": name, "value": value * t}
        for run in runs for name, value in series.items() for t in (0.5, 1.0, 1.5)
    ]  # fmt: skip
    frame = summary_frame(runs, LAUNCHES if known else {}, KNOWN if known else {}, Thresholds(), baseline)
    return Tables(frame, pl.DataFrame(rows), None, DECISION, None, calibrated(frame) if known else None)


GPUS = {
    "gpu_count_seen": [2] * 3, "gpu_utilisation_mean": [0.35] * 3, "gpu_utilisation_min": [0.3] * 3, "gpu_utilisation_max": [0.4] * 3,
    "gpu_memory_peak_bytes": [80 * 2.0**30] * 3, "gpu_power_mean_w": [300.0, 500.0, 610.0], "gpu_energy_j": [600.0, 1000.0, 1220.0],
    "tokens_per_joule": [0.1, 0.4, 0.5],
}  # fmt: skip


CASES = {
    "on GPUs": GPUS,
    "on GPUs, only invalid runs": {**GPUS, "wrong_output_tokens": [1, 1, 1]},
    "on GPUs that tell no power": {
        **GPUS,
        **{key: [None] * 3 for key in ("gpu_power_mean_w", "gpu_energy_j", "tokens_per_joule")},
    },
    "on GPUs that were read too seldom": {**GPUS, "gpu_utilisation_mean": [None, None, 0.4]},
    "as it should be": {},
    "an invalid run": {"wrong_output_tokens": [0, 0, 1]},
    "only invalid runs": {"wrong_output_tokens": [1, 1, 1]},
    "a run with failed requests": {"failed": [0, 0, 1]},
    "a run without telemetry": {"scrape_gap_max_s": [0.3, 0.3, 9.0]},
    "a single level": {"levels": (4,)},
    "no baseline": {"baseline": None},
    "repeats": {"levels": (1, 1, 4, 4), "repeat": [1, 2, 1, 2]},
    "several workloads": {"workloads": ("short", "long")},
    "a server of which nothing is known": {"known": False, "kv_usage_peak": [None] * 3},
    "the first repeat left out": {"repeat": [2, 2, 2]},
    "eight deployments": {"deployments": tuple("abcdefgh"), "known": False},
}


# Cases in which charts have other parts. In the rest they have other data, of which the schema, half of the time, knows nothing.
CHECKED = {"on GPUs", "as it should be", "only invalid runs", "repeats", "several workloads"}


@cache
def results_of(case):
    """The results of a case, and all that figures draw from them in common, once for every figure; nothing alters them."""
    return results(bare_summary(), **CASES[case])


@cache
def drawn_of(name, case):
    return load_figure(name).draw(results_of(case)).to_dict(validate=case in CHECKED)


def spec_of(name, study):
    """A figure's specification, of which the schema is not asked."""
    return load_figure(name).draw(study).to_dict(validate=False)


class Undrawn:
    """In place of what makes pictures, where the specification is looked at alone."""

    @staticmethod
    def vegalite_to_svg(_):
        return ""

    @staticmethod
    def svg_to_png(_, scale):  # noqa: ARG004
        return b""


def saved_spec(name, study):
    """A figure's specification as it is saved, with its title and its note; no picture is made."""
    with patch.object(save, "vl_convert", Undrawn), TemporaryDirectory() as folder:
        return json.loads(draw_figure(name, study, Path(folder) / name)[2].read_text())


def encodings(spec):
    """Every encoding of a position in a chart."""
    for key, value in spec.items() if isinstance(spec, dict) else enumerate(spec):
        if key in ("x", "y") and isinstance(value, dict):
            yield value
        elif isinstance(value, dict | list) and key != "datasets":
            yield from encodings(value)


def data_of(panel):
    """The name of the data that most layers of a panel draw."""
    names = [layer["data"]["name"] for layer in panel["layer"] if "data" in layer] + [panel.get("data", {}).get("name")]
    return max(filter(None, names), key=names.count)


def drawn_rows(spec, key):
    return [row for rows in spec["datasets"].values() for row in rows if key in row]


def planted(summary, throughput, **more):
    """A study of one curve, each level measured twice."""
    study = results(
        summary, tuple(throughput), deployments=("a",), throughput_tokens_per_s=[float(x) for x in throughput.values()], **more
    )
    again = study.runs.with_columns(
        pl.col("run") + "_2", repeat=pl.lit(2, dtype=pl.Int64), throughput_tokens_per_s=1.01 * pl.col("throughput_tokens_per_s")
    )
    return Tables(pl.concat([study.runs, again]), study.timeseries)


PEAK = {1: 10, 2: 20, 4: 40, 8: 60, 12: 75, 16: 60, 24: 50}
VOID = {"meta", "link", "br", "input", "img", "hr"}


FACTS = records.facts(
    engine_version="1", ready_s=3.0, kv_tokens=640, kv_blocks=20, block_size=32, prefix_caching=False,
    command=("vllm", "<serve>", "--dtype", "float16", "--max-model-len=1024"), settings=Settings(dtype="float16", max_model_len=1024),
    environment={"HF_HUB_OFFLINE": "1", "NOTE": "two words"}, cache_config={"cache_dtype": "fp8"},
    hardware=Hardware(cpu="c", cores=2, memory_bytes=2**30, gpus=({"name": "NVIDIA X", "driver_version": "570.1"},), system="Linux"),
)  # fmt: skip


class Page(HTMLParser):
    """The elements of a page, which must close in the order in which they opened."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.data, self.text = [], [], {}, text
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), [name for name, _ in self.open]))
        if tag not in VOID:
            self.open.append((tag, len(self.elements) - 1))

    def handle_endtag(self, tag):
        name, _ = self.open.pop()
        assert name == tag, f"</{tag}> ends <{name}> in line {self.getpos()[0]}"

    def handle_data(self, data):
        if self.open:
            self.data.setdefault(self.open[-1][1], []).append(data)

    def find(self, tag):
        """Attributes and own text of each such element."""
        return [(a, "".join(self.data.get(i, []))) for i, (name, a, _) in enumerate(self.elements) if name == tag]


def without_libraries(folder):
    """So that a report there has an empty file in place of what draws its charts, which takes a second to bundle."""
    (folder / f".vega-{vl_convert.__version__}.js").touch()


def drawn(folder, study, *, names=(), pictures=True, **more):
    """The page of a study, read back. Args: pictures: whether its figures' are made, beside their specifications."""
    without_libraries(folder)
    facts = folder / "deployment.json"
    write_record(FACTS, facts)
    with nullcontext() if pictures else patch.object(save, "vl_convert", Undrawn):
        specs = [draw_figure(name, study, folder / name)[2] for name in names]
    write_report(folder / "report.html", **{"title": "t", "results": study, "specs": specs, "facts": [facts], **more})
    return Page((folder / "report.html").read_text())


def cells(page):
    """The text of the page's cells."""
    return [text for _, text in page.find("td")]

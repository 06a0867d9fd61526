"""Names become folders, command lines, jobs of a cluster and HTML: whatever one is, it stays a name."""

import copy
import itertools
import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from bench.errors import BenchError
from bench.findings.registry import draw_figure
from bench.findings.report import write_report
from bench.models.hub import FILES
from bench.models.model import whole_config
from bench.runs.files import write_record
from bench.servers.engines import MANAGED
from bench.servers.launch import resolve_launch
from bench.study.config import Name
from bench.study.plan import Plan
from bench.study.read import load_config
from tests.support import records
from tests.support.figures import FACTS, results
from tests.support.study import CONTENT, TINY, bare_summary

HOSTILE = {
    "parent": "../x",
    "deeper": "../../../../etc/x",
    "absolute": "/etc/x",
    "dots": "..",
    "hidden": ".x",
    "nul": "a\0b",
    "newline": "a\nb",
    "last newline": "a\n",
    "command": ";touch x",
    "substitution": "$(touch x)",
    "backticks": "`touch x`",
    "pipe": "a|touch x",
    "option": "--help",
    "quotes": "a'\"b",
    "script": "<script>alert(1)</script>",
    "close": "</script><img src=x onerror=alert(1)>",
    "braces": "{deployment}",
    "wildcard": "*",
    "unicode": "a\u202eb",
    "terminal": "\x1b]0;x\x07",
    "long": "a" * 5000,
}
TABLES = ("models", "engines", "deployments", "workloads", "hardware", "telemetry")


# --- Keys of a configuration, which become folders, rules and jobs


def test_a_key_that_is_no_name_is_refused():
    for table, value in itertools.product(TABLES, HOSTILE.values()):
        content = copy.deepcopy(CONTENT)
        if table == "telemetry":
            content["measurement"] = {"telemetry": {value: "http://127.0.0.1:1/metrics"}}
        elif table == "hardware":
            content["hardware"] = {value: {"price_per_hour": 1.0}}
        else:
            content[table][value] = next(iter(content[table].values()))
        with pytest.raises(BenchError) as caught:
            load_config(content, source="test")
        assert "\0" not in str(caught.value), (table, value)


@given(st.text(alphabet="ab0.-_/\\ \n\0;$`'\"<>&|*?A", max_size=8))
@settings(max_examples=600)
def test_every_name_that_is_taken_is_a_folder_s_and_needs_no_quotes(text):
    try:
        name = TypeAdapter(Name).validate_python(text)
    except ValidationError:
        return
    assert shlex.quote(name) == name  # so that a cluster's job may carry it
    assert Path(name).name == name and name not in (".", "..")
    assert re.fullmatch(r"[a-z0-9.-]+", name)  # as the rules' wildcards have it


# --- Texts of a configuration


# Where it stands, and what stands there.
TEXTS = {
    "title": ("study.title", lambda value: value),
    "served_name": ("deployments.a.served_name", lambda value: value),
    "flag": ("deployments.a.flags", lambda value: {value: True}),
    "value of a flag": ("deployments.a.flags", lambda value: {"chat-template": value}),
    "variable": ("deployments.a.environment", lambda value: {"NOTE": value}),
    "command": ("engines.e.command", lambda value: ["true", value]),
    "lock": ("engines.e", lambda value: {"source": "lock", "locks": [value]}),
    "path": ("models.m", lambda value: {"path": value}),
    "hub": ("models.m", lambda value: {"hub": f"{value}@{'0' * 40}"}),
    "trace": ("workloads.short", lambda value: {"arrival": "trace", "trace": value}),
    "base_url": ("engines.e", lambda value: {"source": "external", "base_url": value}),
    "endpoint": ("measurement", lambda value: {"telemetry": {"x": value}}),
    "select": ("select", lambda value: value),
}  # fmt: skip


def with_text(key, value):
    """The configuration with this value as one of its free texts."""
    content = copy.deepcopy(CONTENT)
    place, made = TEXTS[key]
    *parents, last = place.split(".")
    inner = content
    for name in parents:
        inner = inner[name]
    inner[last] = made(value)
    if key == "trace":
        content["study"]["ladders"][0] = {"deployment": "a", "workload": "short", "time_scale": [1]}
    return content


def test_a_text_of_the_configuration_is_refused_or_stays_one_word(here):
    taken = set()
    for key, value in itertools.product(TEXTS, HOSTILE.values()):
        try:
            plan = Plan.of(load_config(with_text(key, value), source="test"))
            launch = resolve_launch(plan.deployments["a"], records.engine(command=("true",)), checkpoint())
        except BenchError as error:
            assert len(str(error)) < 20_000, (key, value)  # noqa: PT017
            continue
        taken.add(key)
        assert "\0" not in value or key in ("title", "path", "select")
        for run in plan.runs:
            assert (here / run.record).resolve().is_relative_to(here / "results/runs"), (key, value)
        words = [*(launch.argv or ()), *launch.environment.values()]
        if key in ("served_name", "value of a flag", "image", "variable"):
            assert value in words, (key, value)
        elif key == "flag":
            assert f"--{value}" in words, value
        assert list(here.iterdir()) == [], (key, value)
    assert not taken & {"hub", "trace", "lock", "base_url"}  # these are never taken
    assert taken >= {"title", "served_name", "value of a flag", "variable", "command"}


def checkpoint():
    return records.checkpoint(path="model", config=whole_config(TINY))


# --- What servers say


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}


def page(folder, study, value):
    """The report and the figures of a study in which everything that is a text is `value`."""
    folder.mkdir()
    write_record(
        records.facts(**{**vars(FACTS), "engine_version": value, "command": ("vllm", value), "deployment": "a",
                         "cache_config": {"cache_dtype": value}, "inherited": {value: value}}),
        folder / "deployment.json",
    )  # fmt: skip
    figures = [draw_figure(name, study, folder / name) for name in ("kv-saturation", "ttft")]
    write_report(
        folder / "report.html", title=value, results=study, specs=[paths[2] for paths in figures], facts=[folder / "deployment.json"],
        commit=value, summary=folder / "report.md",
    )  # fmt: skip
    return folder


@pytest.fixture(scope="module")
def plain_page(tmp_path_factory):
    """The page of a study in which no text is odd."""
    return Elements(
        (page(tmp_path_factory.mktemp("plain") / "plain", results(bare_summary()), "a") / "report.html").read_text()
    )


@pytest.mark.parametrize("key", ["close", "quotes", "newline"])
def test_no_text_becomes_html_in_the_report_or_a_figure(tmp_path, summary, plain_page, key):
    plain = HOSTILE[key]
    texts = dict.fromkeys(("model", "engine", "engine_version", "hardware", "environment", "commit", "failures"), plain)
    study = results({**summary, **{key: text for key, text in texts.items() if key in ("environment", "commit")}})
    named = {key: pl.lit(text) for key, text in texts.items() if key in study.runs.columns}
    frame = study.runs.with_columns(**named, workload=pl.lit(plain), family=pl.lit(plain), deployment=pl.lit(plain))
    hostile = type(study)(frame, study.timeseries.with_columns(deployment=pl.lit(plain)))
    folder = page(tmp_path / "hostile", hostile, plain)
    found = Elements((folder / "report.html").read_text())
    assert found.tags.count("script") == plain_page.tags.count("script")
    assert found.tags.count("img") == plain_page.tags.count("img")  # of readers without scripts
    assert not {"iframe", "object", "embed", "form", "base"} & set(found.tags)
    assert found.attributes <= plain_page.attributes | {"title"}
    for script in re.findall(
        r'<script type="application/json"[^>]*>(.*?)</script>', (folder / "report.html").read_text(), re.DOTALL
    ):
        json.loads(script)
    assert not re.search("<(script|img)", (folder / "report.md").read_text())
    for svg in folder.glob("*.svg"):
        assert not {"script", "img", "foreignobject"} & set(Elements(svg.read_text()).tags)
    assert [path for path in tmp_path.rglob("*") if not path.is_relative_to(folder) and path.parent != tmp_path] == []


# --- What a checkpoint brings along, and where a server listens


def test_no_code_of_a_checkpoint_runs_and_servers_listen_on_loopback(here):
    # llama.cpp's random weights are written where its checkpoint lies
    (here / "model").mkdir()

    def words(engine, **flags):
        content = copy.deepcopy(CONTENT)
        content["engines"]["e"] = engine
        content["deployments"]["a"] |= {"kv_cache_memory": "64MiB", "max_num_seqs": 4, "flags": flags}
        spec = Plan.of(load_config(content, source="t")).deployments["a"]
        launch = resolve_launch(spec, records.engine(command=("python3",)), checkpoint())
        return [*launch.argv, *launch.environment, *launch.environment.values()]

    for kind in MANAGED:
        plain = words({"kind": kind, **CONTENT["engines"]["e"]})
        assert not [word for word in plain if re.search("trust|remote", word, re.IGNORECASE)], kind
        assert plain[plain.index("--host") + 1] == "127.0.0.1", kind
        by_name = words({"kind": kind, **CONTENT["engines"]["e"]}, **{"trust-remote-code": True})
        assert "--trust-remote-code" in by_name, kind


def test_no_code_is_fetched_with_a_checkpoint():
    assert FILES and not [pattern for pattern in FILES if pattern.endswith((".py", ".bin", ".pt", ".pth", "*"))]

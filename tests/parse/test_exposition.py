"""Our reading of expositions is prometheus_client's, whatever they say and however they change."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from bench.errors import BenchError
from bench.parse.exposition import ExpositionError, ExpositionReader
from bench.parse.scrapes import scrape_tables, wide_table
from tests.support.scrapes import write_scrapes
from tests.support.study import ROOT

VLLM = (ROOT / "tests/data/vllm-0.32.0.prom").read_text()


def expected(text):
    """Name, labels and value of each sample by the reference; None where it refuses."""
    try:
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
        return [(s.name, dict(sorted(s.labels.items())), float(s.value)) for s in samples]
    except (ValueError, LookupError, OverflowError):
        return None


class Reader:
    """Our reader, with series spelled out again."""

    def __init__(self):
        self.known = {}
        self.reader = ExpositionReader(lambda series: self.known.setdefault(series, len(self.known)))

    def read(self, text):
        try:
            codes, values = self.reader.read(text)
        except ExpositionError:
            return None
        series = list(self.known)
        return [(series[c][0], labels(series[c][1]), v) for c, v in zip(codes, values, strict=True)]


def labels(text):
    """The labels that `a="1",b="2"` spells."""
    decoder, found = json.JSONDecoder(), {}
    while text:
        name, _, text = text.lstrip(",").partition("=")
        found[name], end = decoder.raw_decode(text)
        text = text[end:]
    return found


def same(ours, theirs):
    """Equal, NaN being equal to NaN."""
    return repr(ours) == repr(theirs)


def test_malformed_lines_are_refused_as_the_reference_does():
    for line in [
        "t 1_0", "t", "t ", "t one", 't{a="1" 2', 't{a="1"} 1 x', "t{a=1} 1", 't{a="1",a="2"} 1', 't{1a="1"} 1', "1t 5", "t-u 5",
        't{a="1"}', "# TYPE t", "# TYPE t strange\nt 1", "# HELP 1t x", 't{a="1" b="2"} 1', "t 1 # {} 1", 't{a="1"} 0x10', "{} 1",
    ]:  # fmt: skip
        for text in (f"{line}\n", f"a 1\n{line}\nb 2\n"):
            reader = Reader()
            assert same(reader.read("a 1\nt 0\nb 2\n"), [("a", {}, 1.0), ("t", {}, 0.0), ("b", {}, 2.0)]), line
            assert same(reader.read(text), expected(text)), line
    for text in (VLLM, VLLM.replace("\n", "\r\n"), 't{a="esc \\\\ \\" \\n end",b="c,o}m{m a s = "} 1395066363000\n'):
        assert expected(text) and same(reader.read(text), expected(text))


name = st.sampled_from(["a", "b", "a_total", "b_total", "a_sum", "a_count", "a_bucket", "x:y", "_"])
label_value = st.text(st.sampled_from('ab ,{}="\\\n#ü漢') | st.characters(codec="utf-8"), max_size=8).map(
    lambda v: v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
)
label_set = st.lists(st.tuples(st.sampled_from(["a", "b", "le", "__c"]), label_value), max_size=3, unique_by=lambda p: p[0])
number = (
    st.floats().map(repr)
    | st.integers(-(10**20), 10**20).map(str)
    | st.sampled_from(["NaN", "+Inf", "-Inf", "1e5", "1.5E-7", "+1", "1_0", "", "5 1700000000000", "1\t2", "x"])
)
gap = st.sampled_from([" ", " ", " ", "\t", "  ", " \t ", ""])


@st.composite
def sample_line(draw):
    pairs = draw(label_set)
    result = ",".join(f'{k}="{v}"' for k, v in pairs) + draw(st.sampled_from(["", "", ","]))
    braces = draw(st.booleans()) or pairs
    return f"{draw(name)}{'{' + result + '}' if braces else ''}{draw(gap)}{draw(number)}"


meta_line = st.builds(
    "# {} {} {}".format,
    st.sampled_from(["TYPE", "TYPE", "HELP", "COMMENT"]),
    name,
    st.sampled_from(["counter", "gauge", "histogram", "summary", "untyped", "unknown"]),
)
any_line = sample_line() | meta_line | st.sampled_from(["", "#", "# EOF", "   ", "#HELP", "# HELP  a x"]) | st.text(max_size=10)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(sample_line() | meta_line, max_size=8), st.lists(any_line, max_size=2), st.lists(number, min_size=8, max_size=8)
)
def test_any_exposition_reads_as_the_reference_reads_it(lines, odd, numbers):
    """One reader is given a text, the same with other values, with lines more, with lines fewer, and the first again."""
    moved = [
        f"{line.rpartition(' ')[0]} {n}" if not line.startswith("#") else line for line, n in zip(lines, numbers, strict=False)
    ]
    reader = Reader()
    for variant in (lines, moved, lines + odd, odd + lines, lines[1:], lines):
        text = "\n".join(variant) + "\n"
        assert same(reader.read(text), expected(text)), text


SCRAPE = {"slot": 0, "endpoint": "e", "sent": 1.0, "received": 2.5, "text": "a 1\n"}


def write(path, *scrapes):
    keys = ("slot", "endpoint", "text", "sent", "received")
    return write_scrapes(path, (dict(zip(keys, (*each, each[0], each[0] + 0.5), strict=True)) for each in scrapes))


def test_series_that_come_and_go_and_endpoints_side_by_side(tmp_path):
    path = write(
        tmp_path / "t.jsonl.gz", (0, "e", 'a{x="1"} 1\nb 2\n'), (0, "f", "a 7\n"),
        (1, "e", 'a{x="1"} 3\na{x="2"} 4\nb 5\n'), (2, "e", "b 6\n"), (2, "f", ""),
    )  # fmt: skip
    scrapes, samples = scrape_tables(path, 0.0)
    assert scrapes["endpoint"].to_list() == ["e", "f", "e", "e", "f"]
    assert samples.rows() == [
        (0, 0.25, "e", "a", 'x="1"', 1.0),
        (0, 0.25, "e", "b", "", 2.0),
        (0, 0.25, "f", "a", "", 7.0),
        (1, 1.25, "e", "a", 'x="1"', 3.0),
        (1, 1.25, "e", "a", 'x="2"', 4.0),
        (1, 1.25, "e", "b", "", 5.0),
        (2, 2.25, "e", "b", "", 6.0),
    ]
    wide = wide_table(samples)
    assert wide.columns == ["elapsed_s", 'e a{x="1"}', 'e a{x="2"}', "e b", "f a"]
    assert wide.rows() == [(0.25, 1.0, None, 2.0, 7.0), (1.25, 3.0, 4.0, 5.0, None), (2.25, None, None, 6.0, None)]


def test_a_text_that_is_no_exposition_is_a_scrape_that_failed(tmp_path):
    """One of them must not cost the run, nor the other endpoints' samples."""
    path = write(tmp_path / "t.jsonl.gz", (0, "e", "a 1\n"), (7, "e", "# TYPE a gauge\na one\n"), (8, "e", "a 2\n"))
    scrapes, samples = scrape_tables(path, 0.0)
    assert scrapes["error"].to_list() == [
        None,
        "no Prometheus exposition: line 2, 'a one': could not convert string to float: 'one'",
        None,
    ]
    assert samples["value"].to_list() == [1.0, 2.0]


def test_a_scrape_lies_in_the_middle_of_sending_and_receiving_and_keeps_values_to_the_last_bit(tmp_path):
    scrapes, samples = scrape_tables(
        write_scrapes(tmp_path / "t.gz", [SCRAPE, {**SCRAPE, "slot": 2**31 - 1, "error": None}]), 0.25
    )
    assert scrapes.rows() == [(0, "e", 2.25, None, False), (2**31 - 1, "e", 2.25, None, False)]
    assert samples["elapsed_s"].to_list() == [1.5, 1.5]
    texts = ["9007199254740993", "0.1", "1e-320", "1.7976931348623157e308", "NaN"]
    _, table = scrape_tables(write(tmp_path / "t.jsonl.gz", (0, "e", "".join(f"a {t}\n" for t in texts))), 0.0)
    values = table["value"]
    assert values.to_list()[:-1] == [float(t) for t in texts[:-1]]
    assert math.isnan(values[-1])


def test_what_the_scraper_never_writes_is_refused(tmp_path):
    for wrong in [
    {"slot": -1}, {"slot": 2**31}, {"slot": 0.5}, {"slot": None}, {"endpoint": 1}, {"text": 1}, {"error": 1}, {"sent": "1"},
    {"received": None}, {"received": 1e12}, {"sent": -1e12},
]:  # fmt: skip
        with pytest.raises(BenchError, match=r"no scrape: .*discard"):
            scrape_tables(write_scrapes(tmp_path / "t.gz", [{**SCRAPE, **wrong}]), 0.0)
    for gone in ["slot", "endpoint", "sent", "received"]:
        with pytest.raises(BenchError, match="no scrape"):
            scrape_tables(write_scrapes(tmp_path / "t.gz", [{key: value for key, value in SCRAPE.items() if key != gone}]), 0.0)
    with pytest.raises(BenchError, match="scrape 0 of 'e' is in it twice"):
        scrape_tables(write_scrapes(tmp_path / "t.gz", [SCRAPE, SCRAPE]), 0.0)
    with pytest.raises(BenchError, match="no scrape"):
        scrape_tables(write_scrapes(tmp_path / "t.gz", [[1]]), 0.0)

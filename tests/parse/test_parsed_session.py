"""A session's runs are parsed once, and again where their record or the code is another one; and what is said of them at once."""

import pytest

from bench.errors import BenchError
from bench.parse.session import answer_lines, parse_session
from bench.runs.files import checksum, read
from bench.runs.store import ParsedSession
from bench.study.plan import Plan
from bench.study.read import load_config
from tests.support.made import made_study, make_run


def test_what_is_parsed_already_is_kept(tmp_path):
    runs, file = tmp_path / "d000", tmp_path / "1-parsed.json"
    names = []
    for run in Plan.of(load_config(made_study(4, 4), source="made")).runs[:2]:
        (runs / run.name).mkdir(parents=True)
        make_run(run, runs / run.name, series=5)
        names.append(run.name)
    one, other = names
    records = {name: checksum(runs / name / "run.json") for name in names}

    def parsed(code="a", of=records):
        """The runs that are parsed, whose summaries are marked before."""
        for name in names:
            (runs / name / "summary.json").write_text("{}")
        parse_session(runs, of, file, code=code)
        return {name for name in names if (runs / name / "summary.json").read_text() != "{}"}

    assert parsed() == {one, other}
    assert read(ParsedSession, file) == ParsedSession(code="a", runs=records)
    assert parsed() == set()
    assert parsed(of={**records, one: "another"}) == {one}
    (runs / other / "metrics.csv").unlink()
    assert parsed(of={**records, one: "another"}) == {other}
    assert parsed(code="b") == {one, other}
    (line,) = answer_lines(runs, names)
    assert line.startswith("d000 · closed: at most ") and "the KV cache was never full" in line
    next((runs / one).glob("requests.jsonl*")).write_bytes(b"")
    said = []
    with pytest.raises(BenchError, match=r"1 of 2 runs cannot be parsed.*bench runs --discard 'd000/RUN'"):
        parse_session(runs, records, file, code="c", say=said.append)
    assert [line.partition(": ")[0] for line in said] == [one]

"""Which figures a study draws anew: those that would come out otherwise, and no other."""

import os
from dataclasses import replace

import polars as pl
import pytest

from bench.errors import BenchError
from bench.figures import drawing, figure_names
from bench.figures.drawing import draw_figures
from bench.figures.registry import load_figure
from bench.figures.save import KINDS, save_figure
from bench.published import Accelerator
from bench.study import Decision
from tests.planted import searched
from tests.test_figures import GPUS, results

CODE = {"fleet": "1", "economics": "1", "ttft": "1", "kv-saturation": "1"}
DECISION = Decision(
    slo=["ttft_p99=1s"], peak_rps=10, safety=1.5, accelerator="h100", price_per_hour=1, energy_price_per_kwh=0.2,
    cost_per_million_requests=3, price_per_million_tokens=10,
)  # fmt: skip
DEVICE = Accelerator(
    title="a GPU", memory="80GiB", bandwidth_tb_s=3, bf16_tflops=900, power_w=700, price_per_hour=10, source="a test"
)


class Study:
    """Figures of a made study in a folder; saving one leaves its name and what it was given, as files."""

    def __init__(self, folder, summary):
        self.folder, self.results = folder / "figures", replace(results(summary), decision=DECISION, device=DEVICE)
        self.tables = [folder / "summary.parquet", folder / "timeseries.parquet"]
        for table in self.tables:
            table.write_bytes(b"a table")

    def draw(self, code=CODE, **changes):
        study = replace(self.results, **changes)
        return set(draw_figures(code, study, self.folder, tables=self.tables))


@pytest.fixture
def study(tmp_path, summary, monkeypatch):
    def save(name, _results, stem):
        stem.parent.mkdir(exist_ok=True)
        for kind in KINDS:
            stem.with_name(f"{name}.{kind}").write_text(f"{name} {kind}")

    monkeypatch.setattr(drawing, "save_figure", save)
    study = Study(tmp_path, summary)
    assert study.draw() == set(CODE)
    assert study.draw() == set()
    return study


@pytest.mark.parametrize(
    ("change", "drawn"),
    [
        ({"peak_rps": 20}, {"fleet"}),
        ({"safety": 2.0}, {"fleet"}),
        ({"slo": ["ttft_p99=2s"]}, {"fleet", "economics", "ttft"}),
        ({"price_per_hour": 2}, {"economics"}),
        ({"energy_price_per_kwh": 0.3}, {"economics"}),
        ({"cost_per_million_requests": 4}, {"economics"}),
        ({"price_per_million_tokens": 11}, {"economics"}),
        ({"accelerator": "a100"}, {"economics"}),
    ],
)
def test_what_uses_a_part_of_the_decision_is_drawn_when_that_changes(study, change, drawn):
    decision = Decision(**{**DECISION.model_dump(), **change})
    assert study.draw(decision=decision) == drawn
    assert study.draw(decision=decision) == set()
    assert study.draw() == drawn  # and back


def test_a_device_s_own_facts_count(study):
    assert study.draw(device=DEVICE.model_copy(update={"power_w": 350.0})) == {"economics"}


def test_what_a_search_found_counts_for_the_figure_that_shows_it(study):
    code = {**CODE, "slo-margin": "1"}
    assert study.draw(code) == {"slo-margin"}
    found = (("a", searched(slos=("TTFT P99 ≤ 1 s",))),)
    assert study.draw(code, searches=found) == {"slo-margin"}
    assert study.draw(code, searches=found) == set()
    assert study.draw(code, searches=(("a", searched(high=4)),)) == {"slo-margin"}


def test_code_and_tables_count(study):
    assert study.draw({**CODE, "ttft": "2"}) == {"ttft"}
    study.tables[1].write_bytes(b"another")
    assert study.draw({**CODE, "ttft": "2"}) == set(CODE)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("remove", [True, False])
def test_a_file_that_is_not_as_it_was_written_is_drawn(study, kind, remove):
    file = study.folder / f"ttft.{kind}"
    file.unlink() if remove else file.write_text("half of i")
    assert study.draw() == {"ttft"}
    assert file.read_text() == f"ttft {kind}"


@pytest.mark.parametrize("content", [None, "", '{"ttft": {"of"', "[1]", '{"ttft": 3}'])
def test_without_a_record_that_can_be_read_all_is_drawn(study, content):
    record = study.folder / ".drawn"
    record.unlink() if content is None else record.write_text(content)
    assert study.draw() == set(CODE)


def test_what_is_kept_is_not_older_than_the_tables(study):
    """Or Snakemake would take it for stale, for ever."""
    for file in study.folder.iterdir():
        os.utime(file, (0, 0))
    assert study.draw() == set()
    assert all(file.stat().st_mtime > 1 for file in study.folder.glob("[a-z]*"))


def test_what_was_drawn_before_a_fault_is_not_drawn_again(study, monkeypatch):
    draw = drawing.save_figure

    def fails(name, results, stem):
        if name == "ttft":
            raise BenchError("no")
        draw(name, results, stem)

    code = dict.fromkeys(CODE, "2")
    monkeypatch.setattr(drawing, "save_figure", fails)
    with pytest.raises(BenchError, match="no"):
        study.draw(code)
    monkeypatch.setattr(drawing, "save_figure", draw)
    assert study.draw(code) == {"ttft", "kv-saturation"}


@pytest.mark.parametrize("name", figure_names())
def test_no_figure_rests_on_more_of_the_decision_than_it_names(name, summary):
    """It is not drawn anew for the rest."""
    drawn = load_figure(name)
    for case in ({}, GPUS) if drawn.uses else (GPUS,):
        whole = replace(results(summary, **case), decision=DECISION, device=DEVICE)
        assert drawn.draw(whole.given(drawn.uses)).to_dict() == drawn.draw(whole).to_dict()
    assert set(drawn.uses) <= {*Decision.model_fields, "calibration", "searches"}


def test_a_figure_gets_what_it_names_and_no_more(summary, tmp_path):
    whole = replace(results(summary), decision=DECISION, device=DEVICE)
    given = whole.given(("slo", "accelerator"))
    assert given.decision == Decision(slo=DECISION.slo, accelerator="h100")
    assert given.device is DEVICE
    assert whole.given(("slo",)).device is None
    undecided = replace(whole, decision=Decision(), device=None)
    specs = [save_figure("ttft", study, tmp_path / "ttft")[2].read_text() for study in (whole, undecided)]
    assert specs[0] != specs[1]  # the limits


def test_figures_that_are_really_drawn_are_kept(tmp_path, summary):
    study = Study(tmp_path, summary)
    pl.DataFrame({"a": [1]}).write_parquet(study.tables[0])
    one = {"kv-saturation": "1"}
    assert study.draw(one) == {"kv-saturation"}
    before = {file.name: file.read_bytes() for file in study.folder.iterdir()}
    assert before.keys() == {"kv-saturation.svg", "kv-saturation.png", "kv-saturation.json", ".drawn"}
    assert study.draw(one) == set()
    assert {file.name: file.read_bytes() for file in study.folder.iterdir()} == before

"""`bench verify` finds what was changed, wherever it was changed, and says what it cannot know."""

import hashlib
import json
import re
import shutil
from pathlib import Path

import polars as pl
import pytest
import yaml

from bench.cli import main
from bench.runs.files import digest
from tests.support.packs import listed_anew, rewritten

pytestmark = [pytest.mark.workflow, pytest.mark.timeout(300)]  # whoever is first draws the study

CONFIG = Path("config/config.yaml")
ALWAYS = {
    "who measured", "deployments, logs, engine records and checkpoints", "who packed it", "what the records hold",
    "what searches found and what was graded", "the report's sentences and the figures' pixels",
}  # fmt: skip


@pytest.fixture(scope="module")
def there(tmp_path_factory, drawn_study):
    """The results and logs of a study of four made runs, drawn to its end, and its pack."""
    folder = tmp_path_factory.mktemp("there").resolve()
    for name in ("results", "logs"):
        shutil.copytree(drawn_study / name, folder / name)
    (folder / "config").mkdir()
    shutil.copy(drawn_study / CONFIG, folder / CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["pack", "--configfile", str(CONFIG), "--output", "made.tar.gz"]) == 0
    return folder


@pytest.fixture
def _copy(there, tmp_path, monkeypatch):
    """A copy to change."""
    shutil.copytree(there, tmp_path / "copy", symlinks=True)
    monkeypatch.chdir(tmp_path / "copy")


def verified(capsys, path, *options):
    """The exit status, and the checks by what they are about."""
    capsys.readouterr()
    try:
        status = main(["verify", str(path), "--json", *options])
    except SystemExit as error:
        status = error.code
    said = capsys.readouterr()
    assert said.out, said.err
    out = json.loads(said.out)
    assert out["intact"] == (status == 0)
    return status, {check["what"]: check for check in out["checks"]}


def unchecked(checks):
    """Why something was not checked, without what never can be."""
    return [text for check in checks.values() for text in check["unchecked"] if text.partition(":")[0] not in ALWAYS]


def differing(checks):
    """What differs, as the files' paths from the folder of results or the pack."""
    found = [text.partition(": ")[0] for check in checks.values() for text in check["differs"]]
    return {str(Path(name).relative_to(Path.cwd())) if name.startswith("/") else name for name in found}


def flipped(content):
    content = bytearray(content)
    content[len(content) // 2] ^= 1
    return bytes(content)


def flip(file):
    file.write_bytes(flipped(file.read_bytes()))


def edit(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content, indent=2))


def runs():
    return sorted(Path("results/runs").glob("*/*"))


@pytest.mark.usefixtures("_copy")
def test_a_folder_of_another_name_and_place_is_checked_by_its_study_which_is_named_and_stays_as_it_was(
    capsys, tmp_path, monkeypatch
):
    page = Path("results/report.html")
    page.write_text(page.read_text() + "It carries 99 requests a second.")
    Path(".study.yaml").write_text("the user's own")
    shutil.move("results", "kept")
    shutil.copy(CONFIG, tmp_path / "study.yaml")
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in Path("copy").rglob("*")}
    status, checks = verified(capsys, "copy/kept", "--configfile", "study.yaml")
    assert (status, differing(checks), unchecked(checks)) == (1, {"copy/kept/report.html"}, [])
    assert {path: path.stat().st_mtime_ns for path in Path("copy").rglob("*")} == before
    assert Path("study.yaml").is_file()
    assert Path("copy/.study.yaml").read_text() == "the user's own"


def test_what_nobody_touched_is_intact(there, monkeypatch, capsys):
    monkeypatch.chdir(there)
    status, checks = verified(capsys, "results")
    assert (status, differing(checks), unchecked(checks)) == (0, set(), [])
    figures = len(list(Path("results/figures").glob("*.svg")))
    assert {what: check["checked"] for what, check in checks.items()} == {
        "runs as measured": 4, "summaries": 5, "figures' data": figures, "what was drawn": 3 * figures + 1, "anything else": 0,
    }  # fmt: skip


@pytest.mark.usefixtures("_copy")
def test_every_kind_of_made_file_that_was_changed_is_named(capsys):
    first, *_ = runs()
    edit(first / "summary.json", lambda content: content.update(ok=content["ok"] - 1))
    summary = Path("results/summary.parquet")
    table = pl.read_parquet(summary)
    table.with_columns(pl.col("throughput_tokens_per_s") * 1.000001).write_parquet(summary)
    names = sorted(path.stem for path in Path("results/figures").glob("*.svg"))
    picture, pixels, specification, *_ = (Path("results/figures") / name for name in names)
    svg, png, spec = picture.with_suffix(".svg"), pixels.with_suffix(".png"), specification.with_suffix(".json")
    svg.write_text(svg.read_text().replace("</svg>", "<text>10</text></svg>"))
    flip(png)

    def raise_a_value(content):
        rows = [row for rows in content["datasets"].values() for row in rows]
        row, key = next((row, key) for row in rows for key, value in row.items() if isinstance(value, float))
        row[key] += 1

    edit(spec, raise_a_value)
    # Whoever changes the data of a figure can write its new checksum into the list.
    listed = {spec.name: hashlib.sha256(spec.read_bytes()).hexdigest()}
    edit(Path("results/figures/all"), lambda content: content["figures"].update(listed))
    page = Path("results/report.html")
    page.write_text(page.read_text().replace('data-value="', 'data-value="9', 1))
    status, checks = verified(capsys, "results")
    assert status == 1
    assert differing(checks) == {str(path) for path in (first / "summary.json", summary, svg, png, spec, page)}
    text = next(text for text in checks["summaries"]["differs"] if "summary.json" in text)
    assert text.endswith("summary.json: ok is 299, and the raw records give 300")
    assert unchecked(checks) == []


@pytest.mark.usefixtures("_copy")
def test_every_kind_of_record_that_was_changed_is_named(capsys):
    first, second, third, _ = runs()
    flip(first / "requests.jsonl")
    flip(second / "telemetry.jsonl.gz")
    edit(third / "run.json", lambda content: content["definition"].update(num_requests=1))
    status, checks = verified(capsys, "results")
    assert status == 1
    named = {str(first / "requests.jsonl"), str(second / "telemetry.jsonl.gz"), str(third / "run.json")}
    assert differing(checks) == named
    (why,) = unchecked(checks)
    assert "3 of 4 runs not as measured when they were drawn" in why


@pytest.mark.usefixtures("_copy")
def test_records_that_agree_with_their_checksums_and_give_other_numbers_or_none(capsys):
    first, second, *_ = runs()
    edit(second / "run.json", lambda content: content["client"].update(loop_lag_p99_s=0.0))
    status, checks = verified(capsys, "results")
    assert status == 1
    said = " ".join(checks["summaries"]["differs"])
    assert "client_loop_lag_p99_s is 0.001, and the raw records give 0.0" in said
    (first / "requests.jsonl").write_text("nothing\n")
    digest = hashlib.sha256(b"nothing\n").hexdigest()
    edit(first / "run.json", lambda content: content["files"].update({"requests.jsonl": digest}))
    status, checks = verified(capsys, "results")
    assert any("requests.jsonl: line 1 is not a request record" in text for text in checks["summaries"]["differs"])
    assert unchecked(checks) == [
        "what is made of the records: 1 of 4 runs cannot be parsed, so the study's summary is not made again"
    ]


@pytest.mark.usefixtures("_copy")
def test_columns_that_another_version_has_not_are_said_and_a_changed_value_beside_them_is_found(capsys):
    first, *_ = runs()
    summary = Path("results/summary.parquet")
    edit(first / "summary.json", lambda content: content.pop("drain_s"))
    table = pl.read_parquet(summary)
    table.drop(table.columns[-1]).write_parquet(summary)
    status, checks = verified(capsys, "results")
    assert (status, differing(checks)) == (0, set())
    assert any(text.endswith("summary.json: 'drain_s', which only one of the two has") for text in unchecked(checks))
    assert len(unchecked(checks)) == 2
    edit(first / "summary.json", lambda content: content.update(ok=content["ok"] - 1))
    table.drop(table.columns[-1]).with_columns(pl.col("throughput_tokens_per_s") + 1).write_parquet(summary)
    status, checks = verified(capsys, "results")
    assert (status, differing(checks)) == (1, {str(first / "summary.json"), str(summary)})


@pytest.mark.usefixtures("_copy")
def test_a_study_that_was_edited_since_is_no_difference_and_is_said(capsys):
    content = yaml.safe_load(CONFIG.read_text())
    content["workloads"]["closed"]["output_tokens"] = 65
    CONFIG.write_text(yaml.safe_dump(content))
    status, checks = verified(capsys, "results")
    assert (status, differing(checks)) == (0, set())
    (why,) = unchecked(checks)
    assert "config/config.yaml defines 4 of the 4 runs differently from when they were drawn" in why
    CONFIG.unlink()
    (why,) = unchecked(verified(capsys, "results")[1])
    assert "config/config.yaml is not here; name it with --configfile" in why
    CONFIG.write_text(yaml.safe_dump(content))
    shutil.rmtree("results/figures")
    (why,) = unchecked(verified(capsys, "results")[1])
    assert "the study is not drawn to its end" in why
    assert main(["verify", "results"]) == 0
    none = "nothing was checked of summaries, figures' data and what was drawn"
    assert capsys.readouterr().out.endswith(f"results: nothing differs in what was checked; {none}\n")


def keep_an_earlier_setting():
    """Its runs alone are kept, as a workflow keeps them whose study has another setting now; the runs of now."""
    now = list(Path("results/runs/d000").iterdir())
    for run in now:
        record = json.loads((run / "run.json").read_text())
        definition = {key: value for key, value in record["definition"].items() if key != "run"}
        whole = {"protocol": record["protocol"], "deployment": "0" * 64, "run": definition}
        record |= {"deployment_digest": "0" * 64, "digest": digest(whole)}
        record["definition"]["run"] = run.name.replace(run.name.rpartition("_")[2], record["digest"][:16])
        earlier = run.with_name(record["definition"]["run"])
        shutil.copytree(run, earlier)
        edit(earlier / "run.json", lambda content, record=record: content.update(record))
    return now


@pytest.mark.usefixtures("_copy")
def test_runs_kept_from_an_earlier_setting_are_no_difference(capsys):
    now, drawn, study = keep_an_earlier_setting(), Path("results/figures/all"), CONFIG.read_text()

    def said(what):
        status, checks = verified(capsys, "results")
        assert (status, differing(checks)) == (0, set()), what

    said("drawn to its end")
    CONFIG.unlink()
    said("without its study")
    CONFIG.write_text(study)
    drawn.unlink()
    for run in now:
        shutil.rmtree(run)
    said("interrupted before the first run of the new setting was done")


def test_what_holds_nothing_to_check_is_refused(there, tmp_path, capsys):
    refused = {tmp_path: "no run (runs/", tmp_path / "absent": "no such file or folder", there / CONFIG: "not a whole pack"}
    for path, told in refused.items():
        assert main(["verify", str(path)]) == 2
        assert told in capsys.readouterr().err
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes((there / "made.tar.gz").read_bytes()[:-2000])
    assert main(["verify", str(cut)]) == 2
    assert main(["verify", str(there / "made.tar.gz"), "--configfile", "x.yaml"]) == 2


# --- Packs


def test_an_intact_pack(there, monkeypatch, capsys):
    monkeypatch.chdir(there)
    status, checks = verified(capsys, "made.tar.gz")
    assert (status, differing(checks)) == (0, set())
    assert unchecked(checks) == ["what the records hold, figures and report: unpack it, draw it, and check the results"]
    counts = {what: check["checked"] for what, check in checks.items()}
    assert counts.pop("files of the pack") > 15
    assert counts == {"runs as measured": 4, "anything else": 0}
    assert main(["verify", "made.tar.gz"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^runs as measured +4 +0 +0$", out, re.MULTILINE)
    assert "who packed it: a pack is not signed" in out
    assert out.endswith("made.tar.gz: nothing differs in what was checked\n")


def test_a_flipped_byte_in_each_kind_of_file_of_a_pack_is_found(there, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(there)
    kinds = ("study.yaml", "run.json", "requests.jsonl", "telemetry.jsonl.gz", "launch.json", "deployment.json")
    names = set()

    def change(members):
        names.update(next(name for name in members if name.endswith(kind)) for kind in kinds)
        return {name: flipped(content) if name in names else content for name, content in members.items()}

    status, checks = verified(capsys, rewritten("made.tar.gz", tmp_path / "x.tar.gz", change))
    assert status == 1
    assert len(names) == len(kinds)
    assert set(checks["files of the pack"]["differs"]) == {
        f"{name}: missing, or not what was packed (SHA-256 in pack.json)" for name in names
    }


def test_a_pack_whose_list_was_written_anew(there, tmp_path, monkeypatch, capsys):
    """Digests and checksums of records are in the records themselves, and agree with one another."""
    monkeypatch.chdir(there)
    edits = {
        "requests.jsonl": lambda content: content.replace(b'"status":200', b'"status":201', 1),
        "run.json": lambda content: content.replace(b'"seed": 0', b'"seed": 1', 1),
    }
    found = []

    def change(members):
        new = {}
        for number, (kind, edit) in enumerate(edits.items()):
            name = sorted(name for name in members if name.endswith(kind))[number]  # no two of one run
            found.append(name)
            new[name] = edit(members[name])
            assert new[name] != members[name]
        return listed_anew(members, new)

    status, checks = verified(capsys, rewritten("made.tar.gz", tmp_path / "x.tar.gz", change))
    assert status == 1
    assert checks["files of the pack"]["differs"] == []
    for name in found:
        assert any(text.startswith(f"{name}: ") for text in checks["runs as measured"]["differs"]), checks

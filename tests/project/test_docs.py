"""The documentation is true: its commands exist, its configurations load, its Python runs, and its links lead somewhere."""

import copy
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer.main
import yaml

from bench import api
from bench.cli import main
from bench.cli.entry import app, loaded
from bench.report import figure as drawn
from bench.study.read import load_config, load_workload
from tests.support.cost import PARTS
from tests.support.figures import results
from tests.support.study import ROOT

README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCED = re.compile(r"^```(\w+)(?: title=\"(.*?)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language):
    """The fenced blocks of all pages: where each stands, the rest of its page, its title and text."""
    for page in PAGES:
        text = page.read_text()
        for number, found in enumerate(_FENCED.finditer(text), 1):
            if found[1] == language:
                yield f"{page.relative_to(ROOT)}, block {number}", text[found.end() :], found[2] or "", found[3]


def commands(text):
    """The commands in a block, each as words, without `.venv/bin/`; a variable that is set in the block is replaced."""
    known = {}
    for line in text.splitlines():
        for part in line.partition("  #")[0].split("&&"):
            words = [
                re.sub(r"\$(\w+)", lambda found: known.get(found[1], found[0]), word)
                for word in shlex.split(part, comments=True)
            ]
            if len(words) == 1 and (given := re.fullmatch(r"(\w+)=(.*)", words[0])):
                known[given[1]] = given[2]
            elif words:
                yield [words[0].removeprefix(".venv/bin/"), *words[1:]]


def parsed(words):
    """A `bench` command, refused if it or one of its options does not exist."""
    root = typer.main.get_command(app)
    context = root.make_context("bench", [], resilient_parsing=True)
    assert root.get_command(context, words[1]), words
    return loaded(words[1]).make_context(words[1], words[2:], parent=context)


def needs_nothing(words):
    """Whether a `bench` command needs neither results nor a server."""
    return (
        words[1:] == ["runs", "--configfile", "my-study.yaml"]
        or (words[1] in ("plan", "models") and "./my-checkpoint" not in words)
        or "--sustained-rps" in words
        or words[1:3] == ["compare", "--metric"]
    )


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A folder in which `make -n` finds what it looks for: the project's, and the files that the pages have their readers make."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("config", "workflow", "profiles", "requirements.lock", "requirements-slurm.lock", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "Makefile", folder)
    named = {name for page in PAGES for name in re.findall(r"CONFIG=([\w-]+\.yaml)", page.read_text())}
    own = {"results/packs/h100/study.yaml", "my-load/study.yaml", "wheels/x-1-py3-none-any.whl", "h100.tar.gz", ".venv/ready"}
    for name in named | own:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    (study,) = (text for place, _, title, text in blocks("yaml") if title == "my-study.yaml" and "own-model.md" in place)
    (folder / "my-study.yaml").write_text(study)
    (folder / "gpus.yaml").write_text("h100: { price_per_hour: 2.5 }\n")
    return folder


@cache
def made(clone, *goals):
    """What is wrong with a call of `make`; each is asked once."""
    done = subprocess.run(["make", "-n", *goals], cwd=clone, capture_output=True, text=True)
    return done.stderr if done.returncode else ""


def check(words, clone, capsys):
    """Run a command where that is cheap, or see that it could be run; what it printed, if it ran."""
    match words:
        case ["make", *rest]:
            assert made(clone, *rest) == "", rest
        case ["bench", *_] if needs_nothing(words):
            assert main(words[1:]) == 0
            return capsys.readouterr().out
        case ["bench", *_]:
            parsed(words)
        case ["python", "-m", module, *_]:
            assert find_spec(module)
        case ["cp", source, _]:
            assert (ROOT / source).is_file()
        case ["snakemake", *_, "--profile", profile, _] | ["snakemake", "--profile", profile, _]:
            assert (ROOT / profile / "config.yaml").is_file()
        case ["snakemake", "--cores", _, *resources, "results/figures/all" | "results/figures/ttft.svg"]:
            assert resources in (
                [],
                ["--resources", "gpu=4"],
                ["--configfile", "config/studies/quick.yaml", "--"],
            )  # the tests of workflows run them
        case _:
            assert words[0] in ("uv", "uvx"), words  # tests/workflow/test_installed.py builds and runs a wheel
    return None


def test_commands_exist_and_print_what_is_shown(clone, capsys, monkeypatch):
    """Those in blocks, and those that stand indented, in the pages that explain and the files in the repository's root."""
    monkeypatch.chdir(clone)
    compared = 0
    for place, rest, _, text in blocks("bash"):
        try:
            printed = [out for words in commands(text) if (out := check(words, clone, capsys)) is not None]
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{place}: {error}") from error
        following = re.match(r"(?:(?!```).)*?^```text\n(.*?)^```$", rest, re.MULTILINE | re.DOTALL)
        for line in following[1].splitlines() if printed and following else ():
            assert line.strip() in ("", "...") or any(line in out for out in printed), (place, line)
            compared += 1
    assert compared > 20
    found = [
        line
        for page in PAGES
        for line in re.findall(r"^    ((?:\.venv/bin/)?(?:bench|make) .*)$", _FENCED.sub("", page.read_text()), re.MULTILINE)
    ]
    assert found
    for line in found:
        for words in commands(line):
            check(words, clone, capsys)


def test_options_in_the_text_exist():
    root = typer.main.get_command(app)
    context = root.make_context("bench", [], resilient_parsing=True)
    for page in PAGES:
        for words in re.findall(r"`(?:\.venv/bin/)?bench (\w+)( [^`\n]*)?`", page.read_text()):
            there = root.get_command(context, words[0])
            if there is None and page.name == "peers.md":  # vLLM's command `bench`
                continue
            assert there, (page, words)
            known = {option for each in loaded(words[0]).params for option in (*each.opts, *each.secondary_opts)}
            assert {word.partition("=")[0] for word in words[1].split() if word.startswith("--")} <= known, (page, words)


# What a part of a study is merged into: the default study, with names that the pages use.
BASE = {**yaml.safe_load((ROOT / "config/config.yaml").read_text()), "decision": {}}
BASE["models"]["llama"] = {"catalogue": "llama-3.1-8b"}
BASE["engines"]["gpu"] = {"source": "command", "command": ["vllm", "serve"], "backend": "cuda"}
BASE["deployments"]["llama"] = {"model": "llama", "engine": "gpu"}


def merged(base, part):
    if not (isinstance(base, dict) and isinstance(part, dict)):
        return part
    return {**base, **{key: merged(base.get(key), value) for key, value in part.items()}}


def whole(part):
    """A whole study of a part: every workload of the part on every deployment of it, unless the part says what is measured."""
    content = merged(copy.deepcopy(BASE), part)
    content["workloads"] |= part.get("workloads", {})  # not merged into those of the same name
    if "study" not in part:
        content["study"]["ladders"] = [
            {"deployment": deployment, "workload": name, load_workload(content["workloads"][name], source=name).axis: [1]}
            for deployment in part.get("deployments", ["llama"])
            for name in part.get("workloads", ["chat"])
        ]
    used = {ladder["deployment"] for ladder in content["study"]["ladders"]}
    content["deployments"] = {name: given for name, given in content["deployments"].items() if name in used}
    return content


@pytest.mark.parametrize("half", [0, 1])
def test_configurations_load(half, tmp_path, clone, capsys, monkeypatch):
    monkeypatch.chdir(clone)
    for place, _, title, text in [*blocks("yaml")][half::2]:
        content = yaml.safe_load(re.sub(r"path: /models/[\w.-]+", f"path: {tmp_path}", text))  # a folder that is here
        if content is None:  # a comment for editors
            assert (ROOT / re.search(r"\$schema=(\S+)", text)[1]).is_file(), place
        elif title.startswith("profiles/"):
            known = (ROOT / title.partition(",")[0]).read_text()
            assert all(f"{key}:" in known for key in [*content, *content["default-resources"]]), place
        elif title.startswith(".github/"):
            steps = [step["run"] for job in content["jobs"].values() for step in job["steps"] if "run" in step]
            assert [check(words, clone, capsys) for step in steps for words in commands(step)], place
        elif title == "gpus.yaml":
            (tmp_path / title).write_text(text)
            plan = ["plan", "--model", "llama-3.1-8b", "--accelerator", "h100", "--hardware", str(tmp_path / title), "--json"]
            assert main(plan) == 0, place
        else:
            complete = {"models", "engines", "deployments", "workloads"} <= content.keys()
            assert load_config(content if complete else whole(content), source=place)


def test_python_runs(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    for place, _, _, text in blocks("python"):
        with monkeypatch.context() as patch:
            patch.setattr(drawn, "DRAWN", dict(drawn.DRAWN))
            exec(text, {"__name__": "example"})  # noqa: S102 - our own
        assert "print(" not in text or capsys.readouterr().out, place


def test_the_python_reference_documents_every_public_name():
    named = re.findall(r"^::: \S+\.(\w+)$", (ROOT / "docs/reference/python.md").read_text(), re.MULTILINE)
    assert sorted([*named, "Comparison"]) == sorted(api.__all__)


def test_every_option_and_every_field_of_a_record_has_a_meaning(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    hooks = import_module("hooks")
    for page in (hooks.commands(), hooks.records()):
        rows = [line for line in page.splitlines() if line.startswith("| `")]
        assert len(rows) > 100
        assert [row for row in rows if re.search(r"\|\s*\|$", row)] == []


def test_the_readme_fits_a_page_and_its_links_lead_somewhere():
    assert len(README.read_text().splitlines()) <= 150
    for page in (README, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"):
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            file, _, anchor = target.partition("#")
            assert (ROOT / file).is_file(), target
            assert not anchor or anchor in anchors(ROOT / file), target


def test_links_between_pages_lead_to_files_too():
    """Pages that the site makes have a file that says so, for readers of the repository."""
    for page in (ROOT / "docs").rglob("*.md"):
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            assert ":" in target or (page.parent / target).exists(), (page, target)
    for name in ("configuration", "cli", "records"):
        assert "The site (`make docs`)" in (ROOT / f"docs/reference/{name}.md").read_text()


def anchors(page):
    """The anchors of a page's headings, as the site and code hosts make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.long(part="outputs")
@pytest.mark.timeout(600)
def test_the_site_loads_nothing_from_elsewhere(tmp_path):
    """Its pages would ask no other host for anything."""
    mkdocs = [Path(sys.executable).parent / "mkdocs", "build", "--quiet", "--site-dir", tmp_path]
    subprocess.run(mkdocs, cwd=ROOT, check=True, env={"NO_MKDOCS_2_WARNING": "1"})
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 30
    by_element = r"<(?:script|img|iframe)[^>]*\ssrc=\"?(https?:[^\s\">]+)"
    by_link = r"<link[^>]*rel=\"?(?:stylesheet|preconnect|icon)[^>]*href=\"?(https?:[^\s\">]+)"
    assert {found for page in pages for found in re.findall(f"{by_element}|{by_link}", page.read_text())} == set()


# docs/contributing.md

CONTRIBUTING = (ROOT / "docs/contributing.md").read_text()


def test_the_map_has_every_room_in_the_contract_s_order():
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    table = CONTRIBUTING.partition("## The rooms")[2].partition("\n## ")[0]
    rooms = [name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert rooms == [name for layer in contract["layers"] for name in layer.split(" | ")]


def test_the_example_of_a_figure_draws(monkeypatch, summary):
    monkeypatch.setattr(drawn, "DRAWN", {})
    (example,) = re.findall(r"```python\n(.*?)```", CONTRIBUTING, re.DOTALL)
    exec(example, {"__name__": "queue"})  # noqa: S102 - our own
    spec = drawn.DRAWN["queue"].draw(results(summary, waiting_peak=(0.0, 1.0, 9.0))).to_dict()
    assert len(spec["layer"]) > 1
    assert any(row.get("waiting_peak") == 9 for rows in spec["datasets"].values() for row in rows)


def test_every_part_of_the_long_tests_is_named_for_some_change():
    table = CONTRIBUTING.partition("| you change |")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"PART=(\w+)", table)) == sorted(PARTS)


def test_the_files_of_make_smoke_are_there():
    listed = (ROOT / "tests/smoke.txt").read_text().split()
    assert listed and [file for file in listed if not (ROOT / file).is_file()] == []

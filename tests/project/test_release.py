"""What is written for those who install, contain or list the project agrees with it, and pins that stand in two places with each other."""

import ast
import re
import tomllib
from importlib import import_module

import pytest
import yaml
from benchmarks.mutation import GROUPS

from bench import __version__
from tests.support.command import bench
from tests.support.study import ROOT

RECIPE = (ROOT / "container/Containerfile").read_text()
(JOB,) = yaml.safe_load_all((ROOT / "container/job.yaml").read_text())


def test_versions_are_one():
    (container,) = JOB["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"saturate-bench:{__version__}"
    assert f"--tag saturate-bench:{__version__} " in RECIPE
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_a_container_holds_what_the_package_is_built_from():
    copied = {name for line in re.findall(r"^COPY (.*)$", RECIPE, re.M) for name in line.split()[:-1]}
    assert {"src", "workflow", "config", "profiles", "requirements.lock", "pyproject.toml", "setup.py", "MANIFEST.in"} <= copied
    assert all((ROOT / name).exists() for name in copied)
    let_in = {line[1:] for line in (ROOT / "container/Containerfile.dockerignore").read_text().splitlines() if line[0] == "!"}
    assert let_in == copied


def test_the_job_s_command_is_one(tmp_path):
    (container,) = JOB["spec"]["template"]["spec"]["containers"]
    words = [re.sub("http://my-server:8000", "http://127.0.0.1:9", word) for word in container["args"]]
    done = bench(*words, cwd=tmp_path)
    assert (done.returncode, "127.0.0.1:9" in done.stderr) == (2, True), done.stderr
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert words[-1].startswith(f"--output-dir={mounted['results']}/")


def test_what_is_checked_before_a_commit_is_what_make_checks():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    makefile = (ROOT / "Makefile").read_text()
    for hook in hooks:
        program, *words = hook["entry"].split()
        assert (ROOT / program).exists()
        assert f"$(BIN)/{program.removeprefix('.venv/bin/')} {' '.join(words[:2])}".strip() in makefile, hook["id"]


def test_the_catalogue_of_workflows_is_told_what_it_asks():
    usage = yaml.safe_load((ROOT / ".snakemake-workflow-catalog.yml").read_text())["usage"]
    assert usage.keys() == {"mandatory-flags", "software-stack-deployment"}
    assert usage["mandatory-flags"].keys() == {"desc", "flags"}
    assert usage["software-stack-deployment"].keys() == {"conda", "apptainer", "apptainer+conda", "report"}
    assert all((ROOT / name).exists() for name in ("workflow/Snakefile", "config/README.md"))


# Pins


LOCKED = dict(re.findall(r"^([a-z0-9-]+)==([^ \\;]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))


def test_the_rules_environment_is_that_of_the_lock():
    content = yaml.safe_load((ROOT / "workflow/envs/bench.yaml").read_text())
    pins = dict(pin.split("==") for pin in content["dependencies"][-1]["pip"])
    assert pins == {name: LOCKED[name] for name in pins}


def test_the_lock_and_the_rules_environment_hold_all_that_the_project_needs():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {re.split(r"[<>=]", d)[0] for d in [*project["dependencies"], *project["optional-dependencies"]["dev"]]}
    assert needed <= set(LOCKED)
    content = yaml.safe_load((ROOT / "workflow/envs/bench.yaml").read_text())
    pins = {pin.split("==")[0] for pin in content["dependencies"][-1]["pip"]}
    assert {re.split(r"[<>=]", d)[0] for d in project["dependencies"]} == pins | {"snakemake"}
    beside = re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements-slurm.lock").read_text(), re.MULTILINE)
    assert {re.split(r"[<>=]", d)[0] for d in project["optional-dependencies"]["slurm"]} <= set(beside)
    assert not set(beside) & set(LOCKED)


def test_every_environment_is_locked_and_renewed():
    makefile = (ROOT / "Makefile").read_text()
    for wanted in (ROOT / "workflow/envs").glob("*.in"):
        pin = next(line for line in wanted.read_text().splitlines() if line.startswith(("vllm", "xllamacpp", "sglang")))
        assert f"\n{pin} \\\n    --hash=" in f"\n{wanted.with_suffix('.lock').read_text()}"
        assert pin.split("==")[1] in makefile


# What the benchmarks import of the library, also inside functions, is there: most of them run by hand, and seldom


@pytest.fixture(scope="module")
def imported():
    """What benchmarks import of the library, by module, which is imported."""
    found = {}
    for file in [path for path in (ROOT / "benchmarks").rglob("*.py") if ".peers" not in path.parts]:
        tree = ast.parse(file.read_text())
        guarded = {
            id(each) for node in ast.walk(tree) if isinstance(node, ast.Try) for each in ast.walk(node)
        }  # older checkouts
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bench.") and id(node) not in guarded:
                _, names = found.setdefault(node.module, (import_module(node.module), set()))
                names |= {each.name for each in node.names}
    return found


def test_what_a_benchmark_imports_of_the_library_is_there(imported):
    assert len(imported) > 40
    for name, (module, names) in imported.items():
        for missing in [each for each in names if not hasattr(module, each)]:
            import_module(f"{name}.{missing}")


def test_what_is_mutated_and_its_tests_are_there():
    named = {file for modules, tests in GROUPS.values() for file in (*modules, *(f"tests/{name}.py" for name in tests))}
    assert [file for file in sorted(named) if not (ROOT / file).is_file()] == []

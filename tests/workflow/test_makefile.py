"""What `make` is told reaches the workflow."""

import os
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.support.forked import snakemake
from tests.support.study import ROOT


def command(*words):
    """The workflow's command, as `make` would run it."""
    result = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    line = next(line for line in result.splitlines() if "bin/snakemake" in line)
    parts = shlex.split(line)
    return parts[next(i for i, part in enumerate(parts) if part.endswith("bin/snakemake")) + 1 :]


def test_a_study_and_a_selection_reach_the_workflow():
    words = command("figures", "CONFIG=config/studies/concurrency-small.yaml", "SELECT=falcon*_c0002_*")
    result = snakemake(*words, "--dry-run", folder=ROOT)
    assert result.returncode == 0, result.stderr
    assert "falcon-40b-small/short_burst_p32_o64_c0002" in result.stdout
    assert "c0004" not in result.stdout


def test_a_key_that_is_refused_is_named_without_snakemakes_words(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text((ROOT / "config/studies/quick.yaml").read_text().replace("kv_cache_memory", "kv_cache_size"))
    done = snakemake(*command("figures", f"CONFIG={file}"), folder=ROOT)
    assert done.returncode == 1
    first, refused = done.stderr.splitlines()[-2:]
    assert first.endswith("The configuration is refused:")
    assert refused == f"{file}: deployments.tiny-mqa.kv_cache_size is not a key. Did you mean kv_cache_memory?"
    assert "WorkflowError" not in done.stdout + done.stderr


@pytest.mark.parametrize(("name", "begins"), [("sizing", "engine"), ("running-server", "deploy"), ("two-settings", "engine")])
def test_a_template_gets_as_far_as_its_server(name, begins):
    words = command("figures", f"CONFIG=config/templates/{name}.yaml")
    result = snakemake(*words, "--dry-run", folder=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"rule {begins}:" in result.stdout


@pytest.mark.parametrize(
    "words", [["figures", "config/config.yaml"], ["config/config.yaml"], ["figures", "config=config/config.yaml"]]
)
def test_a_study_that_is_named_without_config_is_not_the_default_one(words):
    result = subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 2
    assert "make figures CONFIG=config/config.yaml" in result.stderr


def test_a_study_that_is_none_lists_those_that_are():
    result = subprocess.run(["make", "study", "STUDY=nope"], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode != 0
    assert "NAME one of: archetypes-small archetypes classes-small concurrency-small" in result.stderr


def test_a_pack_measures_alone_and_packs_what_was_measured():
    result = subprocess.run(
        ["make", "-n", "pack", "CONFIG=config/studies/h100-small.yaml"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "snakemake --nolock --cores all measured --keep-going --configfile config/studies/h100-small.yaml" in result
    assert "bench pack --configfile config/studies/h100-small.yaml" in result
    result = subprocess.run(["make", "-n", "pack", "CONFIG=Makefile README.md"], cwd=ROOT, capture_output=True, text=True)
    assert (result.returncode, "make pack takes one CONFIG" in result.stderr) == (2, True)


def test_without_network_every_installer_looks_in_one_folder(tmp_path):
    result = subprocess.run(["make", "-n", "pack", f"WHEELS={tmp_path}"], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode != 0
    assert "no wheel is there. `bench wheels` fetches them" in result.stderr
    (tmp_path / "x-1-py3-none-any.whl").touch()
    mine = tmp_path / "mine.mk"
    mine.write_text("tell:\n\t@env\n")
    result = subprocess.run(
        ["make", "-f", ROOT / "Makefile", "-f", mine, "tell", f"WHEELS={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert {f"PIP_FIND_LINKS={tmp_path}", "PIP_NO_INDEX=1", f"UV_FIND_LINKS={tmp_path}", "UV_OFFLINE=1"} <= set(result)


def test_a_configuration_that_snakemake_cannot_read_is_named(tmp_path):
    for name, text, said in (("latin", b"study: \xe9\n", "not UTF-8"), ("deep", b"study: " + b"[" * 5000, "nested more than")):
        (tmp_path / f"{name}.yaml").write_bytes(text)
        result = subprocess.run(
            [sys.executable, "-m", "bench.study", tmp_path / f"{name}.yaml"], capture_output=True, text=True
        )
        assert result.returncode == 1
        assert result.stderr.startswith(f"{tmp_path / name}.yaml")
        assert said in result.stderr
        assert "Traceback" not in result.stderr
    made = subprocess.run(
        ["make", "-n", "figures", "CONFIG=config/config.yaml"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert made.stdout.index("-m bench.study config/config.yaml") < made.stdout.index("bin/snakemake")


def setup_of(tmp_path, *, ready):
    """A copy of the project's Makefile whose .venv is a link to somebody's environment."""
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "theirs/bin").mkdir(parents=True)
    (tmp_path / "theirs/precious").write_text("x")
    (tmp_path / ".venv").symlink_to("theirs")
    if ready:
        (tmp_path / "theirs/ready").touch()
    return subprocess.run(["make", "setup"], cwd=tmp_path, capture_output=True, text=True)


def test_an_environment_behind_a_link_is_never_emptied(tmp_path):
    done = setup_of(tmp_path, ready=False)
    assert done.returncode == 2
    assert "Nothing was changed: .venv is a link to theirs, and setting it up would empty that folder" in done.stderr
    assert (tmp_path / "theirs/precious").exists()
    assert (tmp_path / ".venv").is_symlink()


def test_a_link_to_nothing_is_named_too(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("requirements.lock", "pyproject.toml"):
        (tmp_path / name).touch()
    (tmp_path / ".venv").symlink_to("nowhere")
    done = subprocess.run(["make", "setup"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, ".venv is a link to nowhere" in done.stderr) == (2, True)
    assert not (tmp_path / "nowhere").exists()


def test_a_ready_environment_behind_a_link_is_used(tmp_path):
    done = setup_of(tmp_path, ready=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "theirs/precious").exists()


def test_a_cluster_s_profile_in_the_environment_does_not_reach_the_workflow(tmp_path):
    mine = tmp_path / "mine.mk"
    mine.write_text("tell:\n\t@env\n\t@$(UNUSED)\n")
    done = subprocess.run(
        ["make", "-f", ROOT / "Makefile", "-f", mine, "tell"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "SNAKEMAKE_PROFILE": 'o"dd', "SNAKEMAKE_SLURM_PARTITIONS": "kept"},
    )
    assert "SNAKEMAKE_PROFILE" not in done.stdout
    assert "SNAKEMAKE_SLURM_PARTITIONS=kept" in done.stdout
    assert "SNAKEMAKE_PROFILE is set and not used" in done.stderr

"""What `make` is told reaches the workflow; what it cannot mean is refused."""

import os
import runpy
import shlex
import shutil
import subprocess
import sys

from tests.support.forked import snakemake
from tests.support.study import ROOT


def make(*words, folder=ROOT, status=0, **more):
    done = subprocess.run(["make", *words], cwd=folder, capture_output=True, text=True, **more)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def command(*words):
    """The workflow's command, as `make` would run it."""
    line = next(line for line in make("-n", *words).stdout.splitlines() if "bin/snakemake" in line)
    parts = shlex.split(line)
    return parts[next(i for i, part in enumerate(parts) if part.endswith("bin/snakemake")) + 1 :]


def test_a_study_its_scale_and_a_selection_reach_the_workflow():
    words = command("figures", "CONFIG=config/studies/families.yaml", "SELECT=falcon*_c0002_*", "SCALE=cpu")
    result = snakemake(*words, "--dry-run", folder=ROOT)
    assert result.returncode == 0, result.stderr
    assert "deployment=falcon-40b-small" in result.stdout
    assert "gpt2" not in result.stdout


def test_a_pack_measures_alone_and_packs_what_was_measured():
    said = subprocess.run(
        ["make", "-n", "pack", "CONFIG=config/studies/h200.yaml", "SCALE=cpu"], cwd=ROOT, capture_output=True, text=True
    ).stdout
    assert (
        "snakemake --nolock --cores all measured --keep-going --configfile config/studies/h200.yaml --config  scale=cpu" in said
    )
    assert "bench pack --configfile config/studies/h200.yaml  --scale cpu" in said


def test_a_key_that_is_refused_is_named_without_snakemakes_words(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text((ROOT / "config/studies/quick.yaml").read_text().replace("kv_cache_memory", "kv_cache_mem"))
    done = snakemake(*command("figures", f"CONFIG={file}"), folder=ROOT)
    assert done.returncode == 1
    first, refused = done.stderr.splitlines()[-2:]
    assert first.endswith("The configuration is refused:")
    assert refused == f"{file}: deployments.tiny-mqa.kv_cache_mem is not a key. Did you mean kv_cache_memory?"
    said = done.stdout + done.stderr
    assert not [word for word in ("WorkflowError", "Traceback", "rule ") if word in said]


def test_what_make_cannot_mean_is_refused(tmp_path):
    for words, said in (
        (["-n", "figures", "config/config.yaml"], "make figures CONFIG=config/config.yaml"),
        (["-n", "config/config.yaml"], "make figures CONFIG=config/config.yaml"),
        (["-n", "figures", "config=config/config.yaml"], "make figures CONFIG=config/config.yaml"),
        (["figures", "CONFIG=nope.yaml"], "CONFIG=nope.yaml: no such file. There are: config/config.yaml config/studies/arch"),
        (["study", "STUDY=nope"], "NAME one of: archetypes factors families fleet-small"),
        (["-n", "pack", "CONFIG=Makefile README.md"], "make pack takes one CONFIG"),
        (["-n", "pack", f"WHEELS={tmp_path}"], f"no wheel is there. `make wheels DIR={tmp_path}` fetches them"),
    ):
        refused = make(*words, status=2).stderr
        assert said in refused and "Traceback" not in refused, words


def told(folder, *words, more="", **environment):
    """What the commands of a rule are told of the environment, and what `make` says beside."""
    mine = folder / "mine.mk"
    mine.write_text(f"tell:\n\t@env\n{more}")
    return make("-f", ROOT / "Makefile", "-f", mine, "tell", *words, env={**os.environ, **environment})


def test_without_network_every_installer_looks_in_one_folder(tmp_path):
    (tmp_path / "x-1-py3-none-any.whl").touch()
    said = told(tmp_path, f"WHEELS={tmp_path}").stdout.splitlines()
    assert {f"PIP_FIND_LINKS={tmp_path}", "PIP_NO_INDEX=1", f"UV_FIND_LINKS={tmp_path}", "UV_OFFLINE=1"} <= set(said)


def test_a_cluster_s_profile_in_the_environment_does_not_reach_the_workflow(tmp_path):
    done = told(tmp_path, more="\t@$(UNUSED)\n", SNAKEMAKE_PROFILE='o"dd', SNAKEMAKE_SLURM_PARTITIONS="kept")
    assert "SNAKEMAKE_PROFILE" not in done.stdout
    assert "SNAKEMAKE_SLURM_PARTITIONS=kept" in done.stdout
    assert "SNAKEMAKE_PROFILE is set and not used" in done.stderr


def test_a_configuration_that_snakemake_cannot_read_is_named(tmp_path):
    for name, text, said in (("latin", b"study: \xe9\n", "not UTF-8"), ("deep", b"study: " + b"[" * 5000, "nested more than")):
        (tmp_path / f"{name}.yaml").write_bytes(text)
        words = [sys.executable, "-m", "bench.study", tmp_path / f"{name}.yaml"]
        result = subprocess.run(words, capture_output=True, text=True)
        assert result.returncode == 1
        assert result.stderr.startswith(f"{tmp_path / name}.yaml")
        assert said in result.stderr
        assert "Traceback" not in result.stderr
    made = make("-n", "figures", "CONFIG=config/config.yaml").stdout
    assert made.index("-m bench.study config/config.yaml") < made.index("bin/snakemake")


def test_an_environment_behind_a_link_is_used_if_it_is_ready_and_never_emptied(tmp_path):
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "theirs/bin").mkdir(parents=True)
    (tmp_path / "theirs/precious").write_text("x")
    for to in ("nowhere", "theirs"):
        (tmp_path / ".venv").unlink(missing_ok=True)
        (tmp_path / ".venv").symlink_to(to)
        refused = make("setup", folder=tmp_path, status=2).stderr
        assert f"Nothing was changed: .venv is a link to {to}, and setting it up would empty that folder" in refused
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "theirs/ready").touch()
    make("setup", folder=tmp_path)
    assert (tmp_path / "theirs/precious").exists()
    assert (tmp_path / ".venv").is_symlink()


def test_wheels_are_those_of_the_python_they_are_for(tmp_path):
    pins = runpy.run_path(str(ROOT / "workflow/envs/wheels.py"))["pins"]
    lock = tmp_path / "x.lock"
    lock.write_text(
        "plain==1.0 \\\n    --hash=sha256:aa\n"
        "native==1.0 ; python_full_version >= '3.12' and platform_machine == 'aarch64' \\\n    --hash=sha256:bb \\\n    --hash=sha256:cc\n"
        "absent==1.0 ; python_full_version < '3.12' or sys_platform == 'win32' \\\n    --hash=sha256:dd\n"
    )
    plain = "plain==1.0 \\\n    --hash=sha256:aa\n"
    assert pins(lock, "3.12", "x86_64") == plain
    assert pins(lock, "3.12", "aarch64") == f"{plain}native==1.0 \\\n    --hash=sha256:bb \\\n    --hash=sha256:cc\n"
    said = make("-n", "wheels", "CONFIG=config/studies/quick.yaml", "DIR=there", "FOR=3.13").stdout
    assert "workflow/envs/wheels.py config/studies/quick.yaml there 3.13 x86_64" in said

"""A project that runs on the tests' own cluster."""

import pytest

from tests.support.end_to_end import CONFIG
from tests.support.project import Project

STEADY = {"arrival": "constant", "prompt_tokens": 32, "output_tokens": 8, "num_requests": 10}


# The plugin asks for the state of jobs ever more rarely, up to every 180 s.
OFTEN = """
if "snakemake_executor_plugin_slurm" in sys.modules:
    sys.modules["snakemake_executor_plugin_slurm"].Executor.next_seconds_between_status_checks = property(lambda _: 1, lambda _, to: None)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Two deployments of a real engine. The sessions take a while, so that there is a middle; that of `one` more than 30 s."""
    project = Project(tmp_path_factory.mktemp("project").resolve(), CONFIG)
    project.config["study"]["ladders"] = [
        {"deployment": "one", "workload": "steady", "request_rate": [1.25], "repeats": 4},
        {"deployment": "two", "workload": "steady", "request_rate": [10], "repeats": 7},
    ]
    project.config["deployments"]["two"] = project.config["deployments"]["one"] | {"max_num_seqs": 2}
    project.config["workloads"] = {"steady": STEADY}
    with (project.folder / "workflow/Snakefile").open("a") as file:
        file.write(OFTEN)
    yield project
    for process in project.processes():
        process.kill()


def command(project, *arguments, target="results/figures/all", accounting=False):
    profile = "profiles/slurm" if accounting else "profiles/slurm-no-accounting"
    words = project.command("--profile", profile, *arguments, target=target)
    at = words.index("--cores")
    return words[:at] + words[at + 2 :]

"""The help page: groups of commands, with a line of help each.

A command is a file of `bench.cli.commands`, or what the entry point `command.NAME` in `saturate.plugins` names.
"""

from __future__ import annotations

from bench.plugins import names, origin

COMMANDS = {
    "Before anything is measured": {
        "plan": "Plan a model on a GPU: what fits, the load it could hold, its speed ceilings; or list the models.",
        "fleet": "Size a fleet: instances, GPUs, admission limits and cost; from results, from numbers, or from predictions of a load.",
    },
    "A study": {
        "demo": "Measure a server whose capacity is planted, in seconds: what a study is, and what its report looks like.",
        "init": "Begin a study in a folder of its own.",
        "runs": "List a study's runs with the state of each, from the files of this folder, or forget some: no server is contacted.",
        "tune": "Find the best of a study's servers: which settings sustain the most, and what they gain over the default.",
        "compare": "Compare two sets of results: is one better or worse, and could it have been seen?",
    },
    "One stage, against any server": {
        "find": "Find the highest load that a server sustains within SLOs.",
        "workload": "Send load to a server and record every request.",
        "scrape": "Scrape Prometheus endpoints into a file.",
        "parse": "Turn a run's raw records into tables and a summary, with a verdict on the run.",
        "figures": "Draw the figures of parsed runs.",
    },
    "To another machine, and checked": {
        "pack": "Put a study's measured runs into one file.",
        "unpack": "Take in the runs that another machine packed.",
        "verify": "Check that a pack or a folder of results is what was measured.",
    },
    "Beside studies: other tools, production, answers": {
        "import": "Read other tools' result files, and show their runs beside our own.",
        "export": "Write a measured deployment as a command, a Compose file or a Kubernetes manifest, with what was held fixed.",
        "guard": "Write alerts, a dashboard and limits for production from what a study measured of a server.",
        "drifted": "Compare production, as Prometheus saw it, with what a study measured.",
        "traffic": "Read an access log: what the traffic is, and a load that replays it.",
        "grade": "Grade kept answers with the tests of their set, beside throughput.",
    },
}
ABOUT = (
    "Saturate: find where an LLM inference server saturates, and why.",
    "`bench init` begins a study and prints the command that runs it; in a clone of the project, `make figures` does. The other "
    "commands plan a study, look at one, or run a single stage against any OpenAI-compatible server.",
)
END = (
    "`bench COMMAND --help` has examples. `bench --version` shows the version; `bench --install-completion` completes options.",
    "Exit status: 0 for success; 1 for a bad result; 2 for what you can fix; 3 where what was measured does not decide; 70 after a "
    "traceback, a fault of `bench` itself; 130 after Ctrl-C; 143 after SIGTERM.",
)


def others() -> dict[str, dict[str, str]]:
    """The commands that other packages add, as a group; none without any."""
    own = {name for group in COMMANDS.values() for name in group}
    found = {name: f"Added by {origin('command', name)}." for name in names("command") if name not in own}
    return {"Of other packages": found} if found else {}

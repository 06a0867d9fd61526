"""What a workflow shows in a terminal and in CI: the logger plugin, fed with what Snakemake logs."""

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake_interface_logger_plugins.common import LogEvent

import snakemake_logger_plugin_saturate as plugin
from tests.support.snapshots import same


@pytest.fixture
def handler(monkeypatch):
    """A handler, with a clock that stands at `handler.now` seconds."""

    def made(**settings):
        off = dict.fromkeys(("stdout", "nocolor", "dryrun", "verbose", "printshellcmds"), False)
        defaults = {**off, "quiet": set(), "show_failed_logs": True}
        it = plugin.LogHandler(SimpleNamespace(**{**defaults, **settings}), None)
        it.now = 0.0
        monkeypatch.setattr(plugin.time, "monotonic", lambda: it._start + it.now)
        it._start = it._begin = 0.0  # so that no sum of times is rounded
        return it

    return made


def log(handler, event=None, text=None, level=logging.INFO, **extra):
    named = {"msg": text, "levelno": level, "levelname": logging.getLevelName(level), "event": event}
    handler.emit(logging.makeLogRecord({**named, **extra}))


A = {"deployment": "a", "session": "1"}


def job(handler, number, rule, **wildcards):
    log(handler, LogEvent.JOB_INFO, jobid=number, rule_name=rule, wildcards=wildcards, output=[], log=[])


def done(handler, number, after_s=0.0):
    handler.now += after_s
    log(handler, LogEvent.JOB_FINISHED, "Finished", job_id=number)


def failed(handler, **told):
    log(handler, LogEvent.JOB_ERROR, "Error in rule", logging.ERROR, **{"jobid": 1, "rule_name": "measure", "log": [], **told})


SCRIPT = "RuleException:\nCalledProcessError in file measure.smk, line 8:\nCommand 'python .snakemake/scripts/tmp1.measure.py' "


def whole(it, _):
    """A workflow from its engine to its figures."""
    log(it, text="Building DAG of jobs...")
    log(it, LogEvent.RESOURCES_INFO, "Provided cores: 1")
    stats = {"engine": 1, "deploy": 2, "measure": 3, "parse": 3, "figure": 2, "total": 11}
    log(it, LogEvent.RUN_INFO, "Job stats: ...", stats=stats)
    job(it, 1, "engine", engine="vllm-cpu")
    done(it, 1, after_s=75)
    job(it, 2, "measure", **A)
    done(it, 2, after_s=100)
    log(it, LogEvent.PROGRESS, done=2, total=46)
    job(it, 3, "measure", deployment="a", session="2")
    job(it, 10, "parse", **A)
    done(it, 10, after_s=60)
    job(it, 60, "figure", figure="ttft")
    job(it, 61, "figure", figure="e2e")
    job(it, 62, "somebody_elses")


def ended_badly(it, file):
    """A job that fails is named at once, and again at the end with the end of its log."""
    file.write_text("".join(f"line {i}\n" for i in range(40)))
    job(it, 1, "measure", **A)
    log(it, LogEvent.ERROR, f"{SCRIPT}failed", logging.ERROR)
    failed(it, log=[file.name])
    log(it, None, "Cannot restore results/x.json: no backup found.", logging.WARNING)
    log(it, text="Complete log(s): x.log")
    log(it, LogEvent.ERROR, "WorkflowError:\nAt least one job did not complete successfully.", logging.ERROR)
    it.close()
    it.close()


def stopped(it, file):
    """By Ctrl-C: no failure, and nothing of it is repeated."""
    file.write_text("line\n2026-11-30T16:38:09Z ending on SIGINT; what is finished is kept\n")
    job(it, 1, "measure", **A)
    failed(it, log=[file.name])
    log(it, text="Complete log(s): x.log")
    log(it, LogEvent.ERROR, "WorkflowError:\nAt least one job did not complete successfully.", logging.ERROR)
    it.close()


def tried_again(it, _):
    """What succeeds the second time has not failed."""
    log(it, LogEvent.RUN_INFO, "", stats={"measure": 2})
    job(it, 1, "measure", **A)
    failed(it)
    job(it, 1, "measure", **A)
    done(it, 1)
    log(it, text="Complete log(s): x.log")
    it.close()


def ended_by_others(it, file):
    """By a cluster, which says why; by a signal of which the job wrote nothing. What it wrote itself, or on SIGTERM, stands above."""
    failed(it, rule_msg="SLURM-job '12' failed, SLURM status is: 'OUT_OF_MEMORY'.", log=["a.log"])
    file.write_text("line\n2026-11-30T16:38:09Z ending on SIGTERM; what is finished is kept\n")
    failed(it, jobid=2, rule_msg="SLURM-job '13' failed, SLURM status is: 'TIMEOUT'.", log=[file.name])
    for end in ("died with <Signals.SIGKILL: 9>.", *(f"returned non-zero exit status {status}." for status in (137, 143, 1))):
        log(it, LogEvent.ERROR, f"{SCRIPT}{end}", logging.ERROR)


def told(it, _):
    """What a user has to know."""
    log(it, None, "Something is odd", logging.WARNING)
    log(it, None, "Conda environment file x does not end in .yaml", logging.WARNING)
    log(it, LogEvent.ERROR, "WorkflowError:\nthe configuration is refused", logging.ERROR)
    log(it, None, "Nothing to be done (all requested files are present and up to date).")


@pytest.mark.usefixtures("here")
def test_a_workflow_in_plain_words(handler, capsys):
    lines = []
    for course in (whole, ended_badly, tried_again, ended_by_others, told, stopped):
        course(handler(), Path("a.log"))
        lines += [f"# {course.__name__}", *capsys.readouterr().err.splitlines()]
    same("workflow", lines)


def test_who_asks_for_the_jobs_gets_snakemakes_listing(handler, capsys):
    job_info = dict.fromkeys(("rule_msg", "benchmark", "reason", "indent"), None) | {
        "event": LogEvent.JOB_INFO, "jobid": 1, "rule_name": "parse", "wildcards": {"session": "1"}, "output": ["x"], "input": [], "log": [],
        "local": False, "is_checkpoint": False, "priority": 0, "threads": 1, "resources": {},
    }  # fmt: skip
    for setting in ("dryrun", "verbose", "printshellcmds"):
        handler(**{setting: True}).emit(logging.makeLogRecord({"msg": "", "levelname": "INFO", **job_info}))
        assert "rule parse:\n    output: x\n    jobid: 1\n" in capsys.readouterr().err, setting


def test_the_report_is_named_where_it_is_what_was_asked_for(handler, capsys, tmp_path, monkeypatch):
    drawn, both = ["parse", "aggregate", "report"], ("report.html", "figures/all")
    for name, (rules, settings, files, said) in {
        "drawn": (drawn, {}, both, True),
        "with its jobs": (drawn, {"printshellcmds": True}, both, True),
        "a dry run": (drawn, {"dryrun": True}, both, False),
        "no page": (drawn, {}, ("figures/all",), False),
        "no manifest": (drawn, {}, ("report.html",), False),
        "another study's, perhaps": (["parse", "aggregate"], {}, both, False),
        "measured alone": (["measure", "measured"], {}, both, False),
        "deployed alone": (["deploy"], {"verbose": True}, both, False),
    }.items():
        for file in files:
            (tmp_path / name / "results" / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / "results" / file).write_text('{"closing": ["The report: results/report.html"]}')
        monkeypatch.chdir(tmp_path / name)
        it = handler(**settings)
        log(it, LogEvent.RULEGRAPH, rulegraph={"nodes": [{"rule": rule} for rule in rules], "links": []})
        assert capsys.readouterr().err == "", name
        log(it, text="Nothing to be done (all requested files are present and up to date).")
        assert ("The report:" in capsys.readouterr().err) == said, name


def test_a_refusal_is_shown_without_the_places_in_the_rules(handler, capsys):
    for settings in ({}, {"dryrun": True}):
        for text in (
            "The configuration is refused:\nmine.yaml: no.",
            "the pack lacks 1 run. Unpack it.",
            "nothing was started: no server",
        ):
            raised = f'WorkflowError in file "/w/common.smk", line 58:\n{text}\n  File "/w/common.smk", line 58, in <module>'
            log(handler(**settings), LogEvent.ERROR, raised, logging.ERROR)
            shown = capsys.readouterr().err
            assert text in shown and "common.smk" not in shown, (settings, text)

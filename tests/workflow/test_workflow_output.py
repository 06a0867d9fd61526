"""What a workflow shows in a terminal and in CI: the logger plugin, fed with what Snakemake logs."""

import logging
from types import SimpleNamespace

import pytest
from snakemake_interface_logger_plugins.common import LogEvent

import snakemake_logger_plugin_saturate as plugin


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


def test_a_whole_workflow_in_plain_words(handler, capsys):
    it = handler()
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
    assert capsys.readouterr().err.splitlines() == [
        "[ 0:00] Preparing the engine vllm-cpu",
        "[ 1:15] Measuring a; 1 of 3 sessions",
        "[ 2:55] Measuring a; 2 of 3 sessions",
        "[ 2:55] Parsing the runs of a",
        "[ 3:55] Drawing 2 figures",
    ]


def test_a_failed_job_is_named_at_once_and_shows_the_end_of_its_log_at_the_end(handler, capsys, tmp_path):
    it, file = handler(), tmp_path / "a.log"
    file.write_text("".join(f"line {i}\n" for i in range(40)))
    job(it, 1, "measure", **A)
    script = "RuleException:\nCalledProcessError in file measure.smk, line 8:\nCommand 'python .snakemake/scripts/tmp1.measure.py' failed"
    log(it, LogEvent.ERROR, script, logging.ERROR)
    failed(it, log=[str(file)])
    log(it, None, "Cannot restore results/x.json: no backup found.", logging.WARNING)
    log(it, text="Complete log(s): x.log")
    log(it, LogEvent.ERROR, "WorkflowError:\nAt least one job did not complete successfully.", logging.ERROR)
    assert capsys.readouterr().err.splitlines()[1:] == [
        f"[ 0:00] Failed: measure a 1, see {file}",
        "[ 0:00] Complete log(s): x.log",
    ]
    it.close()
    it.close()
    last = [f"        | line {i}" for i in range(25, 40)]
    assert capsys.readouterr().err.splitlines() == [f"[ 0:00] Failed: measure a 1, {file} ends with", *last]


def test_a_job_that_is_tried_again_and_succeeds_has_not_failed(handler, capsys):
    it = handler()
    log(it, LogEvent.RUN_INFO, "", stats={"measure": 2})
    job(it, 1, "measure", **A)
    failed(it)
    job(it, 1, "measure", **A)
    done(it, 1)
    assert capsys.readouterr().err.splitlines() == [
        "[ 0:00] Measuring a; 1 of 2 sessions",
        "[ 0:00] Failed: measure a 1",
        "[ 0:00] Measuring a; 1 of 2 sessions",
    ]
    log(it, text="Complete log(s): x.log")
    it.close()
    assert capsys.readouterr().err == ""


def test_why_a_cluster_ended_a_job_is_shown(handler, capsys):
    reason = "SLURM-job '12' failed, SLURM status is: 'OUT_OF_MEMORY'."
    failed(handler(), rule_msg=reason, log=["a.log"])
    assert capsys.readouterr().err.splitlines() == ["[ 0:00] Failed: measure, see a.log", f"[ 0:00] {reason}"]


def test_a_job_that_was_killed_is_shown_with_its_signal(handler, capsys):
    """Out of memory, for one: it wrote nothing about it. What it wrote itself, with status 1 or on SIGTERM, stands above."""
    for end, shown in (
        ("died with <Signals.SIGKILL: 9>.", True),
        ("returned non-zero exit status 137.", True),
        ("returned non-zero exit status 143.", False),
        ("returned non-zero exit status 1.", False),
    ):
        text = f"RuleException:\nCalledProcessError in file measure.smk, line 8:\nCommand 'python .snakemake/scripts/tmp1.measure.py' {end}"
        log(handler(), LogEvent.ERROR, text, logging.ERROR)
        assert (end in capsys.readouterr().err) == shown, end


def test_what_a_user_has_to_know_is_shown(handler, capsys):
    for level, text in (
        (logging.WARNING, "Something is odd"),
        (logging.WARNING, "Conda environment file x does not end in .yaml"),
        (logging.ERROR, "WorkflowError:\nthe configuration is refused"),
        (logging.INFO, "Nothing to be done (all requested files are present and up to date)."),
    ):
        log(handler(), LogEvent.ERROR if level == logging.ERROR else None, text, level)
        assert text in capsys.readouterr().err


def test_who_asks_for_the_jobs_gets_snakemakes_listing(handler, capsys):
    job_info = dict.fromkeys(("rule_msg", "benchmark", "reason", "indent"), None) | {
        "event": LogEvent.JOB_INFO, "jobid": 1, "rule_name": "parse", "wildcards": {"session": "1"}, "output": ["x"], "input": [], "log": [],
        "local": False, "is_checkpoint": False, "priority": 0, "threads": 1, "resources": {},
    }  # fmt: skip
    for setting in ("dryrun", "verbose", "printshellcmds"):
        handler(**{setting: True}).emit(logging.makeLogRecord({"msg": "", "levelname": "INFO", **job_info}))
        assert "rule parse:\n    output: x\n    jobid: 1\n" in capsys.readouterr().err, setting


def test_an_unknown_rule_has_its_name(handler, capsys):
    job(handler(), 1, "somebody_elses")
    assert capsys.readouterr().err == "[ 0:00] somebody_elses\n"


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

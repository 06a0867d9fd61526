"""`bench watch`: what is seen of a session from its files, which a test writes step by step."""

import gzip
import io
import json
import os
import socket
from dataclasses import asdict, replace
from datetime import UTC, datetime

import psutil
import pytest
from rich.console import Console

from bench.records.files import write_record
from bench.records.progress import FinishedRun, RunUnderWay, SessionProgress, read_progress
from bench.records.run import Client
from bench.telemetry.scraper import scraping
from bench.watch import Watcher, follow
from bench.watch.lines import as_json, left_text, news, state_text
from bench.watch.panel import draw
from bench.watch.tail import Tail
from tests.support import records as made
from tests.support.fake_server import fake_server
from tests.support.server import eventually
from tests.support.study import ROOT

GOLDEN = (ROOT / "tests/data/vllm-0.32.0.prom").read_text()
URL = "http://127.0.0.1:8000/metrics"
RUN = RunUnderWay(
    run="short_c0004_r1", number=2, workload="chat", axis="concurrency", level=4.0, round=1, requests=40, output_tokens=2560,
    since=1000.0, expected_s=20.0, folder="../../.store/.unfinished-a-xyz",
)  # fmt: skip
DONE = FinishedRun(
    run="short_c0001_r1", workload="chat", axis="concurrency", level=1.0, round=1, folder="../../.store/digest", tokens_per_s=50.0,
    ttft_p50_s=0.02, duration_s=10.0, requests=4, failed=0,
)  # fmt: skip


def progress(**changed):
    """A session that measures its second run of three, by a host whose clock shows 1000 s."""
    base = SessionProgress(
        study="A study", deployment="a", engine="vllm-cpu", session=1, place=1, sessions=2, host="here", pid=7,
        process_started=900.0, state="measuring", since=1000.0, began=900.0, written=1000.0, runs=3, study_runs=6, study_done=0,
        run=RUN, finished=(DONE,), left_s=30.0, study_left_s=90.0,
    )  # fmt: skip
    return replace(base, **changed)


def exposition(**values):
    """vLLM's, with these values by the names of its metrics."""
    lines = []
    for line in GOLDEN.splitlines():
        name = line.split("{")[0].removeprefix("vllm:")
        lines.append(f"{line.rsplit(' ', 1)[0]} {values[name]}" if name in values else line)
    return "\n".join(lines) + "\n"


def scrape(received, **values):
    return {"slot": 0, "endpoint": URL, "due": received, "sent": received, "received": received, "text": exposition(**values)}


class Machine:
    """Files of sessions, and a clock that a test moves. File times are the clock's, as on one machine or its file server.

    Attributes:
        fast_s: by how much the clock of the file system is ahead of ours.
    """

    def __init__(self, root):
        self.root, self.now, self.fast_s, self.living = root, 1000.0, 0.0, {7}
        self.watcher = self.new_watcher()

    def new_watcher(self):
        alive = {"alive": lambda pid, _started: pid in self.living}
        return Watcher(self.root, clock=lambda: self.now, monotonic=lambda: self.now, host="here", **alive)

    def write(self, record, name="a"):
        path = self.root / f"results/deployments/{name}/progress.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_record(record, path)
        self.touch(path)

    def touch(self, path):
        os.utime(path, (self.now + self.fast_s,) * 2)

    @property
    def telemetry(self):
        path = self.root / "results/.store/.unfinished-a-xyz/telemetry.jsonl.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def look(self):
        return self.watcher.look()

    def tell(self, *lines):
        """Telemetry of the run under way."""
        self.telemetry.write_bytes(gzip.compress("".join(f"{json.dumps(line)}\n" for line in lines).encode()))


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def drawn(snapshot):
    console = Console(file=io.StringIO(), width=140)
    console.print(draw(snapshot))
    return console.file.getvalue()


def test_a_session_from_its_start_to_its_end(machine):
    snapshot = machine.look()
    assert snapshot.sessions == () and snapshot.last is None
    assert news(None, snapshot) == ["No session runs here, and none has; `make figures` starts them."]
    assert news(snapshot, machine.look()) == []
    log = machine.root / "results/deployments/a/server.log"
    log.parent.mkdir(parents=True)
    log.write_text("--- start\nLoading weights\n\n")
    machine.touch(log)
    machine.write(progress(state="starting", detail="server.log", run=None, finished=(), left_s=None, study_left_s=None))
    machine.now += 12
    one = machine.look()
    assert state_text(one.sessions[0]) == "starting vllm-cpu for 12 s"
    assert one.sessions[0].last_line == "Loading weights"
    assert "Loading weights" in drawn(one)
    machine.write(
        progress(state="warming up", since=1012.0, written=1012.0, run=None, finished=(), left_s=None, study_left_s=None)
    )
    two = machine.look()
    assert news(one, two) == ["a: warming up for 0 s"]
    machine.write(progress(since=1012.0, written=1012.0))
    machine.now += 5
    three = machine.look()
    said = "a: measuring run 2 of 3 (chat, concurrency 4, 40 requests) for 5 s of about 20 s; time left: about 25 s, the study's about 85 s"
    assert news(two, three)[-1] == said
    assert "chat, concurrency 1: 50 tokens/s, TTFT P50 0.020 s, 10.0 s" in news(two, three)[0]
    assert news(three, machine.look()) == []
    machine.write(progress(state="finished", run=None, since=1017.0, written=1017.0))
    machine.now += 30
    four = machine.look()
    assert four.sessions == ()
    assert news(three, four) == ["a: finished 30 s ago, 1 run done", "No session runs."]
    assert drawn(four) == "No session runs. The last one: a, session 1, finished 30 s ago, 1 run done.\n"
    assert news(None, machine.new_watcher().look()) == [drawn(four).strip()]


def test_the_numbers_of_a_growing_run(machine):
    machine.write(progress())
    assert machine.look().sessions[0].live is None
    with gzip.open(machine.telemetry, "wt", encoding="utf-8") as file:
        for second, tokens in ((0, 1000.0), (1, 1100.0), (2, 1400.0)):
            line = scrape(
                50.0 + second, num_requests_running=second + 1, num_requests_waiting=3, kv_cache_usage_perc=second / 4,
                generation_tokens_total=tokens, time_to_first_token_seconds_sum=10 + second,
                time_to_first_token_seconds_count=100 + 4 * second, e2e_request_latency_seconds_count=7 + second,
            )  # fmt: skip
            file.write(json.dumps(line) + "\n" + json.dumps({**line, "endpoint": "nvml:"}) + "\n")
            file.flush()
            live = machine.look().sessions[0].live
    assert (live.running, live.waiting, live.kv_usage, live.requests_done) == (3, 3, 0.5, 2)
    assert live.elapsed_s == pytest.approx(2)
    assert live.ttft_s == pytest.approx(2 / 8)
    assert live.tokens_per_s == pytest.approx(200)
    shown = drawn(machine.look())
    assert "50 %" in shown and "not reported" not in shown
    assert "no fault" not in shown  # its one finished run has no record here


def test_every_torn_end_of_a_file_gives_what_is_whole(tmp_path, machine):
    lines = [json.dumps(scrape(float(i), num_requests_running=i)) + "\n" for i in range(4)]
    whole = gzip.compress("".join(lines[:3]).encode(), 1)
    torn = tmp_path / "torn.gz"
    # A line's half, flushed: what the scraper was about to write.
    with gzip.open(torn, "wb") as file:
        file.write("".join(lines[:2]).encode())
        file.write(lines[2][:100].encode())
    assert Tail(torn).read().running == 1
    growing, tail, seen = tmp_path / "growing.gz", Tail(tmp_path / "growing.gz"), []
    assert tail.read() is None  # not there yet
    for size in range(0, len(whole) + 1, 97):
        growing.write_bytes(whole[:size])
        live = tail.read()
        seen.append(-1 if live is None else live.running)
    assert seen == sorted(seen)
    growing.write_bytes(whole)
    assert tail.read().running == 2
    for content in (b"", b"\x00" * 100, b"no gzip at all\n", gzip.compress(b'[1]\nnull\n{"endpoint": 3}\n', mtime=0)):
        (tmp_path / "t.gz").write_bytes(content)  # none of ours
        assert Tail(tmp_path / "t.gz").read() is None, content
    dead = {"slot": 1, "endpoint": URL, "due": 2.0, "sent": 2.0, "received": 3.0, "error": "refused"}
    machine.tell(scrape(1.0, num_requests_running=5), dead)
    live = Tail(machine.telemetry).read()
    assert (live.running, live.error, live.elapsed_s) == (5, "refused", 2.0)


def test_sessions_side_by_side_show_their_runs_without_metrics_too(machine):
    machine.write(progress(deployment="b", host="there"), name="b")
    machine.write(progress())
    machine.now += 4
    shown = drawn(machine.look())
    assert "No scrape yet" in shown and "measuring run 2 of 3" in shown
    assert shown.index("a  session 1 of 2") < shown.index("b  session 1 of 2 on there")
    assert len(as_json(machine.look())["sessions"]) == 2


def test_a_search_shows_what_it_knows_and_counts_no_runs_that_it_may_need(machine):
    known = "a/chat_auto: 12 in flight (8 to 16 at 95 % confidence)"
    machine.write(progress(search=known))
    text = drawn(machine.look())
    assert known in text
    assert "measuring run 2 (chat, concurrency 4, 40 requests)" in text
    assert "runs done: 1; searching" in text
    assert " of 3" not in text and "time left" not in text
    machine.write(progress(searches_s=120.0))
    assert left_text(machine.look().sessions[0]).endswith(", and searches of at most 2 min")
    machine.write(progress(searches_s=60.0, search="a: searching", left_s=None))
    assert left_text(machine.look().sessions[0]) == "time left: searches of at most 60 s"


def test_a_killed_session_is_stale_at_once_where_it_ran_and_history_once_another_has_begun(machine):
    machine.write(progress())
    machine.now += 5
    assert machine.look().sessions[0].state == "measuring"
    machine.living.clear()
    (session,) = machine.look().sessions
    assert session.state == "stale" and not session.unsure
    assert "its process is gone" in state_text(session)
    assert left_text(session) == ""
    machine.write(progress(deployment="b", began=1100.0, pid=7), name="b")
    machine.living.add(7)
    assert [s.record.deployment for s in machine.look().sessions] == ["a", "b"]
    machine.write(progress(pid=1))
    machine.write(progress(deployment="b", began=950.0), name="b")
    assert [s.record.deployment for s in machine.look().sessions] == ["b"]


def test_a_session_that_lives_here_is_not_stale_however_long_it_is_silent(machine):
    machine.write(progress(run=None, state="warming up"))
    machine.look()
    machine.now += 200
    (session,) = machine.look().sessions
    assert session.state == "warming up"
    assert "nothing new for 3 min" in state_text(session)


def test_a_session_elsewhere_that_falls_silent_is_stale_after_a_minute(machine):
    machine.write(progress(host="there"))
    machine.telemetry.write_bytes(b"")
    machine.touch(machine.telemetry)
    machine.look()
    machine.now += 59
    assert machine.look().sessions[0].state == "measuring"
    machine.now += 2
    (session,) = machine.look().sessions
    assert (session.state, session.unsure) == ("stale", False)
    assert "its files do not grow" in state_text(session)
    with gzip.open(machine.telemetry, "wb") as file:
        file.write(b"x")
    assert machine.look().sessions[0].state == "measuring"  # it was the network


def test_a_session_elsewhere_is_not_dead_where_no_file_has_to_grow(tmp_path):
    """Such as a run on a server that is not scraped."""
    for state in ("starting", "warming up", "reference load", "measuring", "between runs"):
        machine = Machine(tmp_path / state)
        machine.write(progress(host="there", state=state, run=RUN if state == "measuring" else None))
        machine.look()
        machine.now += 300
        (session,) = machine.look().sessions
        assert session.state == state
        assert state_text(session).endswith("; nothing new for 5 min"), state
        machine.now += 86400
        assert machine.look().sessions[0].state == "stale", state  # nor does it stay for ever


def test_a_session_that_fails_beside_others_is_reported_with_its_last_run_and_stays_in_sight(machine):
    machine.write(progress())
    machine.write(progress(deployment="b", began=901.0), name="b")
    one = machine.look()
    last = replace(DONE, run="last", level=8.0)
    machine.write(progress(state="failed", detail="the server died\nits log", run=None, finished=(DONE, last)))
    machine.now += 1
    two = machine.look()
    assert news(one, two) == [
        "a: chat, concurrency 8: 50 tokens/s, TTFT P50 0.020 s, 10.0 s: its record is not there",
        "a: failed 1 s ago, 2 runs done: the server died",
    ]
    assert "a, session 1: failed 1 s ago, 2 runs done: the server died" in drawn(two)
    three = machine.look()
    assert news(two, three) == []
    assert "a, session 1: failed" in drawn(three)
    assert [each["state"] for each in as_json(three)["ended"]] == ["failed"]
    machine.write(progress(began=1002.0))
    assert "failed" not in drawn(machine.look())  # it is measured once more


def test_a_session_that_is_killed_or_ends_between_two_looks_is_reported(machine):
    one = machine.look()
    machine.write(progress(state="ended", run=None))
    assert news(one, machine.look())[1:] == ["a: ended by a signal 0 s ago, 1 run done"]
    machine.write(progress(pid=1))
    machine.living.add(1)
    one = machine.look()
    machine.living.discard(1)
    machine.write(progress(deployment="b", began=1001.0), name="b")
    machine.now += 1
    two = machine.look()
    assert news(one, two)[0].startswith("a: no sign of life since ")
    assert "a, session 1: no sign of life" in drawn(two)


def test_a_session_elsewhere_whose_clock_is_wrong_is_no_dead_one(tmp_path):
    """An hour behind or ahead, the file times with it: what counts is that a file grows."""
    for fast_s in (-3600.0, 3600.0):
        machine = Machine(tmp_path / str(fast_s))
        machine.fast_s, begun = fast_s, {"host": "there", "began": 900.0 + fast_s}
        machine.telemetry.write_bytes(b"")
        machine.touch(machine.telemetry)
        machine.write(progress(since=1000.0 + fast_s, written=1000.0 + fast_s, **begun))
        assert machine.look().unsure == (fast_s < 0)  # an hour old, it seems; that is to be seen
        machine.now += 1
        machine.write(progress(since=1001.0 + fast_s, written=1001.0 + fast_s, run=replace(RUN, number=3), **begun))
        machine.now += 1
        (session,) = machine.look().sessions
        assert (session.state, session.unsure) == ("measuring", False), fast_s
        assert session.state_s <= 2
        assert (session.began_s, session.left_s) == (pytest.approx(101, abs=2), pytest.approx(30, abs=2)), fast_s


def test_a_session_elsewhere_that_was_old_at_the_first_look_is_believed_dead_after_some_seconds(machine):
    machine.write(progress(host="there"))
    machine.telemetry.write_bytes(b"")
    machine.touch(machine.telemetry)
    machine.now += 600
    assert machine.look().unsure
    machine.now += 4
    snapshot = machine.look()
    assert not snapshot.unsure and snapshot.sessions[0].state == "stale"


def test_an_engine_that_is_built_shows_its_last_line(machine):
    log = machine.root / "logs/engine/vllm-cpu.log"
    log.parent.mkdir(parents=True)
    begin = datetime.fromtimestamp(1000, UTC)
    log.write_text(
        f"{begin:%FT%TZ} engine vllm-cpu: 25 of 153 packages, 8 s\n{begin:%FT%TZ} engine vllm-cpu: 50 of 153 packages, 16 s\n"
    )
    machine.touch(log)
    machine.now += 40
    (build,) = machine.look().builds
    assert (build.engine, build.since_s, build.last_line) == ("vllm-cpu", 40, "engine vllm-cpu: 50 of 153 packages, 16 s")
    assert news(None, machine.look()) == ["building vllm-cpu's environment for 40 s: 50 of 153 packages, 16 s"]
    record = machine.root / "results/engines/vllm-cpu/engine.json"
    record.parent.mkdir(parents=True)
    record.write_text("{}")
    machine.touch(record)
    assert machine.look().builds == ()


def test_a_finished_run_is_judged_by_its_record_and_is_not_called_valid_before_it_is_parsed(machine):
    folder = machine.root / "results/.store/digest"
    folder.mkdir(parents=True)
    write_record(made.run(client=Client(loop_lag_p99_s=0.4)), folder / "run.json")
    machine.write(progress(thresholds={"loop_lag_p99_s": 0.05}, finished=(replace(DONE, failed=1),)))
    ((_, reasons),) = machine.look().sessions[0].verdicts
    assert reasons == ("the client's event loop was late: P99 0.4 s, over 0.05 s",)
    assert "1 of 4 requests failed; invalid: the client's event loop was late" in drawn(machine.look())
    write_record(made.run(), folder / "run.json")
    machine.write(progress(run=None, finished=(replace(DONE, failed=0),)))
    shown = drawn(machine.new_watcher().look())
    assert "no fault so far" in shown and "valid" not in shown


def test_limits_of_validity_that_the_study_loosened_stand_beside_the_verdicts(machine):
    machine.write(progress())
    assert "loosened" not in drawn(machine.look()) + str(news(None, machine.look()))
    machine.write(progress(thresholds={"drift": 10.0}))
    said = "The study loosened limits of validity: `drift` 10 (default 0.1)."
    assert said in " ".join(drawn(machine.look()).split())
    assert sum(said in line for line in news(None, machine.look())) == 1
    assert not any(said in line for line in news(machine.look(), machine.look()))


def test_what_an_engine_does_not_report_is_named(machine):
    machine.write(progress())
    llama = "llamacpp:requests_processing 3\nllamacpp:requests_deferred 2\n"
    line = {"slot": 0, "endpoint": URL, "due": 1.0, "sent": 1.0, "received": 1.0, "text": llama}
    machine.tell(line)
    shown = drawn(machine.look())
    assert "not reported by this server: KV cache, output tokens/s, TTFT mean, requests done" in shown
    write_record(made.launch(slots=True, max_num_seqs=4), machine.root / "results/deployments/a/launch.json")
    assert machine.look().sessions[0].live.kv_usage == 0.75  # the slots that are taken
    assert "not reported by this server: output tokens/s, TTFT mean, requests done" in drawn(machine.look())


def test_a_record_of_another_version_or_half_of_one_is_left_alone(machine):
    path = machine.root / "results/deployments/a/progress.json"
    machine.write(progress())
    assert asdict(read_progress(path)) == asdict(progress())
    content = path.read_text()
    for broken in ("", content[: len(content) // 2], "{}", content.replace('"pid": 7', '"pid": "seven"')):
        path.write_text(broken)
        assert machine.look().sessions == ()


def test_what_is_scraped_is_seen_while_it_is_written(tmp_path):
    with fake_server(metrics=GOLDEN) as server, scraping([f"{server.base_url}/metrics"], 0.1, tmp_path / "t.gz"):
        tail = Tail(tmp_path / "t.gz")
        assert eventually(lambda: (live := tail.read()) is not None and live.elapsed_s >= 1)


def test_it_reads_and_writes_nothing(machine, capsys):
    machine.write(progress(host=socket.gethostname(), pid=os.getpid(), process_started=psutil.Process().create_time()))
    before = {path: path.stat().st_mtime_ns for path in machine.root.rglob("*")}
    follow(machine.root, once=True, as_lines_of_json=True)
    (session,) = json.loads(capsys.readouterr().out)["sessions"]
    assert (session["state"], session["here"], session["deployment"]) == ("measuring", True, "a")
    follow(machine.root, once=True)
    assert capsys.readouterr().out.startswith("a: measuring run 2 of 3")
    assert {path: path.stat().st_mtime_ns for path in machine.root.rglob("*")} == before


def test_numbers_of_servers_that_count_twice_and_of_fleets_are_of_all_requests_once(machine):
    """SGLang's total of all priorities, beside the one of each."""
    text = (ROOT / "tests/inputs/metrics/sglang_priority.prom").read_text()
    machine.tell(*({"slot": slot, "endpoint": "u", "sent": slot, "received": slot, "text": text} for slot in range(2)))
    live = Tail(machine.telemetry).read()
    assert (live.running, live.waiting, live.kv_usage) == (8, 0, 0.02)

    def of(worker, at, **values):
        return {**scrape(at, **values), "endpoint": f"{URL}/{worker}"}

    machine.tell(
        of(1, 1.0, num_requests_running=0, kv_cache_usage_perc=0.0, generation_tokens_total=0),
        of(2, 1.0, num_requests_running=1, kv_cache_usage_perc=0.1, generation_tokens_total=50),
        of(1, 3.0, num_requests_running=3, kv_cache_usage_perc=0.4, generation_tokens_total=100),
        of(2, 3.1, num_requests_running=4, kv_cache_usage_perc=0.2, generation_tokens_total=250),
    )
    live = Tail(machine.telemetry, engines=2).read()
    assert (live.running, live.kv_usage, live.elapsed_s) == (7, 0.4, pytest.approx(2.1))
    assert live.tokens_per_s == pytest.approx(300 / 2.1)

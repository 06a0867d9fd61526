"""Prompts of one's own: read from a file, sent in an order that the seed draws, and known to no prefix cache."""

import json
from pathlib import Path

import polars as pl
import pytest

from bench.beside.archive.pack import packed_study
from bench.errors import BenchError
from bench.load.client import Load, run_load
from bench.load.introduction import introduce
from bench.load.payload import exchanges
from bench.load.target import Target
from bench.study.plan import Plan, file_digests, longest_request
from bench.study.precision import prompt_lines
from bench.study.read import load_config
from bench.workloads.schedule import PlannedRequest, schedule
from bench.workloads.workload import Workload
from tests.support.command import bench
from tests.support.fake_server import fake_server
from tests.support.study import CONTENT, ROOT

SYSTEM, ASKED, ANSWERED = ({"role": role, "content": f"as {role}"} for role in ("system", "user", "assistant"))


@pytest.fixture
def texts(tmp_path):
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"Prompt number {i}.", "source": "a ticket"}) + "\n" for i in range(5)))
    return str(file)


@pytest.fixture
def chats(tmp_path):
    file = tmp_path / "chats.jsonl"
    rows = [[SYSTEM, ASKED], [SYSTEM, ASKED, ANSWERED], [ASKED, ANSWERED, ASKED]]
    file.write_text("".join(json.dumps({"messages": row}) + "\n" for row in rows))
    return str(file)


def workload(file, **more):
    return Workload.model_validate({"arrival": "burst", "prompts": file, "output_tokens": 8, **more})


def written(folder, *rows, name="p.jsonl"):
    file = folder / name
    file.write_text("\n".join(map(json.dumps, rows)))
    return str(file)


def studied(file, levels=(1,), **more):
    return {
        **CONTENT,
        "workloads": {"w": {"arrival": "burst", "prompts": file, "output_tokens": 8}},
        "study": {"title": "t", "ladders": [{"deployment": "a", "workload": "w", "concurrency": list(levels)}]},
        **more,
    }


def bodies(load, count, *, seed="run", schedule_seed="s"):
    make = exchanges(Target("http://h", "m"), load, seed=seed, schedule_seed=schedule_seed, vocabulary=500)
    return [json.loads(make(PlannedRequest(i, i, None, 8)).payload.split(b"\r\n\r\n")[1]) for i in range(count)]


def prompts(load, count, **seeds):
    """Each prompt's mark and its own text."""
    return [body["prompt"].split("\n", 1) for body in bodies(load, count, **seeds)]


def test_each_is_sent_once_before_any_again_and_begins_as_no_other_did(texts):
    one, other = (prompts(workload(texts), 15, seed=seed) for seed in ("here", "there"))
    sent, every = [text for _, text in one], {f"Prompt number {i}." for i in range(5)}
    assert set(sent[:5]) == set(sent[5:10]) == set(sent[10:]) == every
    assert sent[:5] != sent[5:10]
    # Runs that are compared send the same, and others another order.
    assert sent == [text for _, text in other]
    assert not {mark for mark, _ in one} & {mark for mark, _ in other}
    assert sent != [text for _, text in prompts(workload(texts), 15, schedule_seed="another")]
    marks = [mark for mark, _ in prompts(workload(texts), 50)]
    assert len({mark[:4] for mark in marks}) > 40
    assert len(set(marks)) == 50
    assert all(mark[0::2] == " " * 8 and mark[1::2].isalpha() for mark in marks)  # eight tokens each, so no lengths differ
    # Unless they are to have in common what the file has; of earlier runs nothing.
    natural = [{mark for mark, _ in prompts(workload(texts, cache="natural"), 50, seed=seed)} for seed in ("here", "there")]
    assert [len(each) for each in natural] == [1, 1] and natural[0] != natural[1]


def test_the_messages_of_a_chat_are_sent_without_its_last_answer(chats):
    sent = [body["messages"] for body in bodies(workload(chats, endpoint="chat"), 3)]
    assert sorted([message["role"] for message in messages] for messages in sent) == [
        ["system", "user"],
        ["system", "user"],
        ["user", "assistant", "user"],
    ]
    assert all(messages[0]["content"].endswith(f"\nas {messages[0]['role']}") for messages in sent)
    assert all(message["content"].startswith("as ") for messages in sent for message in messages[1:])


def test_calls_of_tools_and_empty_cells_are_as_they_are_published(tmp_path):
    called = [
        {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
    ]  # some servers take them without id, or as an object
    call = [
        {"role": "assistant", "content": None, "tool_calls": called},
        {"role": "tool", "content": "4", "tool_call_id": "1"},
    ]
    (body,) = bodies(workload(written(tmp_path, {"messages": [ASKED, *call]}), endpoint="chat"), 1)
    assert body["messages"][1:] == [{"role": "assistant", "tool_calls": called}, call[1]]
    (tmp_path / "p.csv").write_text("prompt,messages\n" + "long " * 40_000 + ",\n")
    assert len(prompts(workload(str(tmp_path / "p.csv")), 1)[0][1]) == 5 * 40_000 - 1


def test_the_tools_of_a_chat_go_into_its_request_alone(tmp_path):
    choice = {"type": "function", "function": {"name": "weather"}}
    tools, asked = [choice], {"messages": [ASKED]}
    file = written(tmp_path, asked, {**asked, "tools": tools, "tool_choice": choice}, {**asked, "tools": []})
    load = workload(file, endpoint="chat", body={"top_p": 0.5})
    sent = bodies(load, 3)
    assert sorted((body.get("tools"), body.get("tool_choice")) for body in sent if "tools" in body) == [(tools, choice)]
    assert all(body["top_p"] == 0.5 for body in sent)
    assert load.prompts.described() == "3 prompts of 7 characters, 1 with tools"
    cells = pl.DataFrame([{"messages": json.dumps([ASKED]), "tools": json.dumps(tools), "tool_choice": "auto"}])
    cells.write_csv(tmp_path / "p.csv")
    (body,) = bodies(workload(str(tmp_path / "p.csv"), endpoint="chat"), 1)
    assert (body["tools"], body["tool_choice"]) == (tools, "auto")


def test_content_in_parts_keeps_its_parts(tmp_path):
    own = {"type": "text", "text": "Hello"}
    (body,) = bodies(workload(written(tmp_path, {"messages": [{"role": "user", "content": [own]}]}), endpoint="chat"), 1)
    mark, *rest = body["messages"][0]["content"]
    assert (mark["type"], rest) == ("text", [own])


def test_lengths_are_what_a_server_counts(texts):
    load = workload(texts)
    planned = schedule(load, 3, "s")
    assert [request.prompt_asked for request in planned] == [None] * 3
    with pytest.raises(BenchError, match="nothing is predicted of them"):
        _ = planned[0].prompt_tokens
    assert longest_request(load) == 9  # as far as it is known
    with fake_server() as server:
        target = introduce(Target(server.base_url, "m"), "completions")
        records = run_load(target, Load(load, 3, "s")).records
    assert {(r.outcome, r.prompt_asked, r.completion_tokens) for r in records} == {("ok", None, 8)}
    assert all(r.prompt_tokens for r in records)


def test_a_pack_goes_without_the_prompts(texts, tmp_path, monkeypatch):
    """They may be private, and the runs are known by the file's digest."""
    content = studied("texts.jsonl", (1, 2))
    monkeypatch.chdir(Path(texts).parent)
    plan = Plan.of(load_config(content, source="t"), root=ROOT)
    study = packed_study(content, plan, "*")
    assert "Prompt number" not in str(study)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert [run.name for run in Plan.of(load_config(study, source="t"), root=ROOT).runs] == [run.name for run in plan.runs]


def test_what_there_is_to_send_is_said_and_digests_are_taken_from_packs_alone(texts):
    """Whoever measures a pack's study again, without `packed`, measures what is in the files now."""
    packed, own = (
        Plan.of(load_config(studied(texts, files={texts: "0" * 64}, packed=flag), source="t"), root=ROOT)
        for flag in (True, False)
    )
    assert prompt_lines(own) == ["w: 5 prompts of 16 characters; their tokens are what the server counts."]
    assert [plan.runs[0].files for plan in (own, packed)] == [file_digests(workload(texts)), {texts: "0" * 64}]


def test_a_file_is_sent_from_the_command_line(texts, tmp_path):
    (tmp_path / "load.yaml").write_text(
        f"arrival: closed\nnum_requests: 4\noutput_tokens: 3\nprompts: {texts}\nendpoint: chat\n"
    )
    with fake_server() as server:
        common = ("--base-url", server.base_url, "--model", "m")
        options = ("--prompts", texts, "--num-requests", "6", "--concurrency", "2", "--output-length", "5", "--json")
        first = bench("workload", *common, "--output-dir", str(tmp_path / "one"), *options)
        filing = ("--workload", str(tmp_path / "load.yaml"), "--concurrency", "2")
        filed = bench("workload", *common, "--output-dir", str(tmp_path / "two"), *filing)
    assert (first.returncode, filed.returncode) == (0, 0), first.stderr + filed.stderr
    assert json.loads(first.stdout)["outcomes"] == {"ok": 6}
    definitions = [json.loads((tmp_path / name / "run.json").read_text())["definition"] for name in ("one", "two")]
    said = [(each["arrival"], each.get("endpoint"), each["num_requests"]) for each in definitions]
    assert said == [("closed", "chat", 6), ("closed", "chat", 4)]
    assert all(each["files"] == file_digests(workload(texts)) for each in definitions)

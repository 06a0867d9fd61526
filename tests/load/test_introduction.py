"""A session's first requests: what a server accepts is found out, and counted; refusals are those of real servers."""

import json
import re
from dataclasses import replace
from functools import partial

import pytest

from bench.errors import BenchError
from bench.load.client import Load, PreparedLoad, run_load
from bench.load.introduction import introduce
from bench.load.payload import exchanges
from bench.load.target import Target
from bench.study.read import load_workload
from bench.workloads.schedule import PlannedRequest
from tests.support.cases import cases
from tests.support.command import bench
from tests.support.fake_server import fake_server
from tests.support.streams import DONE, delta, usage

served = partial(fake_server, first_s=0.0, gap_s=0.0, pages={"/v1/models": '{"data": [{"id": "m"}]}'})
MLX = (404, {"error": "text input must be of type `str` (single example), `list[str]` (batch or single pretokenized example)"})
SGLANG_ROUTER = (
    422,
    "Failed to deserialize the JSON body: prompt: data did not match any variant of untagged enum StringOrArray",
)
TRANSFORMERS = 422, {"detail": "Unexpected fields in the request: {'ignore_eos'}"}
LITELLM = 500, {"error": {"message": "Unmapped prompt format. Your prompt is neither a list of strings nor a string."}}
OPENAI_EOS = 400, {"error": {"message": "Unrecognized request argument supplied: ignore_eos", "type": "invalid_request_error"}}
OPENAI_MAX = (400, {"error": {"message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                              "'max_completion_tokens' instead.", "param": "max_tokens"}})  # fmt: skip
OPENAI_TEMPERATURE = (400, {"error": {"message": "Unsupported value: 'temperature' does not support 0 with this model.",
                                      "param": "temperature"}})  # fmt: skip
FORBIDDEN = {"type": "extra_forbidden", "loc": ["body", "ignore_eos"], "msg": "Extra inputs are not permitted"}
MISTRAL = 422, {"detail": [FORBIDDEN]}
AZURE = 400, {"error": {"message": "Unknown parameter: 'stream_options.include_usage'."}}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    monkeypatch.setattr("bench.load.introduction._BETWEEN_S", 0.01)


def introduced(endpoint="completions", **server):
    """Of a server: the form of a request that was found, and what was said."""
    said = []
    with served(**server) as running:
        return introduce(Target(running.base_url, "m"), endpoint, say=said.append).form(endpoint), said


def failure(endpoint="completions", *, key="", **server):
    """How the introduction to a server ends the session."""
    with served(**server) as running, pytest.raises(BenchError) as error:
        introduce(Target(running.base_url, "m", *([key] if key else [])), endpoint)
    return str(error.value)


def load(level=2, **more):
    content = {"arrival": "burst", "prompt_tokens": 40, "output_tokens": 6, **more}
    return Load(load_workload(content, source="t"), level=level, seed="s")


def has(name):
    return lambda body: isinstance(body.get("prompt"), list) if name == "token_ids" else name in body


def unless(**refusals):
    """Refuses each of these with its refusal, the first first."""

    def refuse(body):
        return next((refusal for name, refusal in refusals.items() if has(name)(body)), None)

    return refuse


@cases(
    ("endpoint", "refusals", "omitted"),
    [
        ("completions", {}, ()),
        ("completions", {"token_ids": MLX}, ("token_ids",)),
        ("completions", {"token_ids": SGLANG_ROUTER}, ("token_ids",)),
        ("completions", {"token_ids": LITELLM}, ("token_ids",)),
        ("completions", {"ignore_eos": TRANSFORMERS, "token_ids": SGLANG_ROUTER}, ("ignore_eos", "token_ids")),
        ("chat", {"ignore_eos": TRANSFORMERS}, ("ignore_eos",)),
        ("chat", {"ignore_eos": MISTRAL}, ("ignore_eos",)),
        ("chat", {"ignore_eos": OPENAI_EOS, "max_tokens": OPENAI_MAX, "temperature": OPENAI_TEMPERATURE},
         ("ignore_eos", "max_tokens", "temperature")),
        ("chat", {"stream_options": AZURE}, ("stream_options",)),
    ],
)  # fmt: skip
@pytest.mark.long(part="inputs")
def test_what_a_server_refuses_is_left_out_and_nothing_else(endpoint, refusals, omitted):
    said = []
    with served(answers=unless(**refusals)) as server:
        target = introduce(Target(server.base_url, "m"), endpoint, say=said.append)
        assert set(target.form(endpoint).omitted) == set(omitted)
    assert len({json.dumps(body) for body in server.bodies}) == len(server.bodies)  # no prompt twice
    assert all(name in " ".join(said) for name in omitted)
    make = exchanges(target, load(endpoint=endpoint).workload, seed="s", vocabulary=500)
    body = json.loads(make(PlannedRequest(0, 0, 40, 6)).payload.split(b"\r\n\r\n")[1])
    assert server.answers(body) is None
    assert {name for name in ("token_ids", "ignore_eos", "temperature", "stream_options") if not has(name)(body)} == {
        *(set(omitted) - {"max_tokens"}), *(["token_ids"] if endpoint == "chat" else [])}  # fmt: skip


def test_a_chat_without_tokenize_has_its_length():
    for template, each, counts in ((31, 2, True), (7, 1, False)):
        ttfts = []
        refuse = (lambda _: None) if counts else unless(stream_options=AZURE)
        with served(chat_template=template, tokens_a_letter=each, answers=refuse) as server:
            target = introduce(Target(server.base_url, "m"), "chat", answered=ttfts.append)
            assert 0 < len(ttfts) <= len(server.bodies) and all(ttft > 0 for ttft in ttfts)
            form = target.form("chat")
            assert (form.template_tokens, form.letter_tokens, form.counted) == (template, each, True)
            records = run_load(target, load(prompt_tokens=70, output_tokens=2, endpoint="chat", stream=False)).records
        assert [record.prompt_tokens for record in records] == [70, 70]
        assert {path for path, _ in server.requests} == {"/v1/chat/completions"}
        texts = [body["messages"][0]["content"] for body in server.bodies[-2:]]
        assert texts[0] != texts[1]


def test_first_prompts_have_ids_of_the_whole_vocabulary():
    """Else ids that the tokenizer lacks would come up in the load."""
    with served() as server:
        introduce(Target(server.base_url, "m"), "completions", vocabulary=10**6)
    assert max(server.bodies[0]["prompt"]) > 10**4
    refusal = 400, {"object": "error", "message": "Token id 987 is out of vocabulary", "code": 400}
    with (
        served(answers=unless(token_ids=refusal)) as server,
        pytest.raises(BenchError, match="--set vocabulary=N") as error,
    ):
        introduce(Target(server.base_url, "m"), "completions", vocabulary=1000)
    assert "refuses token ids below 1000: Token id 987 is out of vocabulary" in str(error.value)


def ignored(body):
    body.pop("ignore_eos", None)


@cases(
    ("endpoint", "server", "said"),
    [
        ("chat", {"usage": False}, ["counts no tokens in its answers (no usage): tokens/s and TPOT are not known",
                                    "the server does not count the tokens of prompts: taking each letter for one token"]),
        ("chat", {"chat_template": 20, "tokens_a_letter": 0}, ["the server counts 20 and 20 tokens in prompts of 8 and 72 letters: taking each letter"]),
        ("chat", {"chat_template": 20, "tokens_a_letter": 1.5}, ["the server counts 32 and 128 tokens in prompts of 8 and 72 letters: taking each letter"]),
        ("completions", {"answers": ignored, "ends": [2]}, ["the server ignores ignore_eos: it generated 2 tokens instead of 4"]),
        ("completions", {"unlimited": 90}, ["the server ignores max_tokens: it generated 90 tokens instead of 4"]),
    ],
)  # fmt: skip
def test_what_cannot_be_as_asked_for_is_said(endpoint, server, said):
    form, lines = introduced(endpoint, **server)
    assert [part in line for part, line in zip(said, lines, strict=True)] == [True] * len(said), lines
    if endpoint == "chat":
        assert (form.counted, form.letter_tokens, form.template_tokens) == (False, 1, 0)


def test_the_sdk_s_other_reading_is_said():
    """A byte order mark, which the SDK takes for a part of the first field's name."""
    body = "\ufeff" + delta(content="A") + delta(content="b", finish="length") + usage(2, prompt=8) + DONE
    form, said = introduced("chat", answers=lambda _: (200, body))
    assert form.sdk_differs == "text is 'b' to the SDK, 'Ab' to Saturate"
    assert any("the openai SDK reads an answer differently" in line for line in said)


@cases(
    ("refusal", "times"),
    [
        ((500, {"error": {"message": "worker restarted"}}), 1),
        ((503, "loading"), 2),  # a busy server is asked again
    ],
)
def test_failures_for_a_moment_leave_out_nothing_that_is_accepted(refusal, times):
    left = [refusal] * times
    form, said = introduced(answers=lambda _: left.pop() if left else None)
    assert form.omitted == ()
    assert times > 1 or said == []


def test_an_address_may_have_a_path_that_is_no_endpoint_s():
    own = (f"http://h/{path}" for path in ("models", "v1", "v1/mycompletions", "rerank", "v1/models/m"))
    for address in ("http://127.0.0.1:8000", "https://example.org/prefix", "http://[::1]:8000", "http://a_b:1", *own):
        assert Target(address, "m").base_url == address


def test_an_answer_that_does_not_end_is_not_taken_for_a_lost_connection():
    said = failure(unlimited=20_000)
    assert "ignores max_tokens: it was asked for 4 tokens, and its answer was given up after" in said
    assert "Check its address" not in said


@cases(
    ("refusal", "words"),
    [
        ((401, {"error": {"message": "Invalid API Key"}}), "answers 401: Invalid API Key. OPENAI_API_KEY is not set: export the key"),
        ((401, {"detail": "Invalid token"}), "answers 401: Invalid token. OPENAI_API_KEY is not set"),
        ((403, "no"), "answers 403: no. OPENAI_API_KEY is not set"),
        ((502, ""), "answers 502 to a first request, 3 times: without a word. Try again later."),
        ((404, {"error": {"message": "The model `m` does not exist."}}),
         "does not answer a first request of 8 tokens (404): The model `m` does not exist. Check the model's name"),
        ((502, "<html>\n<title>502 Bad Gateway</title></html>"),
         "answers 502 to a first request, 3 times: <html> <title>502 Bad Gateway</title></html>. Try again later."),
        ((301, "moved"), "answers 301"),
        ((200, "<html>Sign in</html>"), "neither an event stream nor an answer: '<html>Sign in</html>'"),
    ],
)  # fmt: skip
def test_a_server_that_answers_nothing_ends_the_session_in_its_words(refusal, words):
    assert words in failure(answers=lambda _: refusal)


def test_a_stream_that_breaks_off_and_a_server_that_is_not_there_are_no_refusals():
    with (
        served(behaviour="disconnect") as server,
        pytest.raises(BenchError, match=r"does not answer a request: .*Check its address"),
    ):
        introduce(Target(server.base_url, "m"), "completions")
    assert len(server.bodies) == 1  # nothing else is tried
    with pytest.raises(BenchError, match=r"127\.0\.0\.1:9 does not answer a request: .*Check its address"):
        introduce(Target("http://127.0.0.1:9", "m"), "chat")


def test_each_request_to_a_server_of_others_has_a_connection_of_its_own():
    closed = load(arrival="closed", num_requests=12, output_tokens=3)
    with served() as server:
        run_load(Target(server.base_url, "m", reuses=False), closed)
        assert server.connections == 12
        server.connections = 0
        run_load(Target(server.base_url, "m"), closed)
        assert server.connections == 2


def test_a_chat_shorter_than_its_template_is_refused_before_the_load():
    with served(chat_template=30) as server:
        target = introduce(Target(server.base_url, "m"), "chat")
        before = len(server.bodies)
        with pytest.raises(BenchError, match=r"prompts of 20 tokens cannot be made: .* adds 30 to each\. Ask for 31 or more"):
            run_load(target, load(1, prompt_tokens=20, output_tokens=2, endpoint="chat"))
        assert len(server.bodies) == before
        # Of a distribution those that are too short are made of what fits, and have that length by the server's count too.
        some = load(6, prompt_tokens={"distribution": "uniform", "min": 20, "max": 60}, output_tokens=2, endpoint="chat")
        prepared = PreparedLoad(target, replace(some, schedule_seed="two short"))
        with prepared.waiting() as send:
            records = send().records
    assert re.fullmatch(r"\d of 6 prompts were to have 2\d tokens or more, and have 31: .* adds 30 to each", prepared.longer)
    assert all(record.prompt_tokens == record.prompt_asked >= 31 for record in records)
    assert 31 in [record.prompt_asked for record in records]


def test_what_a_session_of_a_trace_begins_with_is_made_longer_with_all_that_follows(tmp_path):
    """All its requests are one conversation: what the last of them has says nothing of the first."""
    file = tmp_path / "session.csv"
    file.write_text("arrival_s,prompt_tokens,output_tokens,id,parent\n0,5,2,a,\n,500,2,b,a\n0,40,2,c,\n")
    with served(chat_template=30) as server:
        target = introduce(Target(server.base_url, "m"), "chat")
        prepared = PreparedLoad(
            target, load(1, prompt_tokens=None, output_tokens=None, arrival="trace", trace=str(file), endpoint="chat")
        )
        with prepared.waiting() as send:
            records = send().records
    assert prepared.longer.startswith("1 of 3 prompts were to have 5 tokens or more, and have 31: ")
    assert [record.prompt_tokens for record in records] == [record.prompt_asked for record in records] == [31, 526, 40]


# The command.


def measured(folder, *more, **server):
    """`bench workload` against a server, and what `bench parse` says of the run."""
    with served(**server) as running:
        done = bench("workload", "--base-url", running.base_url, "--model", "m", "--num-requests", "4", "--prompt-length", "20",
                     "--output-length", "8", "--output-dir", folder / "run", *more)  # fmt: skip
    return done, bench("parse", folder / "run").stdout


def test_answers_that_end_early_are_short_and_not_wrong_where_nothing_else_could_be_asked(tmp_path):
    """A server that refuses ignore_eos, and whose answers end after 5 of 8 tokens."""
    done, shown = measured(tmp_path, "--set", "endpoint=chat", answers=unless(ignore_eos=TRANSFORMERS), ends=[5])
    assert done.returncode == 0, done.stderr
    assert "refuses ignore_eos: answers may end before the length that was asked for" in done.stderr
    assert "the model ended 4 of 4 answers early: 5 tokens on average, of 8 asked for" in shown
    assert "latency, throughput  valid" in shown
    content = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (content["wrong_output_tokens"], content["short_answers"], content["requests_omit"]) == (0, 4, "ignore_eos")


def test_a_failed_request_is_a_failed_command_with_the_server_s_words(tmp_path):
    seen = []

    def refuse(body):
        seen.append(body)
        return (500, {"error": {"message": "CUDA out of memory"}}) if len(seen) == 3 else None

    done, shown = measured(tmp_path, answers=refuse)
    assert done.returncode == 1
    assert "the server answered: CUDA out of memory" in done.stdout
    assert "1 of 4 requests failed (1 http_500): 'CUDA out of memory'" in shown


def test_a_refusal_that_may_be_about_a_key_says_whether_there_is_one():
    """LiteLLM without its database says nothing of a key."""
    without, given = (
        failure(key=key, answers=lambda _: (400, {"error": {"message": "No connected db."}})) for key in ("", "secret")
    )
    assert "No connected db" in without and "OPENAI_API_KEY is not set: export it if" in without
    assert "whether it has the endpoint completions" in without
    assert "OPENAI_API_KEY" not in given


@cases(
    ("models", "words"),
    [
        ({"data": []}, "Check the model's name ('m'; its /v1/models lists no model)"),
        ({"models": [{"name": "a"}, {"name": "b"}]}, "Check the model's name ('m'; its /v1/models lists a, b)"),
        ({"data": [{"id": "m"}]}, "Check the model's name ('m')"),
        ("Not Found", "Check the model's name ('m')"),
    ],
)
def test_an_empty_404_is_explained_by_the_models_that_are_served(models, words):
    """As Dynamo answers for a model that it does not have."""
    said = failure("chat", answers=lambda _: (404, ""), pages={"/v1/models": json.dumps(models)})
    assert "does not answer a first request of 8 tokens (404): without a word. Check" in said
    assert words in said
    assert "http_error" not in said

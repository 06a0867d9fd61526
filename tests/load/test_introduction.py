"""A session's first requests: what a server accepts is found out, and counted; refusals are those of real servers."""

import json

import pytest
from pydantic import TypeAdapter

from bench.errors import BenchError
from bench.load.client import Load, run_load
from bench.load.introduction import introduce
from bench.load.target import Target
from bench.study import load_workload
from bench.study.deployment import Address
from tests.support.cases import cases
from tests.support.command import bench
from tests.support.fake_server import STREAM_HEAD, left_open, raw_server
from tests.support.streams import DONE, delta, usage
from tests.support.strict_server import refusing, strict_server

ExternalAddress = TypeAdapter(Address)
MLX = (404, {"error": "text input must be of type `str` (single example), `list[str]` (batch or single pretokenized example)"})
SGLANG_ROUTER = (
    422,
    "Failed to deserialize the JSON body: prompt: data did not match any variant of untagged enum StringOrArray",
)
TRANSFORMERS = (422, {"detail": "Unexpected fields in the request: {'ignore_eos'}"})
LITELLM = (500, {"error": {"message": "Unmapped prompt format. Your prompt is neither a list of strings nor a string."}})
OPENAI_EOS = (
    400,
    {"error": {"message": "Unrecognized request argument supplied: ignore_eos", "type": "invalid_request_error"}},
)
OPENAI_MAX = (400, {"error": {"message": "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                              "'max_completion_tokens' instead.", "param": "max_tokens"}})  # fmt: skip
OPENAI_TEMPERATURE = (
    400,
    {"error": {"message": "Unsupported value: 'temperature' does not support 0 with this model.", "param": "temperature"}},
)
MISTRAL = (
    422,
    {"detail": [{"type": "extra_forbidden", "loc": ["body", "ignore_eos"], "msg": "Extra inputs are not permitted"}]},
)
AZURE = (400, {"error": {"message": "Unknown parameter: 'stream_options.include_usage'."}})
VAGUE = (400, {"error": {"message": "Bad request"}})


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
        ("completions", {"temperature": VAGUE}, ("temperature",)),
        ("completions", {"max_tokens": VAGUE}, ("max_tokens",)),
        ("completions", {"stream_options": VAGUE, "temperature": VAGUE}, ("stream_options", "temperature")),
    ],
)  # fmt: skip
def test_what_a_server_refuses_is_left_out_and_nothing_else(endpoint, refusals, omitted):
    said = []
    with strict_server(refuse=unless(**refusals)) as server:
        target = introduce(Target(server.base_url, "m"), endpoint, say=said.append)
        assert set(target.form(endpoint).omitted) == set(omitted)
        workload = {"arrival": "burst", "prompt_tokens": 40, "output_tokens": 6, "endpoint": endpoint}
        records = run_load(target, Load(load_workload(workload, source="t"), level=3, seed="s")).records
    assert [record.outcome for record in records] == ["ok"] * 3
    assert len({json.dumps(body) for body in server.bodies}) == len(server.bodies)  # no prompt twice
    assert all(name in " ".join(said) for name in omitted)
    if "stream_options" not in omitted:
        assert [(r.prompt_tokens, r.completion_tokens) for r in records] == [(40, 6)] * 3


@cases(("template", "each"), [(24, 1), (0, 1), (31, 2), (7, 1)])
@cases("usage", [True, False])
def test_a_chat_without_tokenize_has_its_length(template, each, usage):
    refuse = refusing("stream_options") if not usage else lambda _: None
    with strict_server(template=template, each=each, refuse=refuse) as server:
        target = introduce(Target(server.base_url, "m"), "chat")
        form = target.form("chat")
        assert (form.template_tokens, form.letter_tokens, form.counted) == (template, each, True)
        workload = {"arrival": "burst", "prompt_tokens": 70, "output_tokens": 2, "endpoint": "chat", "stream": False}
        records = run_load(target, Load(load_workload(workload, source="t"), level=2, seed="s")).records
    assert [record.prompt_tokens for record in records] == [70, 70]
    assert set(server.paths) == {"/v1/chat/completions"}


def test_first_prompts_have_ids_of_the_whole_vocabulary():
    """Else ids that the tokenizer lacks would come up in the load."""
    with strict_server() as server:
        introduce(Target(server.base_url, "m"), "completions", vocabulary=10**6)
    assert max(server.bodies[0]["prompt"]) > 10**4


def test_a_server_that_counts_nothing_is_said_to():
    said = []
    with strict_server(usage=False) as server:
        form = introduce(Target(server.base_url, "m"), "chat", say=said.append).form("chat")
    assert (form.counted, form.letter_tokens, form.template_tokens) == (False, 1, 0)
    assert said == [f"{server.base_url} counts no tokens in its answers (no usage): tokens/s and TPOT are not known, and runs of exact "
                    "lengths are invalid, as nothing shows whether they had them",
                    "the server does not count the tokens of prompts: taking each letter for one token, so lengths may differ from "
                    "those asked for"]  # fmt: skip


def test_a_failure_for_a_moment_is_not_a_refusal():
    seen = []

    def refuse(body):
        seen.append(body)
        return (500, {"error": {"message": "worker restarted"}}) if len(seen) == 1 else None

    said = []
    with strict_server(refuse=refuse) as server:
        assert introduce(Target(server.base_url, "m"), "completions", say=said.append).form("completions").omitted == ()
    assert said == []


def test_failures_at_random_leave_out_nothing_that_is_accepted():
    """The first two requests fail, and what was left out on a guess is tried once more."""
    seen = []

    def refuse(body):
        seen.append(body)
        return (500, {"error": {"message": "worker restarted"}}) if len(seen) < 3 else None

    with strict_server(refuse=refuse) as server:
        assert introduce(Target(server.base_url, "m"), "completions").form("completions").omitted == ()


@cases("each", [0, 1.5])
def test_a_server_that_does_not_count_whole_tokens_a_letter_is_said_to(each):
    said = []
    with strict_server(template=20, each=each) as server:
        form = introduce(Target(server.base_url, "m"), "chat", say=said.append).form("chat")
    assert (form.counted, form.letter_tokens, form.template_tokens) == (False, 1, 0)
    few, many = int(20 + each * 8), int(20 + each * 72)
    assert said == [f"the server counts {few} and {many} tokens in prompts of 8 and 72 letters: taking each letter for one token, so "
                    "lengths may differ from those asked for"]  # fmt: skip


def test_a_server_that_takes_ignore_eos_and_ends_early_is_said_to():
    def refuse(body):
        body.pop("ignore_eos", None)

    said = []
    with strict_server(refuse=refuse, ends_early=2) as server:
        introduce(Target(server.base_url, "m"), "completions", say=said.append)
    assert said == [
        "the server ignores ignore_eos: it generated 2 tokens instead of 4, so answers will not have the lengths asked for"
    ]


@cases(
    ("finish", "said"),
    [
        ("content_filter", "an answer ended by finish_reason 'content_filter' after 2 tokens instead of 4, so"),
        ("tool_calls", "an answer ended by finish_reason 'tool_calls' after 2 tokens instead of 4, so"),
        ("length", "an answer ended by finish_reason 'length' after 2 tokens instead of 4, so"),
        ("stop", "the server ignores ignore_eos: it generated 2 tokens instead of 4, so"),
        ("eos_token", "the server ignores ignore_eos: it generated 2 tokens instead of 4, so"),
    ],
)
def test_what_ended_an_answer_early_is_named(finish, said):
    body = delta(content="A") + delta(content=" b") + delta(finish=finish) + usage(2, prompt=8) + DONE
    lines = []
    with strict_server(refuse=lambda _: (200, body)) as server:
        introduce(Target(server.base_url, "m"), "chat", say=lines.append)
    (line,) = (line for line in lines if "instead of 4" in line)
    assert line.startswith(said)


@cases(
    "frames",
    [
        bytes.fromhex("000012040000000000000300000064000400100000000600004000"),  # settings
        bytes.fromhex("000000040000000000" "0000080700000000000000000000000001"),  # settings, and an end
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
    ],
)  # fmt: skip
def test_a_server_of_http_2_alone_is_named(frames):
    def handle(connection):
        connection.recv(65536)
        connection.sendall(frames)
        connection.recv(1)

    with (
        raw_server(handle) as port,
        pytest.raises(
            BenchError, match=r"does not answer a request: it speaks HTTP/2 alone, and requests are HTTP/1.1: let it"
        ),
    ):
        introduce(Target(f"http://127.0.0.1:{port}", "m"), "chat", timeout_s=5.0)


def test_a_server_that_wants_a_user_is_not_said_to_want_a_key():
    words = b'HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm="m"\r\ncontent-length: 2\r\n\r\nno'
    with raw_server(lambda connection: left_open(connection, words)) as port, pytest.raises(BenchError) as error:
        introduce(Target(f"http://127.0.0.1:{port}", "m"), "chat", timeout_s=5.0)
    assert "answers 401: no. It wants a user and a password (Basic authentication): give the header Auth" in str(error.value)
    assert "OPENAI_API_KEY" not in str(error.value)


@cases(
    ("address", "out"),
    [
        ("http://h/v1/chat/completions", "/chat/completions"),
        ("http://h/v1/chat/completions/", "/chat/completions"),
        ("http://h/llm/chat/completions", "/chat/completions"),
        ("http://h/v1/completions", "/completions"),
        ("http://h/completions", "/completions"),
        ("http://h/v1/embeddings", "/embeddings"),
        ("http://h/v1/messages", "/messages"),
        ("http://h/v1/responses", "/responses"),
        ("http://h/v1/rerank", "/rerank"),
        ("http://h/v1/models", "/models"),
        ("http://h/v1/chat/completions?api-version=1", "/chat/completions and what follows it"),
    ],
)
def test_an_endpoint_s_address_is_none_of_a_server(address, out):
    for of in (lambda: Target(address, "m"), lambda: ExternalAddress.validate_python(address)):
        with pytest.raises((BenchError, ValueError)) as error:
            of()
        assert f"an endpoint's address, and requests add the endpoint's path themselves; leave out {out}" in str(error.value)


@cases("address", ["http://h/models", "http://h/v1", "http://h/v1/mycompletions", "http://h/rerank", "http://h/v1/models/m"])
def test_other_paths_are_a_server_s(address):
    assert Target(address, "m").base_url == address


def test_a_server_that_ignores_max_tokens_is_said_to():
    said = []
    with strict_server(unlimited=90) as server:
        introduce(Target(server.base_url, "m"), "completions", say=said.append)
    assert said == [
        "the server ignores max_tokens: it generated 90 tokens instead of 4, so answers will not have the lengths asked for"
    ]


def test_an_answer_that_does_not_end_is_not_taken_for_a_lost_connection():
    with strict_server(unlimited=20_000) as server, pytest.raises(BenchError) as error:
        introduce(Target(server.base_url, "m"), "completions")
    assert "ignores max_tokens: it was asked for 4 tokens, and its answer was given up after" in str(error.value)
    assert "Check its address" not in str(error.value)


def test_what_is_omitted_by_hand_is_not_sent():
    with strict_server() as server:
        target = introduce(Target(server.base_url, "m"), "completions", omit=["ignore_eos", "max_tokens"])
        run_load(
            target,
            Load(load_workload({"arrival": "burst", "prompt_tokens": 9, "output_tokens": 5}, source="t"), level=1, seed="s"),
        )
    assert not any("ignore_eos" in body or "max_tokens" in body for body in server.bodies)
    assert server.bodies[-1]["max_completion_tokens"] == 5


@cases(
    ("refusal", "words"),
    [
        ((401, {"error": {"message": "Invalid API Key"}}), "answers 401: Invalid API Key. OPENAI_API_KEY is not set: export the key"),
        ((401, {"detail": "Invalid token"}), "answers 401: Invalid token. OPENAI_API_KEY is not set"),
        ((403, "no"), "answers 403: no. OPENAI_API_KEY is not set"),
        ((502, ""), "answers 502 to a first request, 3 times: without a word. Try again later."),
        ((404, {"error": {"message": "The model `m` does not exist."}}),
         "does not answer a first request of 8 tokens (404): The model `m` does not exist; nor does it answer without"),
        ((502, "<html>\n<title>502 Bad Gateway</title></html>"),
         "answers 502 to a first request, 3 times: <html> <title>502 Bad Gateway</title></html>. Try again later."),
        ((200, "<html>Sign in</html>"), "neither an event stream nor an answer: '<html>Sign in</html>'"),
    ],
)  # fmt: skip
def test_a_server_that_answers_nothing_ends_the_session_in_its_words(refusal, words, monkeypatch):
    monkeypatch.setattr("bench.load.introduction._BETWEEN_S", 0.01)
    with strict_server(refuse=lambda _: refusal) as server, pytest.raises(BenchError) as error:
        introduce(Target(server.base_url, "m"), "completions")
    assert words in str(error.value)


@cases(
    "words",
    [b"data: Number of choices must be greater than 0.\n\n", b'{"error": {"message": "Number of choices must be greater than 0."}}\n',
     b'event: error\ndata: {"message": "Number of choices must be greater than 0."}\n\n'],
)  # fmt: skip
def test_an_error_is_not_waited_upon(words):
    """The body stays open; six requests of 5 s each would be a time-out."""

    with (
        raw_server(lambda connection: left_open(connection, STREAM_HEAD + b"%x\r\n%s\r\n" % (len(words), words))) as port,
        pytest.raises(BenchError, match=r"8 tokens: .*Number of choices must be greater than 0.*; nor does"),
    ):
        introduce(Target(f"http://127.0.0.1:{port}", "m"), "chat", timeout_s=5.0)


def test_a_stream_that_breaks_off_is_no_refusal_of_what_was_sent():
    with strict_server(cuts=True) as server, pytest.raises(BenchError, match=r"does not answer a request: .*Check its address"):
        introduce(Target(server.base_url, "m"), "completions")
    assert len(server.bodies) == 1  # nothing else is tried


def test_a_server_that_is_not_there_is_named():
    with pytest.raises(BenchError, match=r"127\.0\.0\.1:9 does not answer a request: .*Check its address"):
        introduce(Target("http://127.0.0.1:9", "m"), "chat")


def test_a_busy_server_is_asked_again(monkeypatch):
    monkeypatch.setattr("bench.load.introduction._BETWEEN_S", 0.01)
    seen = []

    def refuse(body):
        seen.append(body)
        return (503, "loading") if len(seen) < 3 else None

    with strict_server(refuse=refuse) as server:
        assert introduce(Target(server.base_url, "m"), "completions").form("completions").omitted == ()


def test_each_request_to_a_server_of_others_has_a_connection_of_its_own():
    workload = load_workload({"arrival": "closed", "num_requests": 12, "prompt_tokens": 9, "output_tokens": 3}, source="t")
    with strict_server() as server:
        run_load(Target(server.base_url, "m", reuses=False), Load(workload, level=2, seed="s"))
        assert len(server.connections) == 12
        server.connections.clear()
        run_load(Target(server.base_url, "m"), Load(workload, level=2, seed="s"))
        assert len(server.connections) == 2


def test_answers_that_end_early_are_short_and_not_wrong_where_nothing_else_could_be_asked(tmp_path):
    """End to end: a server that refuses ignore_eos, and whose answers end after 5 of 8 tokens."""
    refuse = unless(ignore_eos=TRANSFORMERS)
    with strict_server(refuse=refuse, ends_early=5) as server:
        done = bench("workload", "--base-url", server.base_url, "--model", "m", "--endpoint", "chat", "--num-requests", "4",
                     "--prompt-length", "20", "--output-length", "8", "--output-dir", str(tmp_path / "run"))  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "refuses ignore_eos: answers may end before the length that was asked for" in done.stderr
    shown = bench("parse", str(tmp_path / "run")).stdout
    assert "4 answers of 4 ended early, as the model did: 5 tokens on average for 8 asked for" in shown
    assert "latency, throughput  valid" in shown
    content = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (content["wrong_output_tokens"], content["short_answers"], content["requests_omit"]) == (0, 4, "ignore_eos")


def test_answers_that_end_early_although_that_was_forbidden_are_wrong(tmp_path):
    def refuse(body):
        body.pop("ignore_eos", None)  # taken, and ignored

    with strict_server(refuse=refuse, ends_early=5) as server:
        done = bench("workload", "--base-url", server.base_url, "--model", "m", "--num-requests", "4", "--prompt-length", "20",
                     "--output-length", "8", "--output-dir", str(tmp_path / "run"))  # fmt: skip
        assert done.returncode == 0, done.stderr
    shown = bench("parse", str(tmp_path / "run")).stdout
    assert "4 requests had another output length than asked for (5 tokens on average, not 8)" in shown
    assert "latency, throughput  invalid" in shown
    assert "the server's counts  not taken" in shown  # without --scrape, whatever was wrong


def test_a_failed_request_is_a_failed_command_with_the_server_s_words(tmp_path):
    seen = []

    def refuse(body):
        seen.append(body)
        return (500, {"error": {"message": "CUDA out of memory"}}) if len(seen) == 3 else None

    with strict_server(refuse=refuse) as server:
        done = bench("workload", "--base-url", server.base_url, "--model", "m", "--num-requests", "4", "--prompt-length", "20",
                     "--output-length", "8", "--output-dir", str(tmp_path / "run"))  # fmt: skip
    assert done.returncode == 1
    assert "the server answered: CUDA out of memory" in done.stdout
    assert "1 of 4 requests failed (1 http_500): 'CUDA out of memory'" in bench("parse", str(tmp_path / "run")).stdout


@cases(
    ("refusal", "words"),
    [
        ((301, "moved"), "answers 301"),
        ((200, "<html>Sign in</html>"), "does not answer a first request"),
        ((500, "no"), "(500): no"),
    ],
)
def test_a_search_does_not_begin_where_nothing_is_answered(tmp_path, refusal, words):
    with strict_server(refuse=lambda _: refusal) as server:
        done = bench("find", "--base-url", server.base_url, "--model", "m", "--concurrency", "--prompt-length", "20", "--slo",
                     "ttft_p90=1s", "--output-dir", str(tmp_path / "find"))  # fmt: skip
    assert done.returncode == 2
    assert words in done.stderr
    assert "highest load" not in done.stdout + done.stderr


def test_the_sdk_s_other_reading_is_said():
    """A byte order mark, which the SDK takes for a part of the first field's name."""
    body = "\ufeff" + delta(content="A") + delta(content="b", finish="length") + usage(2, prompt=8) + DONE
    said = []
    with strict_server(refuse=lambda _: (200, body)) as server:
        target = introduce(Target(server.base_url, "m"), "chat", say=said.append)
    assert target.form("chat").sdk_differs == "text is 'b' to the SDK, 'Ab' to Saturate"
    assert any("the openai SDK reads an answer differently" in line for line in said)


def test_a_chat_shorter_than_its_template_is_refused_before_the_load():
    with strict_server(template=30) as server:
        target = introduce(Target(server.base_url, "m"), "chat")
        before = len(server.bodies)
        workload = load_workload({"arrival": "burst", "prompt_tokens": 20, "output_tokens": 2, "endpoint": "chat"}, source="t")
        with pytest.raises(BenchError, match=r"prompts of 20 tokens cannot be made: .* adds 30 to each\. Ask for 31 or more"):
            run_load(target, Load(workload, level=1, seed="s"))
    assert len(server.bodies) == before


def test_ids_that_a_tokenizer_lacks_are_not_taken_for_a_refusal_of_ids():
    refusal = 400, {"object": "error", "message": "Token id 987 is out of vocabulary", "code": 400}
    with strict_server(refuse=unless(token_ids=refusal)) as server, pytest.raises(BenchError, match="--vocabulary") as error:
        introduce(Target(server.base_url, "m"), "completions", vocabulary=1000)
    assert "refuses token ids below 1000: Token id 987 is out of vocabulary" in str(error.value)


SGLANG_ROUTER_501 = 501, {"error": {"message": "Completion endpoint not implemented"}}


@cases(
    ("endpoint", "another", "refusal"),
    [("completions", "chat", SGLANG_ROUTER_501), ("completions", "chat", (404, "")), ("chat", "completions", (405, "no"))],
)
def test_a_server_without_the_endpoint_is_said_to_have_the_other(endpoint, another, refusal):
    def refuse(body):
        return None if ("messages" in body) == (another == "chat") else refusal

    with strict_server(refuse=refuse) as server, pytest.raises(BenchError) as error:
        introduce(Target(server.base_url, "m"), endpoint)
    assert f"It answers requests to another endpoint: give --endpoint {another}, or" in str(error.value)
    assert "OPENAI_API_KEY" not in str(error.value)


def test_each_refusal_is_quoted_with_its_own_status():
    """SGLang's router: 422 for ids, and for text 501, as it has no such endpoint."""

    def refuse(body):
        return SGLANG_ROUTER if has("token_ids")(body) else SGLANG_ROUTER_501

    with strict_server(refuse=refuse) as server, pytest.raises(BenchError) as error:
        introduce(Target(server.base_url, "m"), "completions")
    words = "(422): Failed to deserialize the JSON body: prompt: data did not match any variant of untagged enum StringOrArray; nor does"
    assert words in str(error.value)
    assert "(501): Completion endpoint not implemented. " in str(error.value)


def test_a_refusal_that_may_be_about_a_key_says_whether_there_is_one():
    """LiteLLM without its database says nothing of a key."""
    with strict_server(refuse=lambda _: (400, {"error": {"message": "No connected db."}})) as server:
        with pytest.raises(BenchError, match=r"No connected db.* OPENAI_API_KEY is not set: export it if") as error:
            introduce(Target(server.base_url, "m"), "completions")
        assert "whether it has the endpoint completions" in str(error.value)
        with pytest.raises(BenchError) as error:
            introduce(Target(server.base_url, "m", "secret"), "completions")
        assert "OPENAI_API_KEY" not in str(error.value)


@cases(
    ("models", "words"),
    [
        ({"data": []}, "Its /v1/models lists no model, and not 'm': check the model's name."),
        ({"models": [{"name": "a"}, {"name": "b"}]}, "Its /v1/models lists a, b, and not 'm': check the model's name."),
        ({"data": [{"id": "m"}]}, "Check the model's name ('m')"),
        ("Not Found", "Check the model's name ('m')"),
    ],
)
def test_an_empty_404_is_explained_by_the_models_that_are_served(models, words):
    """As Dynamo answers for a model that it does not have."""
    with strict_server(refuse=lambda _: (404, ""), models=models) as server, pytest.raises(BenchError) as error:
        introduce(Target(server.base_url, "m"), "chat")
    assert "does not answer a first request of 8 tokens (404): without a word; nor does it" in str(error.value)
    assert words in str(error.value)
    assert "http_error" not in str(error.value)

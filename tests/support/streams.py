"""Answers of other people's servers as bytes, read without a network: each piece arrives at a moment that the test decides."""

import json
from pathlib import Path

from bench.load.exchange import Exchange
from bench.load.records import record_of

INPUTS = Path(__file__).parents[1] / "inputs"
PROMPT = 20


def record(pieces, **more):
    """The record of an answer. Args: as of `exchange`."""
    return record_of(exchange(pieces, **more), 0.0)


def exchange(
    pieces, *, asked=4, status=200, headers=None, ended=True, failure=None, error=None, streamed=True, endpoint="completions"
):
    """A request and its answer. Args: pieces: of the body, (s since the request was sent, bytes or text)."""
    lines = {"content-type": "text/event-stream", **(headers or {}), "transfer-encoding": "chunked"}
    head = f"HTTP/1.1 {status} X\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
    times, reads = [0.0], [head.encode()]
    for at, text in pieces:
        data = text if isinstance(text, bytes) else text.encode()
        times.append(at)
        reads.append(b"%x\r\n%s\r\n" % (len(data), data))
    if ended:
        times.append(times[-1])
        reads.append(b"0\r\n\r\n")
    return Exchange(
        0, prompt_asked=PROMPT, output_asked=asked, scheduled=0.0, sent=0.0, end=times[-1], times=times, reads=reads,
        failure=failure, error=error, streamed=streamed, endpoint=endpoint,
    )  # fmt: skip


def script(name):
    """The record of an answer in tests/inputs/streams."""
    content = json.loads((INPUTS / "streams" / f"{name}.script.json").read_text())
    asked = content["output_length_to_ask"]
    pieces = [(at, text.replace("{PROMPT}", str(PROMPT)).replace("{OUTPUT}", str(asked))) for at, text in content["pieces"]]
    return record(pieces, asked=asked, status=content.get("status", 200), headers=content.get("headers"))


def event(content, name=None):
    """One event."""
    text = content if isinstance(content, str) else json.dumps(content)
    return (f"event: {name}\n" if name else "") + f"data: {text}\n\n"


def usage(completion, prompt=PROMPT, **more):
    """The event with the counts."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more}
    return event({"object": "chat.completion.chunk", "choices": [], "usage": counts})


def delta(finish=None, **content):
    """A chunk of a chat."""
    choice = {"index": 0, "delta": content, "finish_reason": finish}
    return event({"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]})


def text(words, finish=None, **more):
    """A chunk of a completion."""
    choice = {"index": 0, "text": words, "logprobs": None, "finish_reason": finish, **more}
    return event({"id": "t1", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]})


DONE = event("[DONE]")

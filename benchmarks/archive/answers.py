"""What it costs to read a streamed answer after the run: `python -m benchmarks.answers`."""

from __future__ import annotations

import json
import time
from statistics import median

from bench.load.exchange import Exchange
from bench.load.records import record_of

_ANSWERS, _CHUNKS, _TIMES = 300, 64, 7


def main() -> None:
    """Print the CPU time a chunk, of a completion and of a chat."""
    for chat in (False, True):
        answers = [_answer(chat=chat) for _ in range(_ANSWERS)]
        took = []
        for _ in range(_TIMES):
            begin = time.process_time()
            records = [record_of(answer, 0.0) for answer in answers]
            took.append((time.process_time() - begin) / _ANSWERS / _CHUNKS)
        if not all(record.outcome == "ok" and len(record.token_times_s) == _CHUNKS for record in records):
            raise SystemExit("an answer was misread, so its cost says nothing")
        print(f"{'chat' if chat else 'completion'}: {1e6 * median(took):.1f} µs a chunk")


def _answer(*, chat: bool) -> Exchange:
    """An answer as vLLM streams it."""
    said = {"delta": {"content": " w"}} if chat else {"text": " w"}
    events = [{"choices": [{"index": 0, **said, "finish_reason": None}]} for _ in range(_CHUNKS)]
    counts = {"prompt_tokens": 9, "completion_tokens": _CHUNKS, "total_tokens": 9 + _CHUNKS}
    head = {"id": "c", "object": "chunk", "created": 1, "model": "m"}
    lines = [json.dumps({**head, **event}) for event in (*events, {"choices": [], "usage": counts})]
    pieces = [f"data: {line}\n\n".encode() for line in (*lines, "[DONE]")]
    reads = [b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"]
    reads += [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
    reads.append(b"0\r\n\r\n")
    return Exchange(
        0, output_asked=_CHUNKS, scheduled=0.0, sent=0.0, end=9.0, times=[0.01 * i for i in range(len(reads))], reads=reads
    )


if __name__ == "__main__":
    main()

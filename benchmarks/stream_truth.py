"""How often a stream is misread: runs of known truth, as bytes, through the real reader and parser.

    python -m benchmarks.stream_truth                 # a minute of CPU
    python -m benchmarks.stream_truth --runs 200

Each run has sixteen answers of one kind of stream and one kind of text, and any share of waiting before the first token. TPOT is wrong
where its median is off by more than a tenth of the time that the server took for a streamed token after the first moment; it is
withheld where there is none though such a time exists. ITL is wrong where its median is off by more than a fifth of that of the gaps in
which the server made tokens, TTFT where its median is off by more than a tenth from when the server sent the first chunk. A note is
wrong where it names hidden tokens and there are none, or is silent of a tenth or more beside a TPOT.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bench.load.exchange import Exchange
from bench.load.records import record_of
from bench.parse.latency import latency_columns
from bench.parse.stream import gaps_between_tokens, stream_figures, supported
from bench.runs.request import RequestRecord, write_requests
from bench.runs.request_table import request_table
from benchmarks.harness import Referee, print_table

_ANSWERS = 16
_WRONG_TPOT, _WRONG_ITL, _MATTERS = 0.1, 0.2, 0.1
_TOLD = 0.05  # by which TPOT is off where a kind of stream has a row of its own; convention
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
# Tokens as tokenizers of 32,000 to 200,000 entries cut such text: 4.3, 2.9, 4.0, 1.0 and 6.5 bytes in the mean.
_TEXTS = {
    "English": [
        " the",
        " of",
        ",",
        " model",
        " in",
        "ing",
        " requests",
        " and",
        " lat",
        "ency",
        ".",
        " is",
        " measured",
        " a",
        " server",
    ],
    "code": ["self", ".", "_", "name", "(", ")", ":\n", "    ", " =", " x", "[", "i", "]", " return", " None", "\n"],
    "Chinese": ["的", "模型", "，", "是", "请求", "在", "服务", "了", "时间", "。"],
    "digits": list("0123456789"),
    "any tokens": [" straße", "ication", " Worksheet", "ğı", "=>", " необ", "ed", " Publishers", "xF", "ulatory"],
}


@dataclass(frozen=True)
class Kind:
    """How a server streams.

    Attributes:
        each: tokens of a chunk, by a generator; those of a chunk are made in one step if `speculative`, else one after another.
        first: tokens that the first chunk has beyond that. hidden: share of the tokens that come first and are not streamed; counted:
            whether the server says how many; named: it streams them as reasoning. own: whether each chunk counts its tokens.
        buffer: bytes that a proxy gathers before it passes them on. summary: text that stands for the hidden tokens is streamed.
        inside: tokens counted as reasoning, though they are streamed as an answer, as a share. chat: whether it is a chat. ends: share
            of the tokens that come last and spell nothing, in no chunk. said: whether the answer says how many tokens were accepted
            drafts, hidden ones among them. held: share of the answers that something passes on in one.
    """

    each: Callable[[np.random.Generator], int] = lambda _: 1
    speculative: bool = False
    first: int = 0
    hidden: float = 0.0
    counted: bool = False
    own: bool = False
    buffer: int = 0
    summary: bool = False
    inside: float = 0.0
    chat: bool = True
    ends: float = 0.0
    said: bool = False
    held: float = 0.0


def _k(k: int) -> Callable[[np.random.Generator], int]:
    return lambda _: k


def _accepted(chance: float) -> Callable[[np.random.Generator], int]:
    """One token and up to three that were guessed."""
    return lambda generator: 1 + int(np.argmin(np.append(generator.random(3) < chance, False)))


_SEVERAL = {
    **{f"{k} tokens a chunk": Kind(_k(k)) for k in (2, 4, 10)},
    "20 tokens in the first chunk": Kind(first=19),
    **{f"speculative, {share:.0%} accepted": Kind(_accepted(share), speculative=True) for share in (0.1, 0.3, 0.6, 0.9)},
}
_SAID = {
    f"speculative, {share:.0%} accepted, said": Kind(_accepted(share), speculative=True, said=True) for share in (0.1, 0.6, 0.9)
}
KINDS: dict[str, Kind] = {
    "a token a chunk": Kind(),
    **{f"completion, {name}": replace(kind, chat=False) for name, kind in _SEVERAL.items()},
    "completion, 30% special tokens at its end": Kind(chat=False, ends=0.3),
    **{f"chat, {name}": kind for name, kind in _SEVERAL.items()},
    "chat, 2 tokens a chunk, counted": Kind(_k(2), own=True),
    **{f"{share:.0%} hidden, counted": Kind(hidden=share, counted=True) for share in (0.1, 0.5, 0.9)},
    "50% hidden, counted, 4 tokens a chunk": Kind(_k(4), hidden=0.5, counted=True),
    **{f"{share:.0%} hidden, not counted": Kind(hidden=share) for share in (0.05, 0.2, 0.5, 0.9)},
    "50% hidden, not counted, 4 tokens a chunk": Kind(_k(4), hidden=0.5),
    "50% hidden, not counted, speculative": Kind(_accepted(0.5), speculative=True, hidden=0.5),
    "50% hidden, not counted, own counts": Kind(_k(4), hidden=0.5, own=True),
    "90% hidden, a summary is streamed": Kind(hidden=0.9, counted=True, summary=True),
    "30% reasoning inside the answer": Kind(inside=0.3),
    "30% reasoning inside, 5 tokens a chunk": Kind(_k(5), inside=0.3),
    "60% reasoning inside, 5 tokens a chunk": Kind(_k(5), inside=0.6),
    **{f"a proxy gathers {size} bytes": Kind(buffer=size) for size in (512, 4096, 65536)},
    **{f"{share:.0%} of the answers in one piece": Kind(held=share) for share in (0.1, 0.3, 0.45, 0.6, 0.9)},
    **{f"{name}, {hidden:.0%} hidden": replace(kind, hidden=hidden)
       for name, kind in _SAID.items() for hidden in (0.0, 0.05, 0.2, 0.5)},
    **{f"{name}, a proxy gathers {size} bytes": replace(kind, buffer=size)
       for name, kind in _SAID.items() if "60%" in name for size in (512, 4096)},
}  # fmt: skip


@dataclass(frozen=True)
class Truth:
    """What is true of an answer. tpot_s, step_s: None where nothing follows the first moment. hidden: share of all its tokens."""

    tpot_s: float | None
    step_s: float | None
    hidden: float
    ttft_s: float


def answer(
    kind: Kind, text: list[str], tokens: int, gap_s: float, wait_s: float, generator: np.random.Generator
) -> tuple[RequestRecord, Truth]:
    """An answer of `tokens` tokens, `gap_s` a step, the first one after `wait_s`; its record and its truth."""
    words = [text[i] for i in generator.integers(0, len(text), tokens)]
    hidden = int(tokens * kind.hidden)
    groups: list[list[str]] = []
    steps: list[int] = []  # the step in which the last token of a group was made
    at, step = hidden, hidden
    ends = int(tokens * (1 - kind.ends))
    while at < ends:
        size = min(ends - at, kind.each(generator) + (kind.first if not groups else 0))
        step += 1 if kind.speculative else size
        groups.append(words[at : at + size])
        steps.append(step)
        at += size
    if kind.speculative and hidden:
        steps = [s - hidden + round(hidden / (tokens - hidden) * len(groups)) for s in steps]
    noise = generator.normal(1, 0.05, max(*steps, tokens if kind.ends else 0)).clip(0.5)
    moments = wait_s + gap_s * np.cumsum(noise)
    times = [float(moments[s - 1]) for s in steps]
    pieces = [(t, _event(_choice(group, kind))) for t, group in zip(times, groups, strict=True)]
    if kind.summary:
        thought = [
            (wait_s + gap_s * i, _event({"delta": {"reasoning_content": " in short"}}))
            for i in range(1, hidden, max(1, hidden // 20))
        ]
        pieces = sorted([*thought, *pieces], key=lambda piece: piece[0])
    usage: dict[str, Any] = {"prompt_tokens": 9, "completion_tokens": tokens}
    if kind.counted or kind.inside:
        usage["completion_tokens_details"] = {"reasoning_tokens": hidden if kind.counted else int(tokens * kind.inside)}
    # Hidden tokens took as many steps as streamed ones.
    made = len(groups) + (round(hidden / (tokens - hidden) * len(groups)) if hidden else 0)
    drafts = {"timings": {"draft_n": tokens, "draft_n_accepted": tokens - made}} if kind.said else {}
    pieces.append((float(moments[-1]) if kind.ends else times[-1], _event(None, usage, drafts) + b"data: [DONE]\n\n"))
    streamed = ends - hidden
    later = streamed - len(groups[0])
    tpot_s = (times[-1] - times[0]) / later if later > 0 else None
    gaps = [gap for group, step_s in zip(groups, [0.0, *np.diff(times)], strict=True)
            for gap in [step_s, *[0.0] * (len(group) - 1)]]  # fmt: skip
    step_s = float(np.median(gaps[1:] or [gap_s])) if kind.speculative else gap_s
    truth = Truth(tpot_s, step_s, 0.0 if kind.summary else 1 - streamed / tokens, pieces[0][0])
    buffer = 1 << 20 if generator.random() < kind.held else kind.buffer
    return _record(_gathered(pieces, buffer), tokens), truth


def _choice(group: list[str], kind: Kind) -> dict[str, Any]:
    counts = {"token_ids": list(range(len(group)))} if kind.own else {}
    words = "".join(group)
    return {**({"delta": {"content": words}} if kind.chat else {"text": words}), **counts}


def _event(choice: dict[str, Any] | None, usage: dict[str, Any] | None = None, more: dict[str, Any] | None = None) -> bytes:
    content: dict[str, Any] = {
        **(more or {}),
        "id": "chatcmpl-5d0f",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
    }
    content |= {"choices": [] if choice is None else [{"index": 0, **choice, "finish_reason": None}]}
    return b"data: " + json.dumps(content | ({"usage": usage} if usage else {})).encode() + b"\n\n"


def _gathered(pieces: list[tuple[float, bytes]], size: int) -> list[tuple[float, bytes]]:
    """The pieces as a proxy passes them on that gathers `size` bytes."""
    if not size:
        return pieces
    passed, held = [], b""
    for at, data in pieces:
        held += data
        if len(held) >= size or data.endswith(b"[DONE]\n\n"):
            passed.append((at, held))
            held = b""
    return passed


def _record(pieces: list[tuple[float, bytes]], asked: int) -> RequestRecord:
    times = [0.0, *(at for at, _ in pieces), pieces[-1][0]]
    reads = [_HEAD, *(b"%x\r\n%s\r\n" % (len(data), data) for _, data in pieces), b"0\r\n\r\n"]
    return record_of(
        Exchange(0, prompt_asked=9, output_asked=asked, scheduled=0.0, sent=0.0, end=times[-1], times=times, reads=reads), 0.0
    )


def judged(kind: Kind, text: list[str], generator: np.random.Generator, folder: Path) -> dict[str, float | None]:
    """What a run says against its truth: 1 for a fault, 0 for none, None where there is nothing to say; `off` by how much TPOT is."""
    tokens = int(np.exp(generator.uniform(np.log(16), np.log(400))))
    gap_s = float(np.exp(generator.uniform(np.log(0.005), np.log(0.1))))
    waits = tokens * gap_s * np.exp(generator.uniform(np.log(0.01), np.log(3)) + generator.normal(0, 0.5, _ANSWERS))
    found = [answer(kind, text, tokens, gap_s, float(wait), generator) for wait in waits]
    truths = [truth for _, truth in found]
    write_requests([record for record, _ in found], folder / "requests.jsonl")
    requests = latency_columns(request_table(folder / "requests.jsonl").lazy()).collect()
    figures = stream_figures(requests, reasons=kind.chat)
    kept = supported(requests, reasons=kind.chat)
    off = _off(kept["tpot_s"].to_list(), [truth.tpot_s for truth in truths])
    gaps = kept.select(pl.col("token_times_s").list.diff(null_behavior="drop").explode())["token_times_s"].drop_nulls()
    itl = float(gaps.median()) if gaps_between_tokens(figures) and len(gaps) else None  # type: ignore[arg-type]
    step = _median([truth.step_s for truth in truths])
    hidden = float(np.mean([truth.hidden for truth in truths]))
    says, unknown = bool(figures["hidden_tokens"]), bool(figures["unknown_streamed"])
    late = _off(kept["ttft_s"].to_list(), [truth.ttft_s for truth in truths])
    exists = any(truth.tpot_s for truth in truths)
    return {
        "given": float(off is not None) if exists else None,
        "off": off,
        "wrong": None if off is None else float(abs(off) > _WRONG_TPOT),
        "ttft": None if late is None else float(abs(late) > _WRONG_TPOT),
        "itl": None if itl is None or step is None else float(abs(itl - step) > _WRONG_ITL * max(step, 0.001)),
        "note": float((says and not hidden) or (hidden >= _MATTERS and not says and not unknown and off is not None)),
    }


def _off(found: list[float | None], true: list[float | None]) -> float | None:
    """By what share the median TPOT is off; None where there is none."""
    known = _median(found)
    right = _median(true)
    return None if known is None or right is None else known / right - 1


def _median(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def of_kind(number: int, runs: int) -> list[dict[str, float | None]]:
    """So many runs of a kind of stream."""
    texts, rows = list(_TEXTS.values()), []
    with tempfile.TemporaryDirectory() as folder:
        for draw in range(runs):
            generator = np.random.default_rng([number, draw])
            rows.append(judged(list(KINDS.values())[number], texts[draw % len(texts)], generator, Path(folder)))
    return rows


def main() -> None:
    """Print a row a kind of stream of which something is wrong, or TPOT off by 5 % or more; the others in one row."""
    referee = Referee(__doc__, runs=50)
    options = referee.options()
    found = dict(zip(KINDS, referee.spread(partial(of_kind, runs=options.runs), range(len(KINDS))), strict=True))
    told = {name: rows for name, rows in found.items()
            if any(row["wrong"] or row["ttft"] or abs(row["off"] or 0.0) >= _TOLD for row in rows)}  # fmt: skip
    right = [row for name, rows in found.items() if name not in told for row in rows]
    lines = [*told.items(), (f"{len(found) - len(told)} other kinds", right)]
    heads = ("stream", "TPOT wrong", "worst", "TPOT withheld", "ITL given", "TTFT given", "TTFT wrong")
    print_table(heads, ([name, *_cells(rows)] for name, rows in lines))
    itl, note = (max(_share(rows, key) for rows in found.values()) for key in ("itl", "note"))
    print(f"\n{options.runs} runs of each kind, of which at most {itl:.0%} have a wrong ITL and {note:.0%} a wrong note.")


def _share(rows: list[dict[str, float | None]], key: str) -> float:
    return sum(row[key] or 0.0 for row in rows) / len(rows)


def _cells(rows: list[dict[str, float | None]]) -> list[str]:
    worst = max((row["off"] for row in rows if row["off"] is not None), key=abs, default=None)
    withheld = sum(row["given"] == 0.0 for row in rows) / len(rows)
    itl, ttft = (sum(row[key] is not None for row in rows) / len(rows) for key in ("itl", "ttft"))
    shares = (withheld, itl, ttft, _share(rows, "ttft"))
    return [f"{_share(rows, 'wrong'):.1%}", "–" if worst is None else f"{worst:+.0%}", *(f"{each:.0%}" for each in shares)]


if __name__ == "__main__":
    main()

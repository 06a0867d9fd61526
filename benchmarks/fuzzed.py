"""What is fuzzed: each way in which data of others reaches Saturate, with inputs that are nearly right and the code that reads them.

Of each input there is only a BenchError or a result, within a second, and nothing is written outside: tests/project/test_fuzz.py.
"""

from __future__ import annotations

import copy
import gzip
import hashlib
import io
import itertools
import json
import os
import shutil
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from tests.support import records

from bench.beside.archive.unpack import unpack
from bench.errors import BenchError
from bench.load.connection import UNREADABLE, Connection
from bench.load.exchange import Exchange
from bench.load.records import record_of
from bench.measure.exposition import kv_facts, metric_names, metric_values
from bench.parse.exposition import ExpositionError, ExpositionReader
from bench.parse.run import parse_run
from bench.runs.store import Store
from bench.servers.metrics import exposition_names, find_catalogue
from bench.study.plan import Plan
from bench.study.read import load_config, load_file
from bench.study.specs import PROTOCOL

__all__ = ["TARGETS", "Outside", "Target", "TooSlow", "accepted", "inside"]

_DATA = Path(__file__).parent.parent / "tests/data"
LIMIT_S = 1.0  # CPU time: on a busy machine others' work must not fail an input
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGING = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate", "os.utime")


@dataclass(frozen=True)
class Target:
    """One reader of foreign data.

    Attributes:
        inputs: what it is given. read: reads one input in the working directory; raises BenchError, or returns.
    """

    inputs: SearchStrategy[Any]
    read: Callable[[Any], object]


class Outside(Exception):
    """Something was written, made or removed outside of the folder."""


class TooSlow(Exception):
    """An input took more than a second of CPU time."""


_watched: list[tuple[str, list[str]]] = []  # the folder that may change, and what changed elsewhere


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watched:
        return
    if event == "open":
        path, _, flags = arguments
        changes = [path] if flags is not None and flags & _WRITING else []
    elif event in _CHANGING:
        changes = list(arguments[: 2 if event in ("os.rename", "os.link") else 1])
    else:
        return
    folder, found = _watched[-1]
    for path in changes:
        if isinstance(path, str | bytes | os.PathLike):
            where = os.path.realpath(os.fsdecode(path)) if event == "open" else os.path.abspath(os.fsdecode(path))
            if where != os.devnull and not where.startswith(folder) and not _relative_to_descriptor(event, arguments):
                found.append(f"{event} {where}")


def _relative_to_descriptor(event: str, arguments: tuple[Any, ...]) -> bool:
    """Whether a path is relative to an open folder, as shutil.rmtree's are: the folder itself was looked at when it was opened."""
    return event in ("os.remove", "os.rmdir") and len(arguments) > 1 and arguments[1] not in (None, -1)


sys.addaudithook(_audit)


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Work in `folder`, which is emptied for each input; raise Outside where anything changes beyond it."""
    before, found = Path.cwd(), list[str]()
    os.chdir(folder)
    _watched.append((f"{os.path.realpath(folder)}{os.sep}", found))
    try:
        yield
    finally:
        _watched.pop()
        os.chdir(before)
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    if found:
        raise Outside(found[0])


def accepted(target: Target, value: Any, folder: Path) -> bool:
    """Read one input; whether it was not refused.

    Raises:
        Outside, TooSlow: as they say. Anything else but a BenchError: the code's own, a fault.
    """
    begin, refused = time.process_time(), False
    with inside(folder):
        try:
            target.read(value)
        except BenchError:
            refused = True
    if (spent := time.process_time() - begin) > LIMIT_S:
        raise TooSlow(f"{spent:.1f} s")
    return not refused


_STUDY: dict[str, Any] = {
    "study": {"title": "t", "ladders": [{"deployment": "a", "workload": "short", "concurrency": [1, 2], "repeats": 2}]},
    "models": {"m": {"config": {
        "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "num_hidden_layers": 2, "intermediate_size": 128, "vocab_size": 512, "max_position_embeddings": 256}}},
    "engines": {"e": {"source": "command", "command": ["true"]}, "x": {"source": "external", "base_url": "http://127.0.0.1:1"}},
    "deployments": {"a": {"model": "m", "engine": "e", "kv_cache_memory": "1MiB", "environment": {"A": "b"}, "flags": {"x": 1}}},
    "workloads": {
        "short": {
            "arrival": "burst", "prompt_tokens": 32, "output_tokens": {"distribution": "uniform", "min": 9, "max": 20}},
        "open": {"arrival": "poisson", "archetype": "chat", "duration_s": 5.0,
                 "step": {"factor": 2.0, "start_s": 1.0, "duration_s": 1.0}}},
    "measurement": {"scrape_interval_s": 0.2, "seed": 0, "telemetry": {"d": "http://127.0.0.1:9/metrics"}},
    "thresholds": {"client_delay_p99_s": 0.05, "count_error": 0.25},
    "decision": {"slo": ["ttft_p99=2s"], "peak_rps": 10.0},
    "hardware": {"mine": {
        "title": "t", "memory": "80GiB", "bandwidth_tb_s": 2.0, "bf16_tflops": 300.0, "power_w": 400.0, "source": "s"}},
    "select": "*",
}  # fmt: skip
_ODD_TEXTS = (
    "",
    " ",
    "lots",
    "1e400",
    "99999999999GiB",
    "64MiB",
    "²",
    "\0",
    "é" * 300,
    "../../x",
    "/etc/passwd",
    ".",
    "a" * 70,
    "*",
    "[",
    "<<",
    "http://x:99999",
    "http://[",
    "junk",
    "ttft_p99=0s",
    "normal",
    "trace",
    "lock",
    "external",
    "nan",
    "2026-13-45",
    "a.b",
    "A",
    "-",
)
_SCALARS = st.one_of(
    st.sampled_from([None, True, False, 0, 1, -1, 10**6, 10**9, 10**15, 2**63, 10**30, 10**400, 0.0, -0.5, 1e-300, 1e308]),
    st.sampled_from([float("nan"), float("inf"), float("-inf")]),
    st.sampled_from(_ODD_TEXTS),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
)
_VALUES = st.one_of(
    _SCALARS,
    _SCALARS,
    st.lists(_SCALARS, max_size=3),
    st.lists(st.dictionaries(st.sampled_from(_ODD_TEXTS), _SCALARS, max_size=2), max_size=2),
    st.dictionaries(st.sampled_from([*_ODD_TEXTS, 1, None]), _SCALARS, max_size=2),
)
_LARGE = st.sampled_from([*range(1, 500)]).map(lambda n: list(range(1, 300 * n, n))) | st.integers(1, 90).map(
    lambda depth: yaml.safe_load("[" * depth + "]" * depth)
)


def _places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a configuration."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from _places(value, (*path, key))


_CHANGE = st.tuples(
    st.sampled_from(sorted(_places(_STUDY), key=repr)), st.sampled_from(["value", "key", "remove"]), _VALUES | _LARGE
)


def _study(changes: list[tuple[tuple[Any, ...], str, Any]]) -> dict[str, Any]:
    """The study with some values or keys replaced or removed."""
    content = copy.deepcopy(_STUDY)
    for (*parents, key), what, value in changes:
        with suppress(KeyError, IndexError, TypeError):  # an earlier change took it away
            holder: Any = content
            for part in parents:
                holder = holder[part]
            if what == "value":
                holder[key] = value
            elif what == "remove":
                del holder[key]
            elif isinstance(holder, dict):
                holder[str(value)[:80]] = holder.pop(key)
    return content


def _read_study(content: Mapping[str, Any]) -> None:
    _use(Plan.of(load_config(content, source="fuzz")))


def _use(plan: Plan) -> None:
    """What every workflow asks of a plan."""
    _ = plan.digest, plan.rows, [plan.longest_request(name) for name in plan.deployments]


def _read_text(text: bytes) -> None:
    Path("study.yaml").write_bytes(text)
    _use(Plan.of(load_file(Path("study.yaml"))))


_YAML = yaml.safe_dump(_STUDY, sort_keys=False).encode()
_PIECES = (
    "a:",
    "- ",
    "&a ",
    "*a ",
    "*b",
    "{",
    "}",
    "[",
    "]",
    "<<: ",
    "!!int ",
    "!!python/name:os.system ",
    "? ",
    "| ",
    "> ",
    "\n",
    "  ",
    "'",
    '"',
    "\\x",
    "%YAML 1.1\n",
    "---\n",
    "...\n",
    "\t",
    "#",
    "study: ",
    "models: ",
    ",",
    "0x" + "f" * 50,
    "2026-13-01",
    "~",
    "é",
)


@st.composite
def _mutated(draw: st.DrawFn, original: bytes, pieces: tuple[bytes, ...] = ()) -> bytes:
    """Bytes of which some stretches are cut out, repeated or replaced."""
    data = original
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.sampled_from([0, 0, 1, 1, 2, 5, 20, 200])))
        new = draw(st.binary(max_size=6) | (st.sampled_from(pieces) if pieces else st.nothing()))
        data = data[:at] + new * draw(st.sampled_from([1, 1, 1, 2, 50])) + data[end:]
    return data


def _alias_bomb(levels: int, width: int, merge: bool) -> bytes:
    lines = ["a0: &a0 {x: 1}" if merge else "a0: &a0 [x]"]
    for i in range(1, levels):
        inner = ", ".join([f"*a{i - 1}"] * width)
        lines.append(f"a{i}: &a{i} {{<<: [{inner}]}}" if merge else f"a{i}: &a{i} [{inner}]")
    return "\n".join(lines).encode()


_TEXTS = st.one_of(
    _mutated(_YAML, tuple(piece.encode() for piece in _PIECES)),
    st.lists(st.sampled_from(_PIECES), max_size=40).map(lambda parts: "".join(parts).encode()),
    st.binary(max_size=60),
    st.integers(1, 6000).map(lambda depth: b"study: " + b"[" * depth),
    st.integers(1, 3000).map(lambda depth: b"\n".join(b" " * i + b"a:" for i in range(depth))),
    st.builds(_alias_bomb, st.integers(1, 40), st.integers(1, 12), st.booleans()),
    st.integers(1, 6000).map(lambda digits: _YAML.replace(b"1MiB", b"9" * digits)),
)


@cache
def _pack() -> dict[str, bytes]:
    """The members of a small pack that is whole."""
    content = {**_STUDY, "workloads": {"short": _STUDY["workloads"]["short"]}}
    plan = Plan.of(load_config(content, source="fuzz"))
    spec = plan.deployments["a"]
    members = {"study.yaml": yaml.safe_dump(content, sort_keys=False).encode()}
    for part, record in (
        ("launch.json", records.launch(digest=spec.digest)),
        ("deployment.json", records.facts(digest=spec.digest)),
    ):
        members[f"deployments/a/{part}"] = json.dumps(asdict(record)).encode()
    files = {"requests.jsonl": hashlib.sha256(b"{}\n").hexdigest()}
    for run in plan.runs:
        members[f"runs/{run.key}/requests.jsonl"] = b"{}\n"
        of = {"protocol": PROTOCOL, "deployment_digest": spec.digest, "digest": run.digest, "definition": run.definition}
        members[f"runs/{run.key}/run.json"] = json.dumps(asdict(records.run(**of, files=files))).encode()
    index = {"format": 1, "runs": {run.key: run.digest for run in plan.runs}, "missing": [], "commit": None}
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in members.items()}
    return {**members, "pack.json": json.dumps({**index, "files": hashes}).encode()}


_TYPES = (
    tarfile.REGTYPE,
    tarfile.REGTYPE,
    tarfile.SYMTYPE,
    tarfile.LNKTYPE,
    tarfile.DIRTYPE,
    tarfile.FIFOTYPE,
    tarfile.CHRTYPE,
)
_NAMES = (
    "./pack.json",
    "../x",
    "/opt/x",
    "a/../../x",
    "",
    ".",
    "runs/a/b/c/d",
    "logs/x.log",
    "deployments/a/sub/x",
    "x\0y",
    "é",
)


@st.composite
def _packs(draw: st.DrawFn) -> bytes:
    """A pack with members that were altered, renamed, added or dropped; its index agrees with them, or does not."""
    members = dict(_pack())
    order = list(members)
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from(order))
        members[name] = draw(_mutated(members[name]) | _VALUES.map(lambda value: repr(value).encode(errors="replace")))
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        if draw(st.booleans()):
            index = json.loads(members["pack.json"])
            index["files"] = {n: hashlib.sha256(data).hexdigest() for n, data in members.items() if n != "pack.json"}
            members["pack.json"] = json.dumps(index).encode()
    odd = draw(
        st.dictionaries(
            st.sampled_from(order), st.tuples(st.sampled_from(_NAMES) | st.text(max_size=12), st.sampled_from(_TYPES))
        )
    )
    left_out = draw(st.sampled_from([None, None, None, None, *order]))
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar:
        for name in draw(st.sampled_from([order, order[::-1]])):
            if name == left_out:
                continue
            renamed, kind = odd.get(name, (name, tarfile.REGTYPE))
            info = tarfile.TarInfo(renamed.replace("\0", "\1"))
            info.type, info.linkname, info.size = kind, "/etc/passwd", len(members[name]) if kind == tarfile.REGTYPE else 0
            with suppress(ValueError, UnicodeError):
                tar.addfile(info, io.BytesIO(members[name]))
    return draw(_mutated(file.getvalue())) if draw(st.integers(0, 4)) == 0 else file.getvalue()


def _read_pack(data: bytes) -> None:
    Path("a.tar.gz").write_bytes(data)
    unpack(Path("a.tar.gz"), Store(owner="unpack"))


_EXPOSITIONS = [(_DATA / f"{name}.prom").read_bytes()[:6000] for name in ("vllm-0.32.0", "sglang-0.5.23", "tgi-3.3.7")]
_WORDS = (
    *(b"NaN", b"+Inf", b"-1", b"1e999"),
    *(b"# TYPE ", b"# HELP ", b"{", b"}", b'"', b"\\", b"\n", b'le="', b"=", b" 1 2 3", b"\xff", b"_"),
    *(b"vllm:cache_config_info{block_size=\"\xc2\xb2\",num_gpu_blocks=\"" + b"9" * 50 + b'"} 1\n',),
    *(b"sglang:max_total_num_tokens NaN\n",),
)  # fmt: skip


def _read_exposition(texts: tuple[bytes, bytes]) -> None:
    known: dict[Any, int] = {}
    reader = ExpositionReader(lambda series: known.setdefault(series, len(known)))
    for raw in texts:
        text = raw.decode(errors="replace")
        with suppress(ExpositionError):
            reader.read(text)
        find_catalogue(metric_names(text), "0.32.0")
        metric_values(text, exposition_names(["running", "waiting"]))
        kv_facts(text, {})


_EVENT = {
    "choices": [{"index": 0, "text": "t"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 4, "prompt_tokens_details": None},
}
_BODY = b"data: " + json.dumps(_EVENT).encode() + b"\n\n" + b'data: {"error": {"message": "m"}}\n\ndata: [DONE]\n\n'
_ANSWERS = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(_BODY), _BODY),
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b"
    % (len(json.dumps(_EVENT)), json.dumps(_EVENT).encode()),
    b"HTTP/1.0 503 no\r\ncontent-type: text/plain\r\n\r\n{\"detail\": [\"busy\"]}",
)  # fmt: skip
_HTTP = (
    *(b"\r\n", b"\r\n\r\n", b"HTTP/1.1 ", b"101", b"204", b"content-length: -1\r\n", b"content-length: 99999999999999999999\r\n"),
    *(b"transfer-encoding: gzip, chunked\r\n", b"content-encoding: \xff\r\n", b"connection: upgrade\r\nupgrade: x\r\n", b"data: "),
    *(b"ffffffffffffffffff\r\n", b"{", b"[" * 2000, b'{"choices": 5}', b'{"usage": []}', b"null", b"0\r\n\r\n", b'{"error":' * 300),
)  # fmt: skip
_CUTS = st.lists(st.integers(1, 400), max_size=12)


def _read_answer(case: tuple[bytes, list[int], bool, str | None]) -> None:
    """What the loop asks of each read, and the record afterwards."""
    data, cuts, streamed, failure = case
    edges = [0, *sorted({min(cut, len(data)) for cut in cuts}), len(data)]
    reads = [data[a:b] for a, b in itertools.pairwise(edges) if a < b]
    exchange = Exchange(0, scheduled=1.0, sent=1.0, end=9.0, streamed=streamed, failure=failure)
    connection = Connection.__new__(Connection)
    connection.reusable = True
    connection._reset()
    connection.exchange = exchange
    with suppress(*UNREADABLE):
        for i, read in enumerate(reads):
            exchange.reads.append(read)
            exchange.times.append(2.0 + i)
            if connection.complete(read):
                break
    exchange.reads, exchange.times = reads, [2.0 + i for i in range(len(reads))]
    json.dumps(asdict(record_of(exchange, 1.0)))


_RECORD: dict[str, Any] = {
    "index": 0, "after": None, "outcome": "ok", "error": None, "status": 200, "prompt_asked": 8, "output_asked": 4, "prompt_tokens": 8,
    "completion_tokens": 4, "cached_tokens": None, "scheduled_s": 0.0, "sent_s": 0.0, "headers_s": 0.1, "first_byte_s": 0.1,
    "first_token_s": 0.1, "first_output_s": 0.1, "last_token_s": 0.4, "end_s": 0.5, "ttft_s": 0.1, "e2e_s": 0.4,
    "token_times_s": [0.1, 0.2, 0.3, 0.4],
}  # fmt: skip
_RUN: dict[str, Any] = {
    "digest": "d", "protocol": 4, "engine_version": "0.32.0", "definition": {
        "deployment": "a", "run": "r", "workload": "short", "arrival": "burst", "axis": "concurrency", "level": 2, "repeat": 1,
        "seed": 0,
        "prompt_tokens": {"distribution": "fixed", "tokens": 8}, "output_tokens": {"distribution": "fixed", "tokens": 4}},
    "started": "2026-01-01T00:00:00.000+00:00", "clock_start_s": 0.0, "duration_s": 1.0, "drain_s": 0.0, "scrape_interval_s": 0.2,
    "scrape_endpoint": "http://x/metrics", "client": {"cpu_s": 0.1}, "prefix": {"primed_tokens": 0, "expected_tokens": 0}, "host": {},
}  # fmt: skip


def _odd(keys: Iterable[str], most: int) -> SearchStrategy[dict[str, Any]]:
    """Other values of some of the keys."""
    return st.dictionaries(st.sampled_from(sorted(keys)), _VALUES, max_size=most)


_SCRAPE = {"slot": 0, "endpoint": "http://x/metrics", "sent": 0.0, "received": 0.0, "text": "vllm:num_requests_running 1\n"}


@st.composite
def _runs(draw: st.DrawFn) -> tuple[bytes, bytes, bytes]:
    """A run's record, its requests and its telemetry, altered; the record's checksums are right."""
    lines = []
    for index in range(draw(st.integers(0, 4))):
        line = {**_RECORD, "index": index, **draw(_odd([*_RECORD, "else"], 2))}
        lines.append(json.dumps(line).encode() if draw(st.integers(0, 5)) else draw(_mutated(json.dumps(_RECORD).encode())))
    scrapes = [
        json.dumps({**_SCRAPE, "slot": i, "sent": i / 5, "received": i / 5, **odd})
        for i, odd in enumerate(draw(st.lists(_odd([*_SCRAPE, "error"], 1), max_size=3)))
    ]
    telemetry = gzip.compress("\n".join(scrapes).encode(errors="replace"), 1, mtime=0)
    record = {**_RUN, **draw(_odd(_RUN, 1))}
    if draw(st.booleans()) and isinstance(record["definition"], dict):
        record["definition"] = record["definition"] | draw(_odd([*_RUN["definition"], "step", "turns", "family", "stream"], 2))
    return json.dumps(record).encode(), b"\n".join(lines), draw(_mutated(telemetry)) if draw(st.booleans()) else telemetry


def _read_run(case: tuple[bytes, bytes, bytes]) -> None:
    record, requests, telemetry = case
    files = {"requests.jsonl": requests, "telemetry.jsonl.gz": telemetry}
    folder = Path("run")
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    content = {**json.loads(record), "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}}
    (folder / "run.json").write_text(json.dumps(content))
    parse_run(folder, **{key: Path("parsed") / key for key in ("requests", "telemetry", "wide", "summary")})


TARGETS = {
    "configuration": Target(st.lists(_CHANGE, min_size=1, max_size=3).map(_study), _read_study),
    "yaml": Target(_TEXTS, _read_text),
    "pack": Target(_packs(), _read_pack),
    "exposition": Target(
        st.sampled_from(_EXPOSITIONS).flatmap(lambda text: st.tuples(_mutated(text, _WORDS), _mutated(text, _WORDS))),
        _read_exposition,
    ),
    "answer": Target(
        st.tuples(
            st.sampled_from(_ANSWERS).flatmap(lambda data: _mutated(data, _HTTP)),
            _CUTS,
            st.booleans(),
            st.sampled_from([None, None, "disconnect", "timeout"]),
        ),
        _read_answer,
    ),
    "run": Target(_runs(), _read_run),
}

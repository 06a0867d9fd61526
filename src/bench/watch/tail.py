"""The newest numbers in a `telemetry.jsonl.gz` that still grows."""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.engines import Kind
from bench.measure.metrics import metric_names, metric_values
from bench.telemetry import SHARES, find_catalogue

_PIECE = 1 << 18  # bytes read at once: what they unpack to must not fill the memory
_WINDOW_S = 5.0  # over which tokens a second are counted: some engines count a request's tokens at its end
_GZIP = 31  # zlib's name for the format


@dataclass(frozen=True)
class Live:
    """What the server reported last in this run. None: its engine does not report that.

    Attributes:
        elapsed_s: from the run's first scrape to the last. running, waiting: requests. kv_usage: share of the KV cache (0–1).
        tokens_per_s: output tokens, over the last seconds. requests_done: since the first scrape.
        ttft_s: mean over the requests that had their first token since then, by the server's clock.
        error: why the last scrape failed.
    """

    elapsed_s: float
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    tokens_per_s: float | None = None
    requests_done: float | None = None
    ttft_s: float | None = None
    error: str | None = None


class Tail:
    """Reads what came since the last time, however little: a line, a block or the file itself may be incomplete.

    Args:
        engines: endpoints of engines, whose numbers are added up; their lines come first.
    """

    def __init__(self, path: Path, engines: int = 1) -> None:
        self._path, self._offset, self._engines = path, 0, engines
        self._unpack, self._rest = zlib.decompressobj(_GZIP), b""
        self._newest: dict[str, dict[str, float]] = {}  # of each engine, by its endpoint
        self._kind: Kind | None = None
        self._names: dict[str, str] = {}
        self._first: dict[str, float] = {}
        self._begin: float | None = None
        self._at = 0.0  # when the newest of them came
        self._tokens: deque[tuple[float, float]] = deque()
        self._live: Live | None = None

    def read(self) -> Live | None:
        """The newest numbers; None while there are none, or where the file cannot be read."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                while piece := file.read(_PIECE):
                    self._offset += len(piece)
                    *lines, self._rest = (self._rest + self._unpack.decompress(piece)).split(b"\n")
                    self._take(lines)
        except (OSError, zlib.error):  # not there yet, or not any more; not a gzip file
            pass
        return self._live

    def _take(self, lines: list[bytes]) -> None:
        """The first scrape of each engine's endpoint, whose lines come first, and the last; those between say nothing more."""
        while lines and len(self._newest) < self._engines:
            if (scrape := _scrape(lines[0])) and "text" in scrape and scrape["endpoint"] not in self._newest:
                self._start(scrape)
            lines = lines[1:]
        if len(self._newest) < self._engines:
            return
        failed: dict[str, Any] | None = None
        seen: dict[str, dict[str, Any]] = {}
        for line in reversed(lines):
            if len(seen) == self._engines:
                break
            if (scrape := _scrape(line)) and scrape["endpoint"] in self._newest and scrape["endpoint"] not in seen:
                if "text" in scrape:
                    seen[scrape["endpoint"]] = scrape
                elif not seen:
                    failed = failed or scrape
        if seen or self._live is None:
            self._update(seen.values())
        if failed:
            self._fail(failed)

    def _start(self, scrape: dict[str, Any]) -> None:
        if self._begin is None:
            self._begin = self._at = scrape["received"]
            found = find_catalogue(metric_names(scrape["text"]))
            self._kind, self._names = found.kind, found.sample_names()
        self._newest[scrape["endpoint"]] = self._values(scrape["text"])
        self._first = self._together()

    def _together(self) -> dict[str, float]:
        """Each of our samples that every engine has, of all together; of a share the fullest counts."""
        each = list(self._newest.values())
        common = set.intersection(*map(set, each))
        return {
            ours: (max if ours in SHARES else sum)(values[ours] for values in each) for ours in self._names if ours in common
        }

    def _update(self, scrapes: Iterable[dict[str, Any]]) -> None:
        assert self._begin is not None
        for scrape in scrapes:
            self._newest[scrape["endpoint"]] = self._values(scrape["text"])
            self._at = max(self._at, scrape["received"])
        now = self._together()
        seen = self._since_first(now, "server_ttft_count")
        spent = self._since_first(now, "server_ttft_sum")
        self._live = Live(
            self._at - self._begin,
            running=now.get("running"),
            waiting=now.get("waiting"),
            kv_usage=now.get("kv_usage"),
            tokens_per_s=self._tokens_per_s(self._at, now.get("server_generation_tokens")),
            requests_done=self._since_first(now, "server_e2e_count"),
            ttft_s=spent / seen if spent is not None and seen else None,
        )

    def _fail(self, scrape: dict[str, Any]) -> None:
        """Keep the last numbers, with why there are none since."""
        assert self._begin is not None
        error = str(scrape.get("error", "no answer"))
        self._live = replace(self._live or Live(0.0), elapsed_s=scrape["received"] - self._begin, error=error)

    def _values(self, text: str) -> dict[str, float]:
        """Each of our samples, of all engines behind one endpoint together; of a share the fullest counts."""
        told = {ours: metric_values(text, [name], self._kind) for ours, name in self._names.items()}
        return {ours: (max if ours in SHARES else sum)(values) for ours, values in told.items() if values}

    def _since_first(self, now: dict[str, float], name: str) -> float | None:
        return now[name] - self._first.get(name, 0.0) if name in now else None

    def _tokens_per_s(self, at: float, tokens: float | None) -> float | None:
        if tokens is None or (self._tokens and tokens < self._tokens[-1][1]):
            return None
        self._tokens.append((at, tokens))
        while len(self._tokens) > 2 and self._tokens[1][0] <= at - _WINDOW_S:
            self._tokens.popleft()
        begin, before = self._tokens[0]
        if at <= begin:
            begin, before = self._begin or at, self._first.get("server_generation_tokens", 0.0)
        return (tokens - before) / (at - begin) if at > begin else None


def _scrape(line: bytes) -> dict[str, Any] | None:
    """A line as the scraper writes it; None for any other."""
    try:
        scrape = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(scrape, dict) and isinstance(scrape.get("endpoint"), str) and _is_number(scrape.get("received"))
    return scrape if whole and isinstance(scrape.get("text", ""), str) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

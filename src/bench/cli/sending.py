"""What commands share that send requests to a server: options, the server, and the workload that the options describe."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli import defaults
from bench.cli.checks import headers_of
from bench.cli.options import LOAD, Headers, WorkloadFile, at_least_one, flag, number, option, positive
from bench.endpoints import ENDPOINTS
from bench.errors import BenchError

if TYPE_CHECKING:
    from bench.load.target import Target
    from bench.study import Workload

_REQUESTS = "Requests"
_OUTPUT_TOKENS = 128  # of an answer, where nothing says how many
_LONGEST_NATURAL = 1024  # tokens after which a natural answer ends, likewise
_FEWEST_IDS = 16  # of which prompts can be made that differ


def _ids(text: str) -> int:
    value = number(text)
    if not value >= _FEWEST_IDS or value % 1:
        raise typer.BadParameter(f"{text!r} is not a whole number of {_FEWEST_IDS} or more; prompts need so many ids.")
    return int(value)


def _turns(text: str) -> int:
    if (value := at_least_one(text)) < 2:
        raise typer.BadParameter("a conversation has 2 turns or more.")
    return value


@dataclass(frozen=True, kw_only=True)
class Sending:
    """Options of a command that sends requests; what each says of a workload, a study's key of that meaning says too."""

    base_url: Annotated[str, option("URL", "The server, such as http://127.0.0.1:8000 or https://gateway/llm.")]
    model: Annotated[str, option("NAME", "The model's name as served.")]
    workload: WorkloadFile = None
    arrival: Annotated[
        defaults.Arrival | None,
        option(None, "With --request-rate: gaps between requests.", LOAD, default="poisson, or gamma with --burstiness"),
    ] = None
    burstiness: Annotated[
        float | None,
        option("K", "With --request-rate: shape of gamma gaps; below 1 they come in bursts.", LOAD, parser=positive),
    ] = None
    archetype: Annotated[
        defaults.Archetype | None,
        option(None, "Lengths, shared prefixes and turns of a kind of use; lengths that are given replace its own.", _REQUESTS),
    ] = None
    prompts: Annotated[
        str | None,
        option(
            "FILE",
            "Prompts of your own: a CSV, JSON, JSONL or Parquet file with a column `prompt` (texts), `messages` (chats), or `query` "
            "and `documents` (to rerank), or lines of a .txt file.",
            _REQUESTS,
        ),
    ] = None
    prompt_length: Annotated[int | None, option("TOKENS", "Prompt tokens of each.", _REQUESTS, parser=at_least_one)] = None
    output_length: Annotated[
        int | None, option("TOKENS", "Output tokens of each.", _REQUESTS, parser=at_least_one, default=f"{_OUTPUT_TOKENS}")
    ] = None
    natural: Annotated[
        bool,
        flag(
            "--natural",
            f"Let answers end by themselves, after --output-length tokens ({_LONGEST_NATURAL}) at the latest.",
            _REQUESTS,
        ),
    ] = False
    turns: Annotated[
        int | None,
        option("N", "Requests in a conversation: each turn's prompt holds what was said before.", _REQUESTS, parser=_turns),
    ] = None
    turn_length: Annotated[
        int | None,
        option("TOKENS", "Tokens that a turn adds; chats of --prompts have their own.", _REQUESTS, parser=at_least_one),
    ] = None
    history: Annotated[
        defaults.History | None,
        option(
            None,
            "Answers in the history: made ones, or those of the file, or the server's own.",
            _REQUESTS,
            default="scripted; own with --prompts",
        ),
    ] = None
    shared_prefix: Annotated[
        float | None, option("SHARE", "Share of each prompt that is the same in all, 0 to 1.", _REQUESTS)
    ] = None
    endpoint: Annotated[
        defaults.Endpoint | None, option(None, "The API's endpoint.", _REQUESTS, default="completions; chat with --prompts")
    ] = None
    no_stream: Annotated[bool, flag("--no-stream", "Ask for whole answers; there is no TTFT then.", _REQUESTS)] = False
    honour_retry_after: Annotated[
        bool,
        flag(
            "--honour-retry-after",
            "Send what is refused with 429 or 503 again after its Retry-After; TTFT counts from the first time.",
            _REQUESTS,
        ),
    ] = False
    vocabulary: Annotated[
        int, option("N", "Prompt ids are below this; 1000 is safe for real models.", _REQUESTS, parser=_ids)
    ] = 1000
    header: Headers = None
    omit: Annotated[
        list[str] | None,
        option(
            "NAME",
            "Leave this out of requests: ignore_eos, token_ids (prompts are text then), stream_options, temperature, max_tokens (then "
            "max_completion_tokens is sent). What the server refuses is left out by itself. Repeatable.",
        ),
    ] = None
    timeout: Annotated[float, option("SECONDS", "When to give up a request.", parser=positive)] = 600.0

    def target(self) -> Target:
        """The server that `--base-url`, `--model` and `--header` name.

        Raises:
            BenchError: one of them cannot be used.
        """
        from bench.http import api_root
        from bench.load.target import Target

        headers = headers_of(self.header or [])
        try:
            return Target(
                api_root(self.base_url), self.model, os.environ.get("OPENAI_API_KEY") or "none", headers, reuses=False
            )
        except BenchError as error:
            raise BenchError(f"--base-url: {error}") from None

    def content(self, arrival: str | None, **further: Any) -> dict[str, Any]:
        """What `--workload` says, with what other options say in its place, as a configuration has it.

        Args:
            arrival: where neither `--arrival` nor `--burstiness` says it; None for the file's. further: what the command's own options
                say; None where they say nothing.

        Raises:
            BenchError: the file cannot be read, or nothing says what prompts are.
        """
        from bench.study import read_workload
        from bench.study.arrivals import GAPS

        if self.arrival and GAPS[self.arrival].shaped != (self.burstiness is not None):
            raise BenchError(
                f"--arrival {self.arrival} needs --burstiness, the shape of its gaps."
                if self.burstiness is None
                else f"--burstiness shapes gamma gaps, and --arrival is {self.arrival}. Leave one of them out."
            )
        if self.workload and not self.workload.is_file():
            raise BenchError(f"--workload {self.workload}: no such file.")
        if self.prompts and self.prompt_length:
            raise BenchError("--prompts and --prompt-length: prompts of a file have their own lengths. Leave one of them out.")
        content = read_workload(self.workload) if self.workload else {}
        given = {
            "archetype": self.archetype,
            "prompts": self.prompts,
            "prompt_tokens": self.prompt_length,
            "output_tokens": self.output_length,
            "arrival": self.arrival or (arrival if self.burstiness is None else "gamma"),
            "burstiness": self.burstiness,
            "cache": None if self.shared_prefix is None else "shared",
            "shared_prefix": self.shared_prefix,
            "endpoint": self.endpoint,
            "stream": False if self.no_stream else None,
            "honour_retry_after": self.honour_retry_after or None,
            **further,
        }
        content |= {key: value for key, value in given.items() if value is not None}
        turns = {"count": self.turns, "new_tokens": self.turn_length, "history": self.history}
        if turns := {key: value for key, value in turns.items() if value is not None}:
            content["turns"] = {**(content.get("turns") or {}), **turns}
        if not content.keys() & {"archetype", "classes", "prompts", "prompt_tokens", "trace"}:
            raise BenchError(
                "--prompt-length is missing: prompt tokens of each request. Or give --prompts FILE, --archetype or --workload FILE."
            )
        content = {"endpoint": "chat" if self.prompts else "completions", **content}
        endpoint = ENDPOINTS.get(str(content["endpoint"]))
        generates = endpoint is None or endpoint.work.generates
        if self.natural:
            asked = content.get("output_tokens")
            longest = asked.get("max") if isinstance(asked, dict) else asked
            content["output_tokens"] = {"distribution": "natural", "max": longest or _LONGEST_NATURAL}
        elif generates and not content.keys() & {"archetype", "classes", "output_tokens", "trace"}:
            content["output_tokens"] = _OUTPUT_TOKENS
        return content

    def checked(self, content: dict[str, Any]) -> Workload:
        """The workload of `content`, as its last words, and whether its prompts can be read.

        Raises:
            BenchError: every fault that was found.
        """
        from bench.study import load_workload

        found = load_workload(content, source=str(self.workload or f"bench {type(self).__name__.lower()}"))
        for name, part in found.parts.items():
            part.prompts.check(ENDPOINTS[found.endpoint], found.turn_count)
            if words := part.prompts.described(found.turn_count):
                print(f"prompts{f' of {name}' if name else ''}: {words}", file=sys.stderr, flush=True)
        return found

    def introduced(self, target: Target, workload: Workload) -> Target:
        """The target, with the form of requests of a workload that it accepts; a line on stderr for what is not exact.

        Raises:
            BenchError: an `--omit` is not known, or the server accepts no form of request.
        """
        from bench.load.introduction import introduce
        from bench.records.form import OPTIONAL

        if unknown := [name for name in self.omit or [] if name not in OPTIONAL]:
            raise BenchError(f"--omit {unknown[0]}: not something that can be left out. There are: {', '.join(OPTIONAL)}.")
        return introduce(
            target,
            workload.endpoint,
            stream=workload.stream,
            scripted=workload.scripted_chats,
            vocabulary=self.vocabulary,
            omit=self.omit or [],
            timeout_s=self.timeout,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )

"""What commands share that send requests to a server: options, the server, and the workload that the options describe."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bench.cli import defaults
from bench.cli.checks import headers_of
from bench.cli.options import LOAD, Headers, WorkloadFile, at_least_one, number, option, positive
from bench.errors import BenchError
from bench.workloads.endpoints import ENDPOINTS

if TYPE_CHECKING:
    from bench.load.target import Target
    from bench.workloads.workload import Workload

_REQUESTS = "Requests"
_OUTPUT_TOKENS = 128  # of an answer, where nothing says how many
_FEWEST_IDS = 16  # of which prompts can be made that differ


def _ids(text: str) -> int:
    value = number(text)
    if not value >= _FEWEST_IDS or value % 1:
        raise typer.BadParameter(f"{text!r} is not a whole number of {_FEWEST_IDS} or more; prompts need so many ids.")
    return int(value)


@dataclass(frozen=True, kw_only=True)
class Sending:
    """Options of a command that sends requests. A key of a study's workload that has no option of its own is said by `--set`."""

    base_url: Annotated[str, option("URL", "The server, such as http://127.0.0.1:8000 or https://gateway/llm.")]
    model: Annotated[str, option("NAME", "The model's name as served.")]
    workload: WorkloadFile = None
    set: Annotated[
        list[str] | None,
        option(
            "KEY=VALUE",
            "A key of a workload as a study has it, in place of the file's: endpoint=chat, turns.count=4, "
            "'output_tokens={distribution: natural, max: 400}'. Repeatable. docs/reference/configuration.md has all of them.",
            LOAD,
        ),
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
        """The server that `--base-url`, `--model` and `--header` name."""
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
        """What `--workload` says, with what other options and `--set` say in its place, as a configuration has it.

        Args:
            arrival: where `--set` does not say it; None for the file's. further: what the command's own options say; None where they
                say nothing.

        Raises:
            BenchError: the file cannot be read, a `--set` is not KEY=VALUE, or nothing says what prompts are.
        """
        from bench.study.read import read_workload
        from bench.workloads.archetypes import ARCHETYPES

        if self.workload and not self.workload.is_file():
            raise BenchError(f"--workload {self.workload}: no such file.")
        content = read_workload(self.workload) if self.workload else {}
        given = {
            "archetype": self.archetype,
            "prompts": self.prompts,
            "prompt_tokens": self.prompt_length,
            "output_tokens": self.output_length,
            "arrival": arrival,
            **further,
        }
        content |= {key: value for key, value in given.items() if value is not None}
        for (key, *within), value in map(key_and_value, self.set or []):
            preset = ARCHETYPES.get(str(content.get("archetype")), {}) if within and "prompts" not in content else {}
            content = {**content, key: _with(content.get(key, preset.get(key)), within, value)}
        if not content.keys() & {"archetype", "classes", "prompts", "prompt_tokens", "trace"}:
            raise BenchError(
                "--prompt-length is missing: prompt tokens of each request. Or give --prompts FILE, --archetype or --workload FILE."
            )
        content = {"endpoint": "chat" if self.prompts else "completions", **content}
        endpoint = ENDPOINTS.get(str(content["endpoint"]))
        generates = endpoint is None or endpoint.work.generates
        if generates and not content.keys() & {"archetype", "classes", "output_tokens", "trace"}:
            content["output_tokens"] = _OUTPUT_TOKENS
        return content

    def checked(self, content: dict[str, Any]) -> Workload:
        """The workload of `content`, once its prompts could be read; a line on stderr for what they hold.

        Raises:
            BenchError: every fault that was found.
        """
        from bench.study.read import load_workload

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
        from bench.runs.form import OPTIONAL

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


def key_and_value(pair: str) -> tuple[list[str], Any]:
    """The key of a `--set`, of which each further part is a key within the one before it, and the value."""
    import yaml

    key, given, text = pair.partition("=")
    keys = key.split(".")
    if not given or not all(keys):
        raise BenchError(f"--set {pair}: it is KEY=VALUE, such as endpoint=chat.")
    try:
        return keys, yaml.safe_load(text)
    except yaml.YAMLError:
        raise BenchError(f"--set {pair}: its value is not YAML. Quote a text that has special characters.") from None


def _with(content: Any, keys: Sequence[str], value: Any) -> Any:
    """A mapping with the value at its place; without keys, the value."""
    if not keys:
        return value
    known = content if isinstance(content, Mapping) else {}
    return {**known, keys[0]: _with(known.get(keys[0]), keys[1:], value)}

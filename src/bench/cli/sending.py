"""What commands share that send requests to a server: options, the server, and the workload that the options describe."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field

from bench.cli.options import LOAD, Headers, OutputLength, PromptLength, WorkloadFile, headers_of, key_and_value, of_set, option
from bench.cli.output import note
from bench.errors import BenchError, meant
from bench.fields import LISTED, Strict
from bench.runs.request import Omissible
from bench.workloads.endpoints import ENDPOINTS

if TYPE_CHECKING:
    from bench.load.target import Target
    from bench.workloads.workload import Workload

_OUTPUT_TOKENS = 128  # of an answer, where nothing says how many
SCRAPE_INTERVAL_S = 0.2
_FEWEST_IDS = 16  # of which prompts can be made that differ

Above0 = Annotated[float, Field(gt=0)]


class Further(Strict):
    """What `--set` says beside the keys of a workload."""

    vocabulary: Annotated[int, Field(ge=_FEWEST_IDS)] = 1000  # prompt ids are below this, which is safe for real models
    omit: Annotated[list[Omissible], LISTED] = Field(default_factory=list)
    timeout_s: Above0 = 600.0


F = TypeVar("F", bound=Further)


@dataclass(frozen=True, kw_only=True)
class Sending:
    """Options of a command that sends requests. A key of a study's workload that has no option of its own is said by `--set`, and so is
    what else the command knows.
    """

    base_url: Annotated[str, option("URL", "The server, such as http://127.0.0.1:8000 or https://gateway/llm.")]
    model: Annotated[str, option("NAME", "The model's name as served.")]
    workload: WorkloadFile = None
    set: Annotated[
        list[str] | None,
        option(
            "KEY=VALUE",
            "A key of a workload as a study has it, in place of the file's: archetype=chat, turns.count=4, "
            "'output_tokens={distribution: natural, max: 400}' (docs/reference/configuration.md has all of them); or one that is named "
            "below. Repeatable.",
            LOAD,
        ),
    ] = None
    prompts: Annotated[
        str | None,
        option(
            "FILE",
            "Prompts of your own: a CSV, JSON, JSONL or Parquet file with a column `prompt` (texts), `messages` (chats), or `query` "
            "and `documents` (to rerank), or lines of a .txt file.",
            LOAD,
        ),
    ] = None
    prompt_length: PromptLength = None
    output_length: OutputLength = None
    header: Headers = None
    metrics: Annotated[str | None, option("URL", "Where the server's metrics are.", default="URL/metrics")] = None

    @cached_property
    def further(self) -> Further:
        """What `--set` says beside the keys of a workload. Raises: BenchError: a key or value is refused."""
        return self.of_set(Further)

    def of_set(self, kind: type[F]) -> F:
        """The keys of `kind` as `--set` has them, the others by default."""
        return of_set(kind, [pair for pair in self.set or () if key_and_value(pair)[0][0] in kind.model_fields])

    def target(self) -> Target:
        """The server that `--base-url`, `--model` and `--header` name. Raises: BenchError: one of them is none, or `--metrics`."""
        from bench.fields import checked_address
        from bench.http import api_root
        from bench.load.target import Target

        headers = headers_of(self.header or [])
        try:
            checked_address(self.metrics or "http://localhost", of_metrics=True)
        except ValueError as error:
            raise BenchError(f"--metrics: {error}.") from None
        try:
            return Target(
                api_root(self.base_url), self.model, os.environ.get("OPENAI_API_KEY") or "none", headers, reuses=False
            )
        except BenchError as error:
            raise BenchError(f"--base-url: {error}") from None

    def content(self, arrival: str | None, **own: Any) -> dict[str, Any]:
        """What `--workload` says, with what other options and `--set` say in its place, as a configuration has it.

        Args:
            arrival: where `--set` does not say it; None for the file's. own: what the command's own options say; None where they say
                nothing.

        Raises:
            BenchError: the file cannot be read, a `--set` is not KEY=VALUE or has no such value, or nothing says what prompts are.
        """
        from bench.study.read import read_workload
        from bench.workloads.archetypes import ARCHETYPES
        from bench.workloads.workload import Workload

        elsewhere = type(self.further).model_fields
        if self.workload and not self.workload.is_file():
            raise BenchError(f"--workload {self.workload}: no such file.")
        content = read_workload(self.workload) if self.workload else {}
        given = {
            "prompts": self.prompts,
            "prompt_tokens": self.prompt_length,
            "output_tokens": self.output_length,
            "arrival": arrival,
            **own,
        }
        content |= {key: value for key, value in given.items() if value is not None}
        for (key, *within), value in map(key_and_value, self.set or ()):
            if key in elsewhere:
                continue
            if key not in Workload.model_fields and (near := meant(key, elsewhere)):
                raise BenchError(f"--set {key}: not a key. Did you mean {near}?")
            preset = ARCHETYPES.get(str(content.get("archetype")), {}) if within and "prompts" not in content else {}
            content = {**content, key: _with(content.get(key, preset.get(key)), within, value)}
        if not content.keys() & {"archetype", "classes", "prompts", "prompt_tokens", "trace"}:
            raise BenchError(
                "--prompt-length is missing: prompt tokens of each request. Or give --prompts FILE, --workload FILE or --set "
                "archetype=chat."
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
                note(f"prompts{f' of {name}' if name else ''}: {words}")
        return found

    def introduced(self, target: Target, workload: Workload) -> Target:
        """The target, with the form of requests of a workload that it accepts; a line on stderr for what is not exact.

        Raises:
            BenchError: the server accepts no form of request.
        """
        from bench.load.introduction import introduce

        return introduce(
            target,
            workload.endpoint,
            stream=workload.stream,
            scripted=workload.scripted_chats,
            vocabulary=self.further.vocabulary,
            omit=self.further.omit,
            timeout_s=self.further.timeout_s,
            say=note,
        )

    def scraping(self, target: Target) -> tuple[Mapping[str, Any], dict[str, Any]]:
        """What the server says of itself, and the arguments by which `record_run` scrapes it, where it can be read."""
        from bench.measure.exposition import find_metrics, worth_reading

        found = find_metrics(target.base_url, self.metrics, target.headers, served=True)
        if not worth_reading(found, named="--metrics" if self.metrics else None, say=note):
            return found.info, {"scrape_interval_s": None}
        return found.info, {
            "scrape_interval_s": SCRAPE_INTERVAL_S,
            "metrics": found.address,
            "metrics_headers": found.headers,
            "say": note,
        }


def _with(content: Any, keys: Sequence[str], value: Any) -> Any:
    """A mapping with the value at its place; without keys, the value."""
    if not keys:
        return value
    known = content if isinstance(content, Mapping) else {}
    return {**known, keys[0]: _with(known.get(keys[0]), keys[1:], value)}

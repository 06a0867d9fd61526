"""What commands share that send requests to a server: options, the server, and the workload that the options describe."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from bench.cli.options import LOAD, Headers, OutputLength, PromptLength, WorkloadFile, headers_of, option
from bench.errors import BenchError
from bench.workloads.endpoints import ENDPOINTS

if TYPE_CHECKING:
    from bench.load.target import Target
    from bench.workloads.workload import Workload

_OUTPUT_TOKENS = 128  # of an answer, where nothing says how many
_FEWEST_IDS = 16  # of which prompts can be made that differ


def whole(least: int) -> Callable[[Any], int]:
    """What checks a whole number of a `--set`."""

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"a whole number of {least} or more")
        return value

    return check


def above(low: float, most: float = math.inf, *, least: bool = False) -> Callable[[Any], float]:
    """What checks a number of a `--set` above `low` (`least`: or equal to it), and below `most`."""

    def check(value: Any) -> float:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not low <= value < most
            or (value == low and not least)
        ):
            ends = f"{f'of {low:g} or more' if least else f'above {low:g}'}{f' and below {most:g}' if most < math.inf else ''}"
            raise ValueError(f"a number {ends}")
        return float(value)

    return check


def _names(value: Any) -> list[str]:
    from bench.runs.request import OPTIONAL

    names = value if isinstance(value, list) else [value]
    if not all(name in OPTIONAL for name in names):
        raise ValueError(f"among {', '.join(OPTIONAL)}")
    return names


@dataclass(frozen=True, kw_only=True)
class Sending:
    """Options of a command that sends requests. A key of a study's workload that has no option of its own is said by `--set`, and so is
    what else the command knows.

    Attributes:
        settings: by such a key the default, and what checks a value. decides: keys of a workload that the command decides itself.
    """

    decides: ClassVar[frozenset[str]] = frozenset()

    settings: ClassVar[dict[str, tuple[Any, Callable[[Any], Any]]]] = {
        "vocabulary": (1000, whole(_FEWEST_IDS)),  # prompt ids are below this, which is safe for real models
        "omit": ([], _names),
        "timeout_s": (600.0, above(0)),
    }

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

    def setting(self, name: str) -> Any:
        """The last value that `--set` gives one of `settings`, else its default.

        Raises:
            BenchError: it is no such value.
        """
        default, check = self.settings[name]
        for (key, *within), value in map(key_and_value, self.set or []):
            if key == name:
                try:
                    default = check(value)
                except ValueError as error:
                    raise BenchError(f"--set {name}={value}: it has to be {error}.") from None
                if within:
                    raise BenchError(f"--set {'.'.join([key, *within])}: {name} has no parts.")
        return default

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
            BenchError: the file cannot be read, a `--set` is not KEY=VALUE or has no such value, or nothing says what prompts are.
        """
        from bench.study.read import read_workload
        from bench.workloads.archetypes import ARCHETYPES

        for name in self.settings:
            self.setting(name)
        if self.workload and not self.workload.is_file():
            raise BenchError(f"--workload {self.workload}: no such file.")
        content = read_workload(self.workload) if self.workload else {}
        given = {
            "prompts": self.prompts,
            "prompt_tokens": self.prompt_length,
            "output_tokens": self.output_length,
            "arrival": arrival,
            **further,
        }
        content |= {key: value for key, value in given.items() if value is not None}
        for (key, *within), value in map(key_and_value, self.set or []):
            if key in self.settings:
                continue
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
                print(f"prompts{f' of {name}' if name else ''}: {words}", file=sys.stderr, flush=True)
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
            vocabulary=self.setting("vocabulary"),
            omit=self.setting("omit"),
            timeout_s=self.setting("timeout_s"),
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

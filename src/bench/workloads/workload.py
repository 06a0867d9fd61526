"""What a run sends: arrivals, lengths, what prompts share, and conversations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, model_validator

from bench.axes import CONCURRENCY, RATE
from bench.errors import BenchError
from bench.fields import MOST_RATE, MOST_REQUESTS, MOST_S, Name, Requests, Seconds, Strict, Tokens, or_auto
from bench.headers import checked_name
from bench.runs.environment import secret_in
from bench.workloads.archetypes import with_archetype
from bench.workloads.classes import RequestClass
from bench.workloads.endpoints import ENDPOINTS
from bench.workloads.gaps import GAPS
from bench.workloads.lengths import Length
from bench.workloads.prompts import RANDOM, SOURCES, Prompts
from bench.workloads.trace import PUBLISHERS, TraceRequest, read_trace, shared_block, thinned
from bench.workloads.trace_times import TraceUnit

OPEN = tuple(GAPS)
# Columns of the summary in which two workloads agree that differ by streaming alone.
ALIKE = (
    "deployment",
    "arrival",
    "axis",
    "level",
    "prompt_fixed",
    "output_fixed",
    "endpoint",
    "cache",
    "turns",
    "body",
    "classes",
    "honour_retry_after",
)
# Keys of a body that other keys of a workload say.
_OURS = {
    *("model", "stream", "stream_options", "ignore_eos", "n", "best_of", "echo", "truncate_prompt_tokens"),
    *("max_new_tokens", "n_predict", "max_tokens", "max_completion_tokens", "max_output_tokens"),
}
_UNEQUAL = 1e-6  # difference from 1 that shares may have together: thirds are written with some digits; convention
_SECRETS = ("authorization", "cookie", "x-api-key", "api-key")
_SHAPED = tuple(name for name, gaps in GAPS.items() if gaps.shaped)
# Keys that belong to some arrivals alone.
_ONLY: Mapping[str, tuple[str, ...]] = {
    "num_requests": ("closed", *OPEN),
    "burstiness": _SHAPED,
    **dict.fromkeys(("duration_s", "step"), OPEN),
    **dict.fromkeys(("trace", "trace_unit", "trace_block", "trace_every", "trace_longest"), ("trace",)),
}
if TYPE_CHECKING:
    Arrival = str
    EndpointName = str
    _Count = int | Literal["auto"]
else:
    _Count = or_auto(Requests)
    Arrival = Literal[("burst", "closed", *OPEN, "trace")]
    EndpointName = Literal[tuple(ENDPOINTS.every())]
_AXES = {"burst": CONCURRENCY, "closed": CONCURRENCY, "trace": "time_scale", **dict.fromkeys(OPEN, RATE)}


def _unsent(body: Mapping[str, Any]) -> str | None:
    """Why a body is no JSON; None where it is."""
    try:
        json.dumps(body, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        return str(error)
    return None


def _session_header(name: str) -> str:
    if name.lower() in _SECRETS:
        raise ValueError(f"{name} carries keys; name another header, such as X-Session-Id")
    return checked_name(name)


class Step(Strict):
    """A sudden change of an open loop's rate; afterwards the server may recover."""

    factor: Annotated[float, Field(gt=0)] = Field(description="Rate during the step, as a multiple of the level.")
    start_s: Annotated[float, Field(ge=0, le=MOST_S)] = Field(description="Start of the step (s since the run's start).")
    duration_s: Seconds = Field(description="Length of the step (s).")


class Turns(Strict):
    """Conversations: each request after the first follows the previous answer, and its prompt holds the whole history:
    the answers of random prompts are drawn too, those of a file are the server's own.
    """

    count: Annotated[int, Field(ge=2, le=MOST_REQUESTS)] = Field(
        description="Requests in a conversation. Of a file of `prompts`, chats with as many turns or more are sent."
    )
    new_tokens: Length | None = Field(
        default=None, description="Tokens that each further turn adds to the prompt; a file of `prompts` has its own."
    )
    think_s: Annotated[float, Field(ge=0, le=MOST_S)] = Field(
        default=0.0, description="Pause between an answer and the next turn (s)."
    )
    session_header: Annotated[str, AfterValidator(_session_header)] | None = Field(
        default=None,
        description="A header that names the conversation, by which a router can keep it on one server.",
    )


class Workload(Strict):
    """What a run sends. How much of it is in flight, or how often it is sent, is the ladder's level."""

    archetype: Literal["chat", "rag", "code", "completion", "agentic"] | None = Field(
        default=None,
        description="A preset for the keys below, which override it. Source: `src/bench/workloads/archetypes.py`.",
    )
    arrival: Arrival = Field(
        description="When requests are sent. `burst`: as many as the level, at once. `closed`: the level is held in flight until "
        "`num_requests` are done. Open loops send at the level's rate, whatever comes back: "
        + ", ".join(f"`{name}` ({gaps.meaning})" for name, gaps in GAPS.items())
        + ". `trace`: as recorded. With `turns`, a rate counts conversations.",
    )
    prompts: Prompts = Field(
        default=RANDOM,
        description="Where prompts come from. "
        + "; ".join(f"`{name}`: {each.meaning}" for name, each in SOURCES.items())
        + ".",
    )
    prompt_tokens: Length | None = Field(
        default=None,
        description="Exact prompt length (tokens). A `trace` and a file of `prompts` have their own.",
    )
    output_tokens: Length | None = Field(
        default=None,
        description="Exact output length (tokens; `ignore_eos` is set). `{distribution: natural, max: 400}`: answers end by "
        "themselves, after 400 tokens at the latest. A `trace` has its own.",
    )
    num_requests: _Count | None = Field(
        default=None,
        description="Requests of a closed loop, at least its highest level, or of an open loop without `duration_s`; with "
        "`turns`, conversations. `auto`, the default: over all repeats of a level 90 for a P90, 180 for a P95 and 920 "
        "for a P99, the strictest in `decision.slo` (more for bursty arrivals; 250 without an SLO), and at least five "
        "times the level in each run of a closed loop. A search decides by itself.",
    )
    duration_s: Seconds | None = Field(
        default=None, description="Open loop: how long requests are sent (s), in place of `num_requests`."
    )
    burstiness: Annotated[float, Field(ge=0.001)] | None = Field(
        default=None,
        description="`gamma`: shape of the gaps' distribution; 1 is Poisson, less is burstier.",
    )
    step: Step | None = Field(default=None, description="Open loop: a higher or lower rate for some time.")
    trace: str | None = Field(
        default=None,
        description="`trace`: a CSV, JSONL or Parquet file, its path from the project's root, with `arrival_s` (s), "
        "`prompt_tokens` and `output_tokens`, or as published: "
        + ", ".join(PUBLISHERS)
        + "; or sessions of Weka, or spans of OpenTelemetry.",
    )
    trace_unit: TraceUnit | None = Field(
        default=None,
        description="`trace`: unit of its arrivals (`us`: microseconds). Required for files with `timestamp`, `input_length` and "
        "`output_length` alone.",
    )
    trace_block: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="`trace`: tokens of a block of its `hash_ids`; default: its publisher's (Mooncake 512, Bailian 16). Prompts "
        "share the blocks with which their ids begin alike. 0: they share nothing.",
    )
    trace_every: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="`trace`: only every Nth user is sent (a column `user`, `session_id` or the like), else session or "
        "request.",
    )
    trace_longest: Tokens | None = Field(
        default=None, description="`trace`: tokens to which longer prompts and answers are cut."
    )
    body: dict[str, Any] = Field(
        default_factory=dict,
        description="Further keys of each request's body, such as `{temperature: 0.7, top_p: 0.9}`; by default the temperature is "
        "0. Recorded: no place for secrets.",
    )
    endpoint: EndpointName = Field(
        default="completions",
        description="Where requests go. " + "; ".join(f"`{name}`: {each.meaning}" for name, each in ENDPOINTS.items()) + ".",
    )
    stream: bool = Field(default=True, description="Whether answers are streamed; otherwise there is no TTFT.")
    cache: Literal["unique", "shared", "repeated", "natural", "as_is"] = Field(
        default="unique",
        description="What a prefix cache can reuse within a run. `unique`: nothing. `shared`: a common beginning "
        "(`shared_prefix`). `repeated`: one prompt for all. `natural`: what prompts of a file have in common, "
        "behind eight letters that differ from run to run. `as_is`: without these letters, so that answers compare; a "
        "server may know such a prompt from an earlier run.",
    )
    shared_prefix: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="`cache: shared`: share of each prompt that all have in common (0–1)."
    )
    turns: Turns | None = Field(default=None, description="Conversations of several requests each.")
    classes: dict[Name, RequestClass] = Field(
        default_factory=dict,
        description="Classes of requests, by name. `decision.slo` may limit each (`chat.ttft_p99=1s`).",
    )
    honour_retry_after: bool = Field(
        default=False,
        description="Whether a request refused with 429 or 503 and `Retry-After` is sent again after that wait. Its TTFT counts "
        "from the first time.",
    )
    stop_overloaded: bool = Field(
        default=False,
        description="Open loop of single requests at a constant rate: whether a run ends early once requests plainly pile up. "
        "Runs of searches always do.",
    )

    keep_answers: bool = Field(
        default=False,
        description="Whether the text of each answer is kept in its request's record, so that answers can be graded. "
        "Runs without answers are measured again. Packs hold the texts.",
    )

    @model_validator(mode="before")
    @classmethod
    def _completed(cls, content: Any) -> Any:
        """What is said, over its archetype, with what follows from it."""
        if not isinstance(content, dict):
            return content
        content = with_archetype(content)
        endpoint = ENDPOINTS.get(str(content.get("endpoint")))
        if endpoint and not endpoint.work.generates:
            content = {"stream": False, **content}
        counted = content.get("num_requests") is not None or content.get("duration_s") is not None
        return content if counted or content.get("arrival") not in ("closed", *OPEN) else {**content, "num_requests": "auto"}

    @model_validator(mode="after")
    def _sound(self) -> Workload:
        if fault := next(self._faults_of_classes() if self.classes else self._faults(), None):
            raise ValueError(fault)
        return self

    def _faults_of_classes(self) -> Iterator[str]:
        shares = sum(each.share for each in self.classes.values())
        rules = (
            (self.arrival == "trace", "a trace says what each of its requests is; remove classes, or the trace"),
            (self.turns is not None, "classes do not go with turns: a level would count requests of one class and conversations of "
             "another. Remove one of them (an archetype's turns with `turns: null`)"),
            (len(self.classes) < 2, "a single class is the workload itself; give two or more"),
            (abs(shares - 1) > _UNEQUAL, f"the shares of the classes are {shares:g} together; make them 1"),
        )  # fmt: skip
        yield from (message for wrong, message in rules if wrong)
        natural, faults = {}, {}
        for name in self.classes:
            try:
                natural[name] = self.of(name).natural
            except ValidationError as error:
                faults[name] = error.errors()[0]["msg"].removeprefix("Value error, ")
        if len(faults) == len(self.classes) and len(set(faults.values())) == 1:  # it is the workload's
            yield from set(faults.values())
        yield from (f"classes.{name}: {fault}" for name, fault in faults.items())
        ends, others = ([name for name, each in natural.items() if each is kind] for kind in (True, False))
        if ends and others:
            yield (
                f"answers of classes.{ends[0]} end by themselves, and those of classes.{others[0]} have the lengths asked for; let all "
                "of them do the same"
            )

    def _faults(self) -> Iterator[str]:
        endpoint, turns, replayed = ENDPOINTS[self.endpoint], self.turns, self.arrival == "trace"
        work, own = endpoint.work, not self.prompts.sized
        added = turns.new_tokens if turns else None
        for key, arrivals in _ONLY.items():
            if getattr(self, key) is not None and self.arrival not in arrivals:
                yield f"{key} belongs to arrival {', '.join(arrivals)}, and arrival is {self.arrival}; remove it"
        rules = (
            (self.arrival in OPEN and self.num_requests is not None and self.duration_s is not None,
             "both num_requests and duration_s are given; keep one"),
            (self.arrival in _SHAPED and self.burstiness is None, f"arrival {self.arrival} needs burstiness, the shape of its gaps"),
            (replayed and self.trace is None, "arrival trace needs trace, its file"),
            (replayed and own, "a trace and a file of prompts both say how long prompts are; remove one of them"),
            (replayed and not work.generates,
             f"endpoint {self.endpoint} answers with {work.answer}, and a trace says how long answers are; remove one of them"),
            (replayed and turns is not None, "turns do not go with a trace, each of whose requests stands alone"),
            (turns is not None and not work.generates, f"endpoint {self.endpoint} answers no turns; remove turns"),
        )  # fmt: skip
        yield from (message for wrong, message in rules if wrong)
        trace = "a trace has its own lengths" if replayed else ""
        prompts, answers = (trace or text for text in (
            "prompts of a file have their own lengths" if own else "",
            "" if work.generates else f"endpoint {self.endpoint} answers with {work.answer}, which have no length",
        ))  # fmt: skip
        lengths = (("prompt", self.prompt_tokens, prompts), ("output", self.output_tokens, answers))
        for what, length, why in lengths:
            if why and length is not None:
                yield f"{why}; remove {what}_tokens, or archetype"
            if not why and length is None:
                yield f"{what}_tokens says how long {'answers' if what == 'output' else 'prompts'} are; give it, or an archetype"
        taken = sorted(self.body.keys() & {*_OURS, *endpoint.keys, *endpoint.limits})
        secret, unsent = secret_in(self.body), _unsent(self.body)
        others = (
            (own and added is not None, "chats of a file have their own turns; remove turns.new_tokens"),
            (not own and turns is not None and added is None,
             "turns.new_tokens says how many tokens a turn adds; give it, or prompts of a file with chats"),
            (own and turns is not None and not endpoint.chats, f"endpoint {self.endpoint} takes no chats of a file; use endpoint chat"),
            (any(length and length.natural for length in (self.prompt_tokens, added)), "prompts have no natural length; answers do"),
            (self.natural and turns is not None and not own,
             "answers in the history of random prompts have the lengths asked for, and natural answers none; use prompts of a file"),
            (not work.generates and self.stream, f"endpoint {self.endpoint} answers at once; remove stream"),
            (not work.generates and self.keep_answers,
             f"endpoint {self.endpoint} answers with {work.answer}, which are no texts; remove keep_answers"),
            (secret is not None, f"body.{secret} looks like a secret, and bodies are recorded; send it in a header"),
            (unsent is not None, f"body cannot be sent: {unsent}"),
            (bool(taken), f"body holds {' and '.join(taken)}, which other keys of the workload say; remove it there"),
            (self.cache not in self.prompts.caches,
             f"cache {self.cache} does not go with prompts: {self.prompts.source}, which can be {', '.join(self.prompts.caches)}"),
            ((self.cache == "shared") != (self.shared_prefix is not None), "cache shared and shared_prefix go together"),
            (turns is not None and self.cache == "repeated", "turns do not go with cache repeated; their prompts grow"),
            (self.cache in ("shared", "repeated") and endpoint.ranks,
             f"cache {self.cache} does not go with endpoint {self.endpoint}, whose documents share a query; remove one of them"),
            (self.stop_overloaded and not self.stoppable,
             f"stop_overloaded belongs to single requests at one rate ({', '.join(OPEN)}); remove it, or turns and step"),
        )  # fmt: skip
        yield from (message for wrong, message in others if wrong)

    def of(self, request_class: str | None) -> Workload:
        """What one of its classes sends, at its share of the load; without a class itself."""
        if request_class is None:
            return self
        content = self.model_dump(exclude_defaults=True, exclude={"classes"})
        return Workload.model_validate(self.classes[request_class].over(content))

    @property
    def parts(self) -> dict[str | None, Workload]:
        """What each of its classes sends, by name; where it has none, itself."""
        return {name: self.of(name) for name in self.classes or (None,)}

    def with_lengths(self, prompt: int | None, output: int | None) -> Workload:
        """This workload with fixed lengths (tokens); None leaves its own."""
        lengths = {"prompt_tokens": prompt, "output_tokens": output}
        content = self.model_dump(exclude_defaults=True, exclude={"archetype"})
        return Workload.model_validate({**content, **{key: value for key, value in lengths.items() if value is not None}})

    @property
    def natural(self) -> bool:
        """Whether answers end by themselves: those of all classes, or of none."""
        part = self.of(next(iter(self.classes), None))
        return part.output_tokens is not None and part.output_tokens.natural

    @property
    def lengths_known(self) -> bool:
        """Whether requests have lengths, and they are known before they are sent."""
        generates = ENDPOINTS[self.endpoint].work.generates
        sized = all(part.prompts.sized for part in self.parts.values())
        return sized and not self.natural and generates

    @property
    def turn_count(self) -> int:
        """Requests of a conversation; 1 where each stands alone."""
        return self.turns.count if self.turns else 1

    def sent(self, level: float) -> float:
        """Requests that a run at `level` sends, of an open loop for some time those that are expected; 0 where a trace has them.

        Of conversations these count, not their turns. `num_requests` is a number.
        """
        if self.arrival == "trace":
            return 0.0
        if self.arrival == "burst":
            return level
        if self.duration_s is None:
            assert isinstance(self.num_requests, int)  # the plan has put a number in place of `auto`
            return float(self.num_requests)
        if step := self.step:
            during = max(0.0, min(step.duration_s, self.duration_s - step.start_s))
            return level * (self.duration_s + (step.factor - 1) * during)
        return level * self.duration_s

    def excess(self, level: float) -> str | None:
        """Why a run at `level` is more than one client sends; None where it is not."""
        requests = self.sent(level) * self.turn_count
        rate = level * max(1.0, self.step.factor if self.step else 1.0) if self.axis == RATE else 0.0
        seconds = 0.0 if self.axis != RATE else self.duration_s or requests / self.turn_count / level
        for value, most, unit, remedy in (
            (rate, MOST_RATE, "requests/s", "the level, or step.factor"),
            (requests, MOST_REQUESTS, "requests", "the level, num_requests, duration_s or turns.count"),
            (seconds, MOST_S, "s", "num_requests, or raise the level"),
        ):
            if value > most:
                return f"{value:.4g} {unit} in a run, and a run of one client has {most:,.0f} at most. Lower {remedy}."
        return None

    @property
    def think_s(self) -> float:
        """Mean pause between two turns (s)."""
        return self.turns.think_s if self.turns else 0.0

    @property
    def scripted_chats(self) -> bool:
        """Whether it sends chats of several turns whose prompts have the lengths asked for."""
        return self.turns is not None and self.lengths_known and ENDPOINTS[self.endpoint].chats

    def alike(self, arrival: str, requests: int | None, prompt: int | None, output: int) -> Workload:
        """A plain load of such requests: from the same source, to the same endpoint, without `body`, which may end answers.

        Args:
            prompt, output: lengths (tokens). prompt: None where the source has its own. output: 0 where answers are no tokens.
        """
        lengths = {"prompt_tokens": prompt, "output_tokens": output or None}
        shape = {"arrival": arrival, "num_requests": requests, "endpoint": self.endpoint, "stream": self.stream}
        return Workload.model_validate({**shape, **lengths, "prompts": self.prompts})

    @property
    def traced(self) -> tuple[TraceRequest, ...]:
        """The requests of its trace; none without one.

        Raises:
            BenchError: the trace cannot be read, or says by itself what prompts share, and `cache` says it too.
        """
        requests = read_trace(self.trace, self.trace_unit, self.trace_block) if self.trace else ()
        also = f"cache {self.cache}" if self.cache != "unique" else f"prompts {self.prompts.source}"
        if also != f"prompts {RANDOM.name}" and any(request.blocks for request in requests):
            raise BenchError(
                f"{self.trace}: its hash_ids or parents say what prompts share, and so does {also}. Remove that, or give "
                "`trace_block: 0` where none has a parent."
            )
        return (
            thinned(requests, self.trace_every or 1, self.trace_longest) if self.trace_every or self.trace_longest else requests
        )

    def with_block(self) -> Workload:
        """This workload with its trace's block length, where the trace's publisher defines it: it decides what is sent."""
        block = shared_block(self.trace) if self.trace and self.trace_block is None else None
        return self.model_copy(update={"trace_block": block}) if block else self

    @property
    def axis(self) -> str:
        """The ladder's key that carries this workload's load, one of `bench.axes`."""
        axis = _AXES[self.arrival]
        return "users" if self.turns and axis == CONCURRENCY else axis

    @property
    def stoppable(self) -> bool:
        """Whether a run of it may end early: requests that pile up are an overload only where as many keep coming."""
        return self.arrival in OPEN and not (self.turns or self.step)

    @property
    def files(self) -> list[str]:
        """Files that decide what is sent."""
        if self.classes:
            return list(dict.fromkeys(file for part in self.parts.values() for file in part.files))
        lengths = (self.prompt_tokens, self.output_tokens, self.turns.new_tokens if self.turns else None)
        return [file for file in (self.trace, *(x.file for x in lengths if x), *self.prompts.files) if file]

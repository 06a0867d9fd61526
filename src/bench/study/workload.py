"""What a run sends: arrivals, lengths, what prompts share, and conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from bench.fields import Count, Strict
from bench.published import ARCHETYPES
from bench.study.arrivals import GAPS
from bench.study.lengths import Length

__all__ = ["OPEN", "Ramp", "Step", "Turns", "Workload"]

OPEN = tuple(GAPS)
_SHAPED = tuple(name for name, gaps in GAPS.items() if gaps.shaped)
if TYPE_CHECKING:
    Arrival = str
else:
    Arrival = Literal[("burst", "closed", *OPEN, "trace")]
_AXES = {"burst": "concurrency", "closed": "concurrency", "trace": "time_scale", **dict.fromkeys(OPEN, "request_rate")}


class Step(Strict):
    """A sudden load on top of an open loop's rate, and the time after it in which the server may recover."""

    factor: Annotated[float, Field(gt=0)] = Field(description="Rate during the step, as a multiple of the level.")
    start_s: Annotated[float, Field(ge=0)] = Field(description="When it begins (s since the run's start).")
    duration_s: Annotated[float, Field(gt=0)] = Field(description="How long it lasts (s).")


class Ramp(Strict):
    """A rate that rises or falls in a line over an open loop's `duration_s`."""

    start_factor: Annotated[float, Field(ge=0)] = Field(
        default=0.0, description="Rate at the start, as a multiple of the level."
    )
    end_factor: Annotated[float, Field(gt=0)] = Field(default=1.0, description="Rate at the end, as a multiple of the level.")


class Turns(Strict):
    """Conversations: each request but the first follows the end of the one before it, and its prompt holds all that was said.

    The answers in a prompt's history are drawn from the seed, as long as they were asked for; what the server really said stays out,
    so that the same prompts go to every server.
    """

    count: Annotated[int, Field(ge=2)] = Field(description="Requests of a conversation.")
    new_tokens: Length = Field(description="Tokens that each turn after the first adds to the history.")
    think_s: Annotated[float, Field(ge=0)] = Field(
        default=0.0, description="Time between an answer's end and the next turn (s)."
    )


class Workload(Strict):
    """The requests of a run, without their load: that is the ladder's axis."""

    archetype: Literal["chat", "rag", "code", "completion", "agentic"] | None = Field(
        default=None,
        description="A preset that fills the keys below that are not given; its numbers and their sources stand in "
        "`src/bench/published/archetypes.py`.",
    )
    arrival: Arrival = Field(
        description="When requests are sent. `burst`: all at once, as many as the level. `closed`: the level is held in flight, each "
        "answer lets the next request go, until `num_requests` are done; several load processes each hold their part of it until "
        "their own share is sent. With `turns`, the level is conversations, some of which may be thinking. "
        "Open loops send at the level's rate and never wait for an answer: "
        + ", ".join(f"`{name}` ({gaps.meaning})" for name, gaps in GAPS.items())
        + ". "
        "`trace`: as recorded in the file.",
    )
    prompt_tokens: Length | None = Field(
        default=None,
        description="Prompt length (tokens), exact: a number, or a distribution. Not with `trace`, which has its own.",
    )
    output_tokens: Length | None = Field(
        default=None, description="Output length (tokens), exact: `ignore_eos` is set. A number, or a distribution."
    )
    num_requests: Count | Literal["auto"] | None = Field(
        default=None,
        description="Requests of a closed loop (at least the highest level), or of an open one without `duration_s`; with `turns`, "
        "conversations. A burst sends its level. `auto`: as many as the percentiles of `decision.slo` take over all repeats of a "
        "level, more where arrivals come in bursts, and five times what a closed loop holds.",
    )
    duration_s: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="Open loop: how long requests are sent (s), instead of `num_requests`."
    )
    burstiness: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="`gamma`: shape of the gaps' distribution, as in vLLM's benchmark; 1 is Poisson, below it arrivals come in bursts.",
    )
    step: Step | None = Field(default=None, description="Open loop: more load for a while.")
    ramp: Ramp | None = Field(default=None, description="Open loop with `duration_s`: a rate that changes in a line.")
    trace: str | None = Field(
        default=None,
        description="`trace`: CSV, JSONL or Parquet (path from the project's root) with `arrival_s` (s), `prompt_tokens`, "
        "`output_tokens`; or as Mooncake publishes them, `timestamp` (ms), `input_length`, `output_length`; or as Azure does, "
        "`TIMESTAMP` (date and time), `ContextTokens`, `GeneratedTokens`.",
    )
    endpoint: Literal["completions", "chat"] = Field(
        default="completions",
        description="`completions`: prompts as token ids to /v1/completions. `chat`: prompts as text to /v1/chat/completions, as long "
        "as the server's /tokenize says.",
    )
    stream: bool = Field(default=True, description="Whether tokens come as they are made; without it there is no TTFT.")
    cache: Literal["unique", "shared", "repeated"] = Field(
        default="unique",
        description="What a prefix cache can reuse within a run. `unique`: nothing; `shared`: prompts begin alike (`shared_prefix`); "
        "`repeated`: all prompts are one. What is reusable is sent once before the run.",
    )
    shared_prefix: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="`cache: shared`: share of each prompt that is the same in all (0–1)."
    )
    turns: Turns | None = Field(default=None, description="Conversations of several requests.")

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, content: Any) -> Any:
        name = content.get("archetype") if isinstance(content, dict) else None
        if isinstance(name, str) and name in ARCHETYPES:
            # What belongs to a key that is given otherwise goes with it: nobody asked for it by itself.
            dropped: set[str] = set()
            if content.get("arrival") == "trace":
                dropped |= {"prompt_tokens", "output_tokens", "turns"}
            if content.get("cache", "shared") != "shared":
                dropped |= {"shared_prefix"}
            return {**{key: value for key, value in ARCHETYPES[name].items() if key not in dropped}, **content}
        return content

    @model_validator(mode="after")
    def _keys_of_arrival(self) -> Workload:
        opened = self.arrival in OPEN
        rules = (
            (self.arrival == "closed" and self.num_requests is None,
             "arrival closed needs num_requests, the number of requests after which a run ends"),
            (self.arrival in ("burst", "trace") and self.num_requests is not None,
             f"num_requests belongs to closed and open loops; a {self.arrival} sends "
             + ("as many requests as its level" if self.arrival == "burst" else "what its file holds")),
            (opened and (self.num_requests is None) == (self.duration_s is None),
             f"arrival {self.arrival} needs num_requests or duration_s, one of them"),
            (not opened and self.duration_s is not None, f"duration_s belongs to {', '.join(OPEN)}, not to {self.arrival}"),
            ((self.arrival in _SHAPED) != (self.burstiness is not None), f"arrival {' or '.join(_SHAPED)} and burstiness go together"),
            ((self.arrival == "trace") != (self.trace is not None), "arrival trace and trace, its file, go together"),
            (self.arrival == "trace" and bool(self.prompt_tokens or self.output_tokens),
             "a trace has its own lengths; remove prompt_tokens and output_tokens"),
            (self.arrival != "trace" and not (self.prompt_tokens and self.output_tokens),
             "prompt_tokens and output_tokens say how long requests are; give both, or an archetype"),
            (not opened and bool(self.step or self.ramp), f"step and ramp belong to {', '.join(OPEN)}, not to {self.arrival}"),
            (bool(self.step and self.ramp), "both step and ramp are given; keep one"),
            (self.ramp is not None and self.duration_s is None, "ramp needs duration_s, over which the rate changes"),
            ((self.cache == "shared") != (self.shared_prefix is not None), "cache shared and shared_prefix go together"),
            (self.turns is not None and self.arrival == "trace", "turns do not go with a trace, each of whose requests stands alone"),
            (self.turns is not None and self.cache == "repeated", "turns do not go with cache repeated; their prompts grow"),
            (self.turns is not None and self.endpoint == "chat",
             "turns go with endpoint completions only: each request of a chat is one user message, not a conversation with the "
             "server's own tokens between its turns; remove endpoint chat, or turns (an archetype's with `turns: null`)"),
        )  # fmt: skip
        for wrong, message in rules:
            if wrong:
                raise ValueError(message)
        return self

    def with_lengths(self, prompt: int | None, output: int | None) -> Workload:
        """The same with fixed lengths (tokens); None leaves the own one."""
        lengths = {"prompt_tokens": prompt, "output_tokens": output}
        content = self.model_dump(exclude_defaults=True, exclude={"archetype"})
        return Workload.model_validate({**content, **{key: value for key, value in lengths.items() if value is not None}})

    @property
    def axis(self) -> str:
        """The ladder's key that carries this workload's load: `concurrency`, `request_rate` or `time_scale`."""
        return _AXES[self.arrival]

    @property
    def files(self) -> list[str]:
        """Files that decide what is sent."""
        lengths = (self.prompt_tokens, self.output_tokens, self.turns.new_tokens if self.turns else None)
        return [file for file in (self.trace, *(x.file for x in lengths if x)) if file]

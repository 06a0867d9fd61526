"""The configuration as typed models: what a study may say, and every reason to refuse it.

The field descriptions are the reference: `config/README.md` and the JSON schema are generated from them (`make config`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, create_model, model_validator

from bench.axes import AXES, Axis
from bench.fields import MOST_REQUESTS, MOST_RUNS, Count, Name, Requests, Seconds, Strict, Tokens, checked_address, or_auto
from bench.models.model import Model
from bench.runs.environment import is_secret
from bench.servers.deployment import Deployment, Engine
from bench.study.decision import Decision
from bench.study.search import Search, Tune
from bench.workloads.workload import Workload


def _endpoint(value: str) -> str:
    if "\0" in value:
        raise ValueError("an endpoint with a null character")
    if is_secret("", value):
        raise ValueError("contains a user, a password or a token, and endpoints are recorded; remove it")
    if not value.startswith("nvml:"):
        try:
            checked_address(value.partition("?")[0])
        except ValueError as error:
            raise ValueError(f"{error}; for this machine's GPUs, nvml:") from None
    return value


def _levels(values: Any) -> Any:
    if values == []:
        raise ValueError("no levels; give at least one")
    return values


Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class _Place(Strict):
    deployment: Name = Field(description="Key of `deployments`; of one with `sweep`, each of its combinations.")
    workload: Name = Field(description="Key of `workloads`.")


def _key(axis: Axis) -> Any:
    """The key of a ladder that holds levels of an axis."""
    number: Any = Requests if axis.held else Positive
    levels: Any = Annotated[list[number], BeforeValidator(_levels), BeforeValidator(_no_search(axis))]
    return (levels | None if axis.no_search else or_auto(levels) | None, Field(default=None, description=axis.meaning))


def _no_search(axis: Axis) -> Callable[[Any], Any]:
    def check(values: Any) -> Any:
        if values == "auto" and axis.no_search:
            raise ValueError(axis.no_search)
        return values

    return check


if TYPE_CHECKING:
    _Loads = _Place
else:
    _Loads = create_model("_Loads", __base__=_Place, **{axis.name: _key(axis) for axis in AXES.values()})


class Ladder(_Loads):
    """One deployment under one workload, at rising load. The workload's arrival decides which key holds the levels."""

    prompt_tokens: Annotated[list[Tokens], BeforeValidator(_levels)] | None = Field(
        default=None,
        description="Prompt lengths (tokens) to measure at each level; the workload must have a `prompt_tokens` too. With two "
        "loads or more, each length gets a capacity of its own.",
    )
    output_tokens: Annotated[list[Tokens], BeforeValidator(_levels)] | None = Field(
        default=None, description="Output lengths (tokens) likewise; with `prompt_tokens`, every pair."
    )
    repeats: Count = Field(
        default=1,
        description="Runs of each level. Repeat n of all of a deployment's levels is round n. A search repeats by itself what is "
        "in doubt.",
    )
    search: Search | None = Field(default=None, description="Precision, bounds and budget of `auto`.")

    @model_validator(mode="after")
    def _one_axis(self) -> Ladder:
        given = [axis for axis in AXES if getattr(self, axis) is not None]
        if len(given) != 1:
            raise ValueError(
                f"no levels; give one of {', '.join(AXES)}" if not given else f"{' and '.join(given)} are given; keep one"
            )
        return self

    @model_validator(mode="after")
    def _searchable(self) -> Ladder:
        if self.search and not self.auto:
            raise ValueError(f"search needs `{self.axis}: auto`, but levels are given; remove search, or write auto")
        if self.auto and self.repeats > 1:
            raise ValueError("repeats needs levels; a search repeats what is in doubt by itself. Remove it")
        return self

    @property
    def auto(self) -> bool:
        """Whether the levels are found by search."""
        return bool(getattr(self, self.axis) == "auto")

    @property
    def runs(self) -> int:
        """How many runs these are; of a search, the most."""
        each = (self.search or Search()).runs if self.auto else len(self.levels) * self.repeats
        return each * len(self.prompt_tokens or "-") * len(self.output_tokens or "-")

    @property
    def axis(self) -> str:
        """The key under which the levels stand."""
        return next(axis for axis in AXES if getattr(self, axis) is not None)

    @property
    def levels(self) -> list[float]:
        """The levels, whole numbers where they are concurrencies; none where a search finds them."""
        levels: list[float] = [] if self.auto else getattr(self, self.axis)
        return levels


class Measurement(Strict):
    """How a session measures. A change of `seed` measures everything again; a change of another key, nothing."""

    scrape_interval_s: Annotated[float, Field(ge=0.01, le=60)] = Field(
        default=0.2, description="Time between two scrapes of /metrics (s), 0.01 to 60."
    )
    ready_timeout_s: Seconds = Field(default=900.0, description="Longest wait for the server to be ready (s).")
    request_timeout_s: Seconds = Field(
        default=600.0, description="Longest time of a request (s); after it, its outcome is `timeout`."
    )
    warmup_requests: Annotated[int, Field(ge=0, le=MOST_REQUESTS)] = Field(
        default=21,
        description="Most warm-up requests before the first run, one after another until three TTFTs in a row lie within a fourth "
        "of their median; then four at once. A multiple of 3, at least 3; 0: none.",
    )
    reference_requests: Annotated[int, Field(ge=0, le=MOST_REQUESTS)] = Field(
        default=8,
        description="Requests of the reference load (at most 256 + 32 tokens), which is sent before each run to show the "
        "machine's speed; 0: none.",
    )
    telemetry: dict[Name, Annotated[str, AfterValidator(_endpoint)]] = Field(
        default_factory=dict,
        description="Further Prometheus endpoints by name, such as `dcgm: http://127.0.0.1:9400/metrics`; `nvml:0,1` reads GPUs 0 "
        "and 1 of this machine. GPUs of a server that is started here are read anyway.",
    )
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] = Field(
        default=0, description="Seed of the prompts, together with a run's digest."
    )


class Thresholds(Strict):
    """Limits beyond which a part of a run is invalid: it is drawn so wherever that part counts, and listed with its reason."""

    client_delay_p99_s: NotNegative = Field(
        default=0.05,
        description="Largest P99 delay of the client (s): of its event loop, and of an open loop's requests as they leave. A single "
        "one of the loop may be five times as long, and a burst take twice as long to leave.",
    )
    scrape_gap_s: NotNegative = Field(
        default=2.0,
        description="Longest time without a scrape during the load (s). A share of 0.5 s ÷ this of the scrapes has to arrive.",
    )
    client_cpu_share: Annotated[float, Field(ge=0)] = Field(
        default=0.95,
        description="Largest share of a core that a load process uses (0–1); beyond it the client is the limit.",
    )
    other_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.15,
        description="Largest share of the cores' time that other programs use (0–1); known if the server is on this machine.",
    )
    drift: Annotated[float, Field(ge=0)] = Field(
        default=0.1,
        description="Largest relative difference between a round's reference loads and those of the others; more if they are "
        "noisy.",
    )
    count_error: Annotated[float, Field(ge=0)] = Field(
        default=0.25,
        description="Largest relative difference between the server's and the client's counts of requests in flight and generated "
        "tokens. Too many: others use the server. Too few: requests are held back, or the metrics are another "
        "server's.",
    )
    clock_skew_s: ClassVar[float] = 0.001  # between the clocks of the load processes; convention
    prefix_hit_error: ClassVar[float] = 0.05  # between the prefix cache's hit rate and the workload's; convention

    @property
    def loop_lag_max_s(self) -> float:
        """Largest delay of the event loop (s)."""
        return 5 * self.client_delay_p99_s

    @property
    def send_spread_s(self) -> float:
        """Burst: longest time between the first and the last request sent (s)."""
        return 2 * self.client_delay_p99_s

    @property
    def scrape_share(self) -> float:
        """Smallest share of the due scrapes that arrive during the load (0–1)."""
        return min(1.0, 0.5 / self.scrape_gap_s) if self.scrape_gap_s else 1.0

    @property
    def limits(self) -> dict[str, float]:
        """Each limit by its name in the digests of searches."""
        own = self.model_dump(exclude={"count_error", "client_delay_p99_s"})
        own |= dict.fromkeys(("in_flight_error", "token_count_error"), self.count_error)
        own |= dict.fromkeys(("loop_lag_p99_s", "schedule_delay_p99_s"), self.client_delay_p99_s)
        names = ("loop_lag_max_s", "send_spread_s", "scrape_share", "clock_skew_s", "prefix_hit_error")
        return own | {name: getattr(self, name) for name in names}


class Study(Strict):
    """What is measured: a list of ladders under a name."""

    title: str = Field(description="The study's question in one line; the report's heading.")
    ladders: list[Ladder] = Field(
        default_factory=list,
        description="What is measured. With `tune` none are needed.",
    )
    baseline: Name | None = Field(
        default=None,
        description="Deployment with which every other is compared at the loads they share.",
    )
    sessions: Count = Field(
        default=1,
        description="Server starts of each deployment; rounds are dealt to them in turn, so each ladder needs as many `repeats`. "
        "Starts differ: a comparison needs several.",
    )

    @model_validator(mode="after")
    def _countable(self) -> Study:
        runs = sum(ladder.runs for ladder in self.ladders)
        if runs > MOST_RUNS:
            raise ValueError(f"{runs:,} runs, and a study has {MOST_RUNS:,} at most; make several studies of it")
        return self


class Config(Strict):
    """A whole configuration file."""

    study: Study = Field(description="What is measured.")
    models: dict[Name, Model] = Field(default_factory=dict, description="Models by name.")
    engines: dict[Name, Engine] = Field(description="Engines by name.")
    deployments: dict[Name, Deployment] = Field(description="Servers by name.")
    workloads: dict[Name, Workload] = Field(description="Workloads by name.")
    measurement: Measurement = Field(default=Measurement(), description="How a session measures.")
    thresholds: Thresholds = Field(default=Thresholds(), description="When a run is invalid.")
    decision: Decision = Field(default=Decision(), description="What is to be decided from the runs.")
    tune: Tune | None = Field(default=None, description="Servers that compete: `bench tune` finds the best of them.")
    hardware: dict[Name, dict[str, Any]] = Field(
        default_factory=dict,
        description="GPUs of your own: entries like those of `src/bench/models/accelerators.yaml`, which they extend or override "
        "key by key.",
    )
    scales: dict[Name, dict[str, Any]] = Field(
        default_factory=dict,
        description="The study at other scales, by name. A scale holds sections of the file. Its entries are added to the file's, "
        "or take the place of those with the same name.",
    )
    scale: Name | None = Field(
        default=None,
        description="The scale that is measured; by default, the file as it stands. For one call: `SCALE=cpu` of `make`, "
        "`--config scale=cpu`, or `--scale cpu` of `bench runs`.",
    )
    select: str | list[str] = Field(
        default="*",
        description="Shell patterns of `deployment/run`: only matching runs are measured and drawn. For one call: `--config "
        "select='*c0020*'`.",
    )
    files: dict[str, str] = Field(
        default_factory=dict,
        description="Written by `bench pack`: SHA-256 of each file that workloads read, and what identifies the files of each model "
        "that is given by its path, by path.",
    )
    packed: bool = Field(
        default=False,
        description="Written by `bench pack`: the runs were measured elsewhere, so nothing is measured here.",
    )

    @model_validator(mode="after")
    def _measures(self) -> Config:
        if not self.study.ladders and self.tune is None:
            raise ValueError("study.ladders is missing, and so is tune: nothing is measured. Give ladders, or tune")
        return self

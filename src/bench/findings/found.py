"""What the report says beyond tables, as codes and numbers: of each curve, and of the study."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from bench.findings.advice import advice
from bench.findings.ceilings import Ceiling, Server, ceilings
from bench.findings.factors.decided import Decided, decided
from bench.findings.lengths import LengthCost, StreamingGain, length_costs, streaming_gains
from bench.findings.settings import SettingGain, setting_gains
from bench.findings.workers import Efficiency, efficiencies
from bench.models.catalogue import Accelerator
from bench.servers.settings import settings_in
from bench.study.decision import Decision
from bench.study.questions import crossed_factors, several_settings, swept_length, with_and_without_streaming
from bench.workloads.workload import ALIKE

_ASKED = ("family", "workload", "model", "engine", "stream", "baseline", *ALIKE)
_CURVE = ("deployment", "workload")
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What the report says beyond tables.

    Attributes:
        factors, lengths, streaming, settings: what answers those questions; empty where the runs do not ask them.
        efficiencies: of each fleet that was measured beside one of its replicas.
    """

    advice: tuple[str, ...]
    ceilings: tuple[Ceiling, ...]
    factors: tuple[Decided, ...]
    lengths: tuple[LengthCost, ...]
    streaming: tuple[StreamingGain, ...]
    settings: tuple[SettingGain, ...]
    efficiencies: tuple[Efficiency, ...] = ()


def asked_of(runs: pl.DataFrame) -> list[dict[str, Any]]:
    """The runs by what tells which questions they ask, for the conditions in `bench.study.questions`."""
    return runs.select(*dict.fromkeys((*_ASKED, *settings_in(runs.columns)))).to_dicts()


def find(
    runs: pl.DataFrame,
    decision: Decision,
    device: Accelerator | None,
    servers: Mapping[str, Server],
    *,
    plain: pl.DataFrame,
    points: pl.DataFrame,
) -> Findings:
    """What the runs say.

    Args:
        device: that they ran on. servers: by deployment; those that are missing have no ceilings. plain: of the runs, those that
            `plain_of` gives. points: of `operating_points`; none without SLOs.
    """
    asked = asked_of(runs)
    return Findings(
        advice=tuple(advice(runs, points)),
        ceilings=tuple(ceilings(runs, servers, device)) if device else (),
        factors=tuple(decided(runs)) if crossed_factors(asked) else (),
        lengths=tuple(length_costs(runs)) if swept_length(asked) else (),
        streaming=tuple(streaming_gains(runs)) if with_and_without_streaming(asked) else (),
        settings=tuple(setting_gains(plain)) if several_settings(asked) else (),
        efficiencies=tuple(efficiencies(plain, decision.slos, decision.failed_share)),
    )

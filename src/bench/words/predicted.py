"""What a calibrated model is, how good it is, and why it refuses, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.errors import shown_share
from bench.predict.calibrate import Calibrated
from bench.predict.judge import Judgement
from bench.predict.predict import Doubt

__all__ = ["METRIC_TITLES", "doubt_text", "judgement_rows", "parameters"]

METRIC_TITLES = {
    "throughput_tokens_per_s": "output tokens/s",
    "throughput_requests_per_s": "requests/s",
    "ttft_p50_s": "TTFT P50 (s)",
    "ttft_p99_s": "TTFT P99 (s)",
    "tpot_p50_s": "TPOT P50 (s)",
    "e2e_p50_s": "E2E P50 (s)",
    "e2e_p99_s": "E2E P99 (s)",
}
_FOLDS = {"level": "another level", "workload": "another workload"}


def doubt_text(doubt: Doubt) -> str:
    """Why a prediction must not be relied on, and what would help."""
    value, most = doubt.value, doubt.most
    return {
        "residual": f"the engine's steps stray from the fit by {shown_share(value)} in the median; measure on a quiet machine",
        "drift": f"the machine's speed differs by {shown_share(value)} between the runs; measure on a quiet machine",
        "requests": f"{value:,.0f} requests would run at once, and no run had more than {most:,.0f}; measure a higher level",
        "longest": f"requests of {value:,.0f} tokens, and none that was measured had more than {most:,.0f}; measure longer ones",
        "step": f"steps of {value:,.0f} tokens, and none that was measured had more than {most:,.0f}; measure a larger burst",
        "prefix": f"a prefix cache would serve {value:,.0f} tokens, and no measured run shows one at work; measure shared prompts",
        "refused": f"{value:,.0f} requests are longer than the whole KV cache",
    }[doubt.name]


def parameters(model: Calibrated) -> Iterator[tuple[str, str]]:
    """What a step costs: pairs of a name and a value, which explain the server's speed."""
    step, fitted = model.fitted.best, model.fitted
    tokens = max(fitted.most["tokens"], 1.0)
    yield "a step, whatever is in it", f"{1000 * step.fixed_s:.3g} ms"
    yield "a request more in it, in the mean", f"{1e6 * (step.sequence_s + step.line(_many(model)) / _many(model)):.3g} µs"
    yield "1,000 prompt tokens", f"{1000 * 1000 * step.line(tokens) / tokens:.3g} ms"
    yield "1,000 tokens of context that decodes read", f"{1000 * 1000 * step.context_s:.3g} ms"
    yield "the way to an idle engine and back", f"{1000 * step.idle_s:.3g} ms"
    yield "a step's noise", shown_share(fitted.step_noise)
    yield "noise between runs", shown_share(fitted.run_noise)
    yield "steps stray from the fit, in the median, by", shown_share(fitted.residual)
    yield "fitted to", f"{fitted.intervals:,} steps of {fitted.runs} runs"


def _many(model: Calibrated) -> float:
    return max(model.fitted.most["decodes"], 1.0)


def judgement_rows(judgements: Sequence[Judgement]) -> list[list[str]]:
    """A table of how good predictions are, with its head."""
    head = ["predicted from", "number", "error", "two measurements", "90 % interval holds", "runs"]
    return [
        head,
        *(
            [
                _FOLDS[each.fold],
                METRIC_TITLES[each.metric],
                shown_share(each.error),
                "–" if each.floor is None else shown_share(each.floor),
                shown_share(each.coverage),
                str(each.runs),
            ]
            for each in judgements
        ),
    ]

"""The claims that a study's outputs make, held against its tables.

A claim is found by the words and numbers that carry its meaning: `CLAIMS` has a pattern for each thing that is said, and `_SAID` those
of quantities that stand in several places. When sentences are written anew these change; a kind that none finds any more counts zero.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.predict.calibration import LITTLE
from bench.statistics.levels import FLAT
from benchmarks.said.read import Outputs, Panel, Table, Text, read_outputs
from benchmarks.said.truth import Curve, Level, Slo, Study, slo_of

__all__ = ["KINDS", "Checked", "Finding", "check"]

KINDS = ("missed", "met", "interval", "one value", "no more", "best", "flat", "full", "named", "unit", "beyond", "cause",
         "model", "count", "ticks")  # fmt: skip
N = r"[\d,]*\.?\d+"
_METRIC = r"(?:TTFT|TPOT|E2E) P\d\d(?: of [\w.-]+)?"
SLO = rf"{_METRIC} ≤ {N} (?:ms|s)"
UNIT = r" ?(?:%|times|ms|s|(?:requests? )?in flight|(?:requests?|conversations?|(?:output )?tokens)/s|(?:instance|user|GPU|machine)s?)"
_RATE, _TOKENS = "throughput_requests_per_s", "throughput_tokens_per_s"
# upper end of a rate ÷ the highest of any run of the curve, from which it is beyond what can be; derived: half of the 95 % interval of
# two runs (t of 2 degrees of freedom, 4.3 × 4 % between starts ÷ √2), and the 3 % by which planted servers differ from run to run
_BEYOND_ALL = 1.15
_SAME = 1.05  # two rates, of which one is said to be hardly more than the other
_FLAT = 1.15  # mean throughput beyond a load from which it is said to be flat, which has 90 % of it or more
_ROOM, _USED = 0.8, 0.99  # of the KV cache in use: below which it has room, and from which it has none
_NEAR = 0.03  # of an axis: how near to a load a tick counts as its own


@dataclass(frozen=True)
class Finding:
    """A claim that the tables contradict. Attributes: said: the words. truth: what the tables have."""

    kind: str
    where: str
    said: str
    truth: str

    def __str__(self) -> str:
        return f"{self.kind} | {self.where} | {self.said} | {self.truth}"


@dataclass
class Checked:
    """Attributes: claims: how many were recognised, by kind."""

    findings: list[Finding]
    claims: Counter[str]


@dataclass(frozen=True)
class Claim:
    """What a pattern found. Attributes: load: named last before it; None where none is."""

    found: re.Match[str]
    text: str
    load: float | None
    study: Study

    def number(self, name: str) -> float:
        return number(self.found[name])


Check = Callable[[Claim, Curve], str | None]  # what is wrong with a claim of a curve; None where nothing is
Told = Iterator[tuple[bool, Finding]]  # whether a claim is wrong, and what of it


def number(text: str) -> float:
    return float(text.replace(",", "").replace("−", "-"))


def _missed(claim: Claim, curve: Curve) -> str | None:
    """A limit behind "misses" is missed at the load before it; one that is too close to tell is met there."""
    before, slo = claim.text[: claim.found.start()], slo_of(claim.found[0])
    level = curve.levels.get(claim.load or -1.0)
    if (
        level is None
        or slo is None
        or level.meets(slo) is None
        or level.meets(slo) is ("too close" in before.rpartition("miss")[2])
    ):
        return None
    return f"at {claim.load:g}, {100 * (level.beyond(slo) or 0):.1f} % of the requests fail or take longer"


def _beside_limit(claim: Claim, curve: Curve) -> str | None:
    slo = slo_of(f"{claim.found['label']} ≤ {claim.found['limit']}")
    met = [level.meets(slo) for level in curve.levels.values() if slo]
    return None if None in met or (claim.found["how"] == "within") in met else f"it is {'met' if met[0] else 'missed'}"


def _met(claim: Claim, curve: Curve) -> str | None:
    level = curve.levels.get(claim.number("at"))
    if level is None:
        return f"{claim.found['at']} is no load with a valid run"
    point = claim.study.tables["capacity"][curve.deployment, curve.workload]  # whose `over` another sentence says
    said = {each["by"] for each in point["over"] or () if level.load == point["c_max"]}
    missed = [text for text, slo in curve.slos.items() if level.meets(slo) is False and _column(slo) not in said]
    return f"at {level.load:g} it misses {', '.join(missed)}" if missed else None


def _column(slo: Slo) -> str:
    return f"{f'class_{slo[3]}_' if slo[3] else ''}{slo[0]}_p{100 * slo[1]:.0f}_s"


def _not_met(claim: Claim, curve: Curve) -> str | None:
    level = curve.levels.get(claim.number("at"))
    if level is None or not curve.slos or any(level.meets(slo) is False for slo in curve.slos.values()):
        return None
    failed = sum(not each["ok"] for each in level.judged) > 0.01 * len(level.judged)
    return None if failed or any((run["steady_growth"] or 0) > 0.01 for run in level.runs) else "every limit is met there"


def _inside(claim: Claim, _: Curve) -> str | None:
    value, low, high = map(claim.number, ("value", "low", "high"))
    slack = 10.0 ** -len(claim.found["value"].partition(".")[2]) if "." in claim.found["value"] else 0.5 if value > 3 else 1e-9
    return (
        None if low <= high and low - slack <= value <= high + slack else f"{value:g} does not lie between {low:g} and {high:g}"
    )


def _possible(claim: Claim, curve: Curve) -> str | None:
    names = (_RATE, "steady_requests_per_s")
    most = max((run[name] or 0 for level in curve.levels.values() for run in level.runs for name in names), default=math.inf)
    possible = claim.number("high") <= _BEYOND_ALL * curve.further * most
    return None if possible else f"no run of it gave more than {most:.3g} requests/s"


def _no_more(claim: Claim, curve: Curve) -> str | None:
    words = {"kv": "KV memory", "sequences": "bound on sequences", "prefill": "computed twice", "decode": "steps twice",
             "interference": "elsewhere"}  # fmt: skip
    gains = claim.study.gains.get((curve.deployment, curve.workload), ())
    wrong = [each for each in gains if words[each["resource"]] in claim.found[0] and each["high"] > LITTLE]
    return (
        ", ".join(f"{each['resource']} gains {each['gain']:.3g} ({each['low']:.3g} to {each['high']:.3g})" for each in wrong)
        or None
    )


def _hardly_more(claim: Claim, curve: Curve) -> str | None:
    rates = curve.rates(_RATE)
    here = rates.get(claim.load or -1.0)
    more = [
        load
        for load, rate in rates.items()
        if here and (claim.load or 0) < load <= claim.number("most") and rate > _SAME * here
    ]
    return f"{here:.3g} requests/s at {claim.load:g}, {rates[more[0]]:.3g} at {more[0]:g}" if more else None


def _end(claim: Claim, curve: Curve) -> str | None:
    """The lowest or the highest load, of all, or of those that are valid, or can be judged."""
    which = min if claim.found["end"] == "lowest" else max
    steady = [load for load, level in curve.levels.items() if all(run["steady"] is not False for run in level.runs)]
    shown = [level for level in curve.levels.values() if level.steady]  # of each class that an SLO limits too
    judged = [level.load for level in shown if None not in map(level.beyond, curve.slos.values())]
    among = [judged] if re.match(r" [a-z]+ that can be judged", claim.text[claim.found.end() :]) and judged else []
    among = among or [[float(row["level"]) for row in curve.rows], list(curve.levels), steady, judged]
    ends = {which(loads) for loads in among if loads}
    return None if "tried" in claim.text or claim.number("at") in ends else f"that is {max(ends):g}"


def _peak(claim: Claim, curve: Curve) -> str | None:
    best, here = max(curve.rates(_TOKENS).values(), default=0.0), curve.rate(claim.number("at"))
    return None if here is None or here >= FLAT * best else f"{here:.3g} tokens/s there, {best:.3g} at the best load"


def _flat(claim: Claim, curve: Curve) -> str | None:
    at = claim.number("at")
    here, beyond = curve.rate(at), [rate for load, rate in curve.rates(_TOKENS).items() if load > at]
    top = sum(beyond) / max(len(beyond), 1)
    return f"{here:.3g} tokens/s there, {top:.3g} beyond" if here and top > _FLAT * here else None


def _falls(_: Claim, curve: Curve) -> str | None:
    rates = list(curve.rates(_TOKENS).values())
    return None if len(rates) < 2 or rates[-1] < max(rates) else "the highest load has the highest throughput"


def _full(claim: Claim, curve: Curve) -> str | None:
    at, below = claim.number("at"), number(claim.found.groupdict().get("below") or "-1")
    here, under = ([row for row in curve.rows if row["level"] == load and row["counts_valid"]] for load in (at, below))
    usage = [row["kv_usage_peak"] or 0 for row in here if not row["preemptions"] and not row["waiting_peak"]]
    if not here or min(usage, default=1) < _ROOM:
        return f"{100 * min(usage):.0f} % were in use at {at:g}" if here else f"{at:g} is no load with a valid run"
    full = under and all((row["kv_usage_peak"] or 0) >= _USED or row["preemptions"] for row in under)
    return f"it was full at {below:g} too" if full else None


def _geometry(claim: Claim, _: Curve) -> str | None:
    """On how many of the curves that show it: with a level below that has room."""
    rows = [
        row
        for row in claim.study.tables["saturation"].values()
        if None not in (row["measured"], row["predicted"], row["below"])
    ]
    as_predicted = sum(row["below"] < row["predicted"] <= row["measured"] for row in rows)
    said = claim.found["met"] or "1", claim.found["all"] or "1"
    return None if said == (str(as_predicted), str(len(rows))) else f"on {as_predicted} of {len(rows)}"


def _measured(claim: Claim, curve: Curve) -> str | None:
    if claim.number("at") <= curve.highest or re.search(r"predict|replay|limit is|peak of|search", claim.text):
        return None
    return f"it was measured up to {curve.highest:g}"


def _cause(claim: Claim, curve: Curve) -> str | None:
    """A cause that leaves out the KV cache, where that was full, requests were preempted, and some waited all the time."""
    level = curve.levels.get(claim.load or -1.0)
    if level is None or re.search(r"cache|preempt", claim.text.partition("replayed")[0]):
        return None
    preempted = sum(run["preemptions"] or 0 for run in level.runs) / max(1, sum(run["requests"] for run in level.runs))
    full = all((run["kv_usage_peak"] or 0) >= 0.95 and (run["waiting_standing"] or 0) >= 1 for run in level.runs)
    return (
        f"the KV cache was full, and {100 * preempted:.0f} % of the requests were preempted"
        if full and preempted > 0.05
        else None
    )


def _streamed(_: Claim, curve: Curve) -> str | None:
    return "every answer was streamed" if all(row["stream"] for row in curve.rows) else None


def _modelled(claim: Claim, _: Curve) -> str | None:
    """Args: claim: of all that is said of the curve."""
    return "both are said of it" if "by the calibrated model" in claim.text else None


def _instances(claim: Claim, curve: Curve) -> str | None:
    rate = claim.study.tables["capacity"][curve.deployment, curve.workload]["usable_rps"]
    needed = math.ceil(claim.number("peak") / rate - 1e-9) if rate else math.inf
    return None if claim.number("instances") == needed else f"{claim.found['peak']} ÷ {rate} is {needed}"


def _safety(claim: Claim, _: Curve) -> str | None:
    wanted = math.ceil(claim.number("instances") * claim.number("safety") - 1e-9)
    return None if claim.number("gpus") % wanted == 0 else f"{claim.found['instances']} × {claim.found['safety']} is {wanted}"


def _valid(claim: Claim, _: Curve) -> str | None:
    rows = list(claim.study.runs.values())
    valid, said = (
        sum(row["valid"] for row in rows),
        0 if claim.found[0].startswith("None") else number(re.findall(N, claim.found[0])[0]),
    )
    return (
        None if said == (len(rows) - valid if "invalid" in claim.found[0] else valid) else f"{valid} of {len(rows)} are valid"
    )


# Kind, pattern, check. Of a claim about a load, `at` names it; else it is named before.
CLAIMS: tuple[tuple[str, str, Check], ...] = (
    ("missed", SLO, _missed),
    ("missed", rf"(?P<label>{_METRIC}) {N} (?:ms|s) \((?P<how>within|misses) its limit, (?P<limit>{N} (?:ms|s))", _beside_limit),
    ("met", rf"[Ss]ustains (?:about )?{N} requests/s(?: \([^)]*\))? at (?P<at>{N})", _met),
    ("met", rf"hardly more up to (?P<at>{N})", _met),
    ("met", rf"[Ss]ustains a burst of (?P<at>{N})", _met),
    ("met", rf"misses at (?P<at>{N})(?![^;]*too close)", _not_met),
    ("interval", rf"(?<![\w-])(?P<value>[+−-]?{N})(?:{UNIT}(?: at {N}{UNIT})?)? \((?P<low>[+−-]?{N}) to (?P<high>[+−-]?{N})", _inside),
    ("interval", rf"(?P<value>{N})(?:{UNIT})? \(at least (?P<low>{N}), below (?P<high>{N})", _inside),
    ("interval", rf"{N} requests/s(?: at {N}{UNIT})? \({N} to (?P<high>{N})", _possible),
    ("no more", r"(?:with|without) [^;.:]*?, no more", _no_more),
    ("no more", rf"hardly more up to (?P<most>{N})", _hardly_more),
    ("best", rf"(?P<at>{N})(?:{UNIT})?,? (?:is )?the (?P<end>lowest|highest)(?! rate| throughput)", _end),
    ("best", rf"(?:throughput is highest at|[Tt]hroughput peaks at|earns the most at) (?:about )?(?P<at>{N})", _peak),
    ("flat", rf"stops growing at (?:about )?(?P<at>{N})", _flat),
    ("flat", rf"(?P<at>{N})(?:{UNIT})? \([^)]*\), then flat", _flat),
    ("flat", rf"{N}(?:{UNIT})? \([^)]*\), then it falls", _falls),
    ("full", rf"full (?:at|from) (?P<at>{N})(?:(?: in flight)?(?:,| \()(?: ?and)? ?not(?: yet)? at (?P<below>{N}))?", _full),
    ("full", r"full at the level that geometry predicts on (?:(?P<met>\d+) of (?P<all>\d+) curves|the one curve)", _geometry),
    ("beyond", rf"\b[Aa]t (?P<at>{N}) (?:requests? in flight|in flight|requests?/s)", _measured),
    ("cause", r"prefill of other requests|prompts take too long|wait for the prefill|steps take too long", _cause),
    ("cause", r"answers (?:that )?are not streamed", _streamed),
    ("model", r"[Nn]o model of ", _modelled),
    ("model", r"by the calibrated model", lambda *_: None),
    ("count", rf"peak of (?P<peak>{N}) requests/s takes (?P<instances>{N}) instances?", _instances),
    ("count", rf"plan (?:at least )?(?P<gpus>{N}) [^()]*\((?P<instances>{N}) instances?, times the safety factor (?P<safety>{N})",
     _safety),
    ("count", r"(?:All \d+ runs are|None of the \d+ runs is|\d+ of \d+ runs are) (?:in)?valid", _valid),
)  # fmt: skip
_UNITS = re.compile(r"in flight|requests?/s|users?|burst|conversations|times|concurrency|rate", re.IGNORECASE)
_AT = re.compile(rf"(?:\b[Aa]t|burst of|\bin) ({N})(?!\d| ms| s\b| %|\.\d| run)")
_MISSES = re.compile(
    r"(?:miss(?:es|ed)?|too close to tell:)(?:(?!\. |within|meet).)*$"
)  # no other verb stands between it and a limit


def check(folder: Path) -> Checked:
    """What the outputs in a results folder claim, and which of it their tables contradict."""
    study, outputs = Study(folder), read_outputs(folder)
    first = [table for table in outputs.tables if _MISSING in table.heads]
    outputs.texts += [
        Text(table.where, f"{row[0]}: " + "; ".join(map(" ".join, zip(heads[1:], row[1:], strict=False))))
        for table in first
        for heads in [["misses" if head == _MISSING else head for head in table.heads]]
        for row in table.rows
        if row != table.heads
    ]
    cells = (
        Text(table.where, f"{row[0]}: {head} {cell}")
        for table in outputs.tables
        if table not in first
        for row in table.rows
        for head, cell in zip(table.heads, row, strict=False)
    )
    texts = [*outputs.texts, *cells]
    shown = list(_shown(study, outputs, texts))
    told = [each for text in texts for each in _of_text(study, text, outputs)]
    told += [*_bold(study, outputs.tables), *_named(study, outputs), *_unsaid(study, outputs), *_ticks(outputs.panels)]
    told += [(True, each) for each in contradictions(shown)]
    claims = Counter(claim.kind for _, claim in told)
    claims["one value"] += len(shown)
    return Checked(list(dict.fromkeys(claim for wrong, claim in told if wrong)), claims)


def _of_text(study: Study, text: Text, outputs: Outputs) -> Told:
    for kind, pattern, wrong in CLAIMS:
        for found in re.finditer(pattern, text.text):
            before = text.text[: found.start()]
            if wrong is _missed and not _MISSES.search(before):
                continue
            curves = study.curves_at(text.text, found.end() if found[0].endswith("of ") else found.start(), text.context)
            loads, words = _AT.findall(before), text.text
            if wrong is _modelled:
                named = [(each.text, study.curves_at(each.text, len(each.text), each.context)) for each in outputs.texts]
                words = " ".join(words for words, its in named if all(curve in curves for curve in its))
            claim = Claim(found, words, number(loads[-1]) if loads else None, study)
            why = [wrong(claim, curve) for curve in curves]  # of one of several curves it may hold
            said = text.text[max(0, found.start() - 100) : found.end() + 60]
            yield bool(why) and all(why), Finding(kind, text.where, said, f"{_name(curves)}: {next(iter(why), None)}")


def _name(curves: Sequence[Curve]) -> str:
    return " or ".join(f"{curve.deployment} · {curve.workload}" for curve in curves[:2])


def _bold(study: Study, tables: Sequence[Table]) -> Told:
    """What is marked as within its limit is, and nothing else."""
    for table in tables:
        for cells, bold in zip(table.rows, table.bold, strict=True) if table.caption == "Every level" else ():
            curve = study.curves_at(cells[0], 0)[0]
            level = curve.levels.get(_first(cells[1]))
            for head, cell, marked in zip(table.heads, cells, bold, strict=True):
                slo = next((slo for text, slo in curve.slos.items() if text.startswith(head + " ≤")), None)
                if level and slo and (met := level.meets(slo)) is not None:
                    said = f"{' '.join(cells[:2])}: {head} {cell}"
                    yield met is not marked, Finding("met", table.where, said, f"is {'' if met else 'not '}within its limit")


def _named(study: Study, outputs: Outputs) -> Told:
    """A number names its curve where there are several, and its unit."""
    for text in outputs.texts:
        found = re.search(rf"[Ss]ustains (?:about )?{N} requests/s|misses at {N}|KV cache is full at {N}", text.text)
        if found and len(study.curves) > 1:
            every = len(study.curves_at(text.text, found.start(), text.context)) == len(study.curves)
            yield every, Finding("named", text.where, text.text[:200], "no curve is named")
        if not text.where.startswith("figure") and re.search(rf"\b(?:[Aa]t|up to|C_max[^.;]* is) {N}(?![\d.]| %)", text.text):
            bare = re.search(rf"\b(?:[Aa]t|[Uu]p to) {N}(?:,? (?:it|meets?|keeps?)\b|[;:]|\.?$)", text.text)
            yield (
                bool(bare or not _UNITS.search(text.text)),
                Finding("unit", text.where, text.text[:200], "the load has no unit"),
            )


def _unsaid(study: Study, outputs: Outputs) -> Told:
    """Of a curve whose every load that can be judged misses a limit by far, some sentence says that it misses it."""
    every = {slo for text in outputs.texts for slo in re.findall(SLO, text.text)}
    for curve in study.curves.values():
        mine = [text.text for text in outputs.texts if curve in study.curves_at(text.text, len(text.text), text.context)]
        for label in sorted(curve.slos or every):
            slo = slo_of(label) or ("ttft", 1.0, math.inf, None)
            levels = [level for level in curve.levels.values() if level.steady or level.runs[0]["arrival"] == "burst"]
            beyond = [level.beyond(slo) or 0 for level in levels]
            if levels and min(beyond) > 2 * (1 - slo[1]):
                those = [text for text in mine if label.partition(" ≤")[0] in text]
                unsaid = not any(re.search(r"miss|exceed|over the limit|too slow", text) for text in those)
                said = f"{_name([curve])}: nothing says that it misses {label}"
                yield unsaid, Finding("missed", "page", said, "every load that can be judged does")


def _ticks(panels: Sequence[Panel]) -> Told:
    """An axis of loads has ticks at two measured loads or more."""
    for panel in panels:
        loads, ticks, scale = panel.loads, panel.ticks, math.log if panel.log else float
        if len(loads) < 2:
            continue
        if ticks is None:  # those of d3, which draws an axis that names none
            raw = (loads[-1] - loads[0]) / math.ceil(panel.width / 40)
            step = 10.0 ** math.floor(math.log10(raw))
            step *= next(by for by, least in ((10, 50**0.5), (5, 10**0.5), (2, 2**0.5), (1, 0)) if raw / step >= least)
            ticks = [step * i for i in range(math.ceil(loads[0] / step - 1e-9), math.floor(loads[-1] / step + 1e-9) + 1)]
        near = _NEAR * (scale(loads[-1]) - scale(loads[0]))
        marked = sum(any(tick > 0 and abs(scale(tick) - scale(load)) <= near for tick in ticks) for load in loads)
        said, truth = (", ".join(f"{each:g}" for each in numbers) for numbers in (ticks, loads))
        yield marked <= 1, Finding("ticks", panel.where, f"ticks at {said}", f"loads {truth}")


# One quantity has one value


@dataclass(frozen=True)
class Shown:
    """A value, as far as its digits tell. Attributes: key: curve, run or level (None of a whole curve), quantity."""

    key: tuple[str, str, str | float | None, str]
    low: float
    high: float
    where: str

    @classmethod
    def of(cls, curve: Curve, at: str | float | None, quantity: str, where: str, *values: float) -> Shown:
        """A value in full; of several, all between them."""
        slack = 1e-9 * abs(values[0])
        return cls((curve.deployment, curve.workload, at, quantity), min(values) - slack, max(values) + slack, where)

    @classmethod
    def text(cls, curve: Curve, at: str | float | None, quantity: str, where: str, text: str, factor: float = 1.0) -> Shown:
        """As printed: within half of the last digit, of three digits of a whole number; zeros may round what has an interval."""
        value, decimals = number(text), len(text.partition(".")[2])
        last = -decimals if decimals or value < 1000 else math.floor(math.log10(value)) - 2
        if quantity in _ROUNDED and not decimals:
            last = max(last, len(text) - len(text.rstrip("0,")) if value else 0)
        half = 0.5 * 10.0**last
        return cls.of(curve, at, quantity, where, (value - half) * factor - 1e-12, (value + half) * factor + 1e-12)


def contradictions(shown: Sequence[Shown]) -> Iterator[Finding]:
    """What is shown with two values that cannot be one, with both places."""
    groups: dict[tuple[Any, ...], list[Shown]] = defaultdict(list)
    for each in shown:
        groups[each.key].append(each)
    for (deployment, workload, at, quantity), group in groups.items():
        lowest, highest = min(group, key=lambda each: each.high), max(group, key=lambda each: each.low)
        if highest.low > lowest.high:
            said = f"{deployment} · {workload}{'' if at is None else f' at {at}'}: {quantity} {highest.low:.6g}"
            yield Finding("one value", highest.where, said, f"{lowest.high:.6g} in {lowest.where}")


_PERCENTILES = [f"{metric}_{at}_s" for metric in ("ttft", "tpot", "e2e") for at in ("p50", "p90", "p95", "p99")]
_OF_HEADS = {
    "requests/s": _RATE, "tokens/s": _TOKENS, "peak KV usage": "kv_usage_peak", "knee": "knee", "instances": "instances",
    "KV cache full at": "kv_full", "standing queue": "queue",
    **{f"{name[:-7].upper()} {name[-5:-2].upper()}{unit}": name for name in _PERCENTILES for unit in ("", " (s)")},
}  # fmt: skip
_OPERATED = "tokens/s at the operating point"
_COUNTED = "kv_usage_peak of the runs whose counts hold, whether their latencies do or not"
_MISSING = "first load not sustained"  # a column of the first screen's table, whose rows are read as sentences
_EDGES = (0.05, 20.0)  # of a limit, where latencies far from it are drawn
_ROUNDED = ("usable_rps", "usable_low", "usable_high", "equilibrium_at", "saturation_at")  # by their intervals
_CAPACITY = ("c_max", "usable_rps", "usable_low", "usable_high")
_POINTS = {name: tuple(f"{name}_{end}" for end in ("at", "low", "high")) for name in ("equilibrium", "saturation")}
_ENDS = rf"({N})[^(;]*\(({N}) to ({N})"
_WHOLE = r"(?:requests?|users?)\b(?!/s)"  # what a limit is a whole number of
# Of a sentence, a card or a cell of one curve: a pattern, and what its groups are.
_SAID = (
    (rf"[Ss]ustains (?:about )?({N}) requests/s(?: \([^)]*\))? at ({N})", ("usable_rps", "operate_at")),
    (rf"[Ss]ustains (?:about )?{N} requests/s \(({N}) to ({N})", ("usable_low", "usable_high")),
    (rf"[Ss]ustains a burst of ({N})", ("c_max",)),
    (rf"takes ({N}) instances", ("instances",)),
    (rf"Within the SLOs: (?:.*, )?[\w-]+(?: · [\w-]+)? ({N})(?: tokens/s)?(?=,|$)", (_OPERATED,)),
    (rf": instances +({N})$", ("instances",)),
    (rf"usable requests/s of an instance +({N})", ("usable_rps",)),
    (rf"KV cache (?:is )?full (?:at )?({N})", ("kv_full",)),
    (rf"limit:? ({N}) to ({N}) {_WHOLE}", ("low", "last_within")),
    (rf"limit:? ({N}) to ({N}) (?!{_WHOLE})", ("low", "high")),
    (rf"limit:? ({N}) {_WHOLE}(?!.* most likely)", ("last_within",)),
    (rf"limit:? at most ({N}) {_WHOLE}", ("last_within",)),
    (rf"limit:? at most ({N}) (?!{_WHOLE})", ("high",)),
    (rf"limit:? ({N}) or more", ("low",)),
    (rf"equilibrium A\|B(?: \(\w+\))? (?:about )?{_ENDS}", _POINTS["equilibrium"]),
    (rf"(?:saturation B\|C|throughput (?:peaks|stops growing) at)(?: \(\w+\))? (?:about )?{_ENDS}", _POINTS["saturation"]),
)  # fmt: skip
_LATENCY = re.compile(rf"(TTFT|TPOT|E2E) (P\d\d)(?: ≤ {N} (?:ms|s)(?: is met[^(;]*)?)? \(({N}) (ms|s)(?: there)?\)")


def _shown(study: Study, outputs: Outputs, texts: Sequence[Text]) -> Iterator[Shown]:
    for key, curve in study.curves.items():
        tables = {name: table.get(key, {}) for name, table in study.tables.items()}
        known = [("capacity", name, name) for name in (*_CAPACITY, "operate_at", "low", "high")]
        known += [("saturation", name, name) for names in _POINTS.values() for name in names]
        known += [
            ("saturation", "queue", "queue"),
            ("saturation", "measured", "kv_full"),
            ("capacity", "tokens_per_s", _OPERATED),
        ]
        yield from (
            Shown.of(curve, None, to, f"{table}.parquet", tables[table][name])
            for table, name, to in known
            if tables[table].get(name) is not None
        )
        if (high := tables["capacity"].get("high")) is not None:
            yield Shown.of(curve, None, "last_within", "capacity.parquet", high - 1)
        for level in curve.levels.values():
            for column in (*(_PERCENTILES if level.judged else ()), _RATE, _TOKENS):
                if values := level.values(column):
                    yield Shown.of(curve, level.load, column, "summary.parquet", *values)
            if usage := [run["kv_usage_peak"] for run in level.runs if run["kv_usage_peak"] is not None]:
                yield Shown.of(curve, level.load, "kv_usage_peak", "summary.parquet", max(usage))
        counted = [run for run in curve.rows if run["counts_valid"] and run["kv_usage_peak"] is not None]
        yield from _of_runs(curve)
        for run in counted:
            at = max(each["kv_usage_peak"] for each in counted if each["level"] == run["level"])
            yield Shown.of(curve, run["run"], "kv_usage_peak", "summary.parquet", run["kv_usage_peak"])
            yield Shown.of(curve, float(run["level"]), _COUNTED, "summary.parquet", at)
    for table in outputs.tables:
        yield from _of_table(study, table)
    for text in texts:
        yield from _of_sentence(study, text)
    for where, title, row in outputs.drawn:
        yield from _of_drawn(study, where, title, row)


def _of_runs(curve: Curve) -> Iterator[Shown]:
    """Each run's latencies: of the requests that are judged, or of the answers in its window, or in the whole run."""
    for run in curve.rows:
        alone = Level(float(run["level"]), [run])
        for column in _PERCENTILES if alone.judged else ():
            own = (run.get(name) for name in (column, f"steady_{column}"))
            if values := [*alone.values(column), *(value for value in own if value is not None)]:
                yield Shown.of(curve, run["run"], column, "summary.parquet", *values)


def _of_table(study: Study, table: Table) -> Iterator[Shown]:
    """The tables of runs, levels and curves, by their heads."""
    if not table.caption.startswith(("Every run", "Every level", "One instance", "Predicted and measured sat")):
        return
    for cells in table.rows:
        run = study.runs.get(tuple(cells[0].split("/", 1))) if table.caption == "Every run" else None  # type: ignore[arg-type]
        if table.caption == "Every run" and run is None:  # an invalid one is marked
            continue
        curves = [study.curves[run["deployment"], run["workload"]]] if run else study.curves_at(cells[0], 0)
        at = run["run"] if run else _first(cells[1]) if table.heads[1] == "load" else None
        for head, cell in zip(table.heads, cells, strict=False):
            found, quantity = re.match(rf"~?({N})(?: ?(ms|s|%)(?!\w))?", cell), _OF_HEADS.get(head, "")
            quantity = _OPERATED if at is None and quantity == _TOKENS else quantity
            if found and quantity and len(curves) == 1 and (at is not None or quantity != _RATE):
                yield Shown.text(
                    curves[0],
                    at,
                    quantity,
                    f"{table.where}, {table.caption}",
                    found[1],
                    {"ms": 1e-3, "%": 1e-2}.get(found[2], 1.0),
                )


def _of_sentence(study: Study, text: Text) -> Iterator[Shown]:
    for pattern, quantities in _SAID:
        for found in re.finditer(pattern, text.text):
            curves = study.curves_at(text.text, found.start(1), text.context)
            if len(curves) == 1:
                yield from (
                    Shown.text(curves[0], None, name, text.where, each)
                    for name, each in zip(quantities, found.groups(), strict=True)
                    if each
                )
    for found in _LATENCY.finditer(text.text):
        loads, curves = _AT.findall(text.text[: found.start()]), study.curves_at(text.text, found.start(), text.context)
        if loads and len(curves) == 1 and number(loads[-1]) in curves[0].levels:
            factor = 1e-3 if found[4] == "ms" else 1.0
            yield Shown.text(curves[0], number(loads[-1]), f"{found[1]}_{found[2]}_s".lower(), text.where, found[3], factor)


def _of_drawn(study: Study, where: str, title: str, row: dict[str, Any]) -> Iterator[Shown]:
    """A row of a figure: columns that are named as those of the summary, and a few that are not."""
    curves = study.curves_at(str(row.get("curve") or f"{row.get('deployment')} · {row.get('workload')}"), 0)
    if len(curves) != 1 or row.get("valid") is False or row.keys() & {"shared", "metric", "line"}:
        return
    curve = study.curves.get((row.get("deployment") or curves[0].deployment, curves[0].workload), curves[0])
    at, slo = row.get("run") or row.get("level"), slo_of(title)
    values = {name: row[name] for name in row.keys() & curve.rows[0].keys() if name.endswith(("_s", "_peak"))}
    for name in _PERCENTILES:
        for unit, times in (("ms", 0.001), ("of_limit", slo[2] if slo else 0.0)):
            if (value := row.get(f"{name.removesuffix('_s')}_{unit}")) not in (None, *_EDGES):
                values[name] = value * times
    if where == "figure kv-saturation" and not row.get("run") and "kv_usage_peak" in values:
        values[_COUNTED] = values.pop("kv_usage_peak")
    yield from (
        Shown.of(curve, at, name, where, value) for name, value in values.items() if at and isinstance(value, int | float)
    )
    if row.get("point"):
        yield Shown.of(curve, None, "equilibrium_at" if row["point"] == "A|B" else "saturation_at", where, row["level"])
    if "bar" in row:  # where the limit lies
        yield from (Shown.of(curve, None, name, where, row[name]) for name in ("low", "high") if row.get(name) is not None)


def _first(text: str) -> float:
    found = re.search(N, text)
    return number(found[0]) if found else -1.0

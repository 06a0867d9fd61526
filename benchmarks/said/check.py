"""The claims that a study's outputs make, held against its tables.

A claim is found by the words and numbers that carry its meaning. When sentences are written anew, the patterns below are what changes:
`CLAIMS` has one for each thing that is said, and a kind that no pattern finds any more is counted as zero.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.said.read import Outputs, Panel, Table, Text, read_outputs
from benchmarks.said.truth import Curve, Study, slo_of

__all__ = ["KINDS", "Checked", "Finding", "check"]

N = r"[\d,]*\.?\d+"
SLO = rf"(?:TTFT|TPOT|E2E) P\d\d ≤ {N} (?:ms|s)"
LOAD = rf"({N})(?: (?:requests?|conversations?|users?))?(?:/s| in flight)?"
UNIT = r" ?(?:%|times|ms|s|in flight|requests? in flight|(?:requests?|conversations?|tokens|output tokens)/s|instances?|users|GPUs?|machines?)"
_BEYOND_ALL = (
    1.25  # an end of an interval ÷ the highest rate that any run of the curve showed, from which it is beyond what can be
)
_SAME = 1.05  # two rates, of which one is said to be no more than the other
_FLAT = 1.15  # throughput beyond a load from which it is said to be flat
_NO_MORE = 1.1  # upper end of a gain that is said to be none
_NEAR = 0.03  # of an axis: how near to a load a tick counts as its own
KINDS = ("missed", "met", "interval", "one value", "no more", "agree", "best", "flat", "full", "named", "unit", "beyond", "cause", "model",
         "count", "ticks")  # fmt: skip


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


def number(text: str) -> float:
    return float(text.replace(",", ""))


@dataclass(frozen=True)
class Claim:
    """A claim that a pattern found. Attributes: load: the one that the words before it name. before: the words of its clause before it."""

    found: re.Match[str]
    curves: Sequence[Curve]
    load: float | None
    study: Study
    text: str

    def group(self, name: int | str = 1) -> float:
        return number(self.found[name])


# What each pattern claims: what is wrong with it, of one curve; None where nothing is.
Check = Callable[[Claim, Curve], str | None]


def _missed(claim: Claim, curve: Curve) -> str | None:
    slo, load = slo_of(claim.found[0]), claim.load
    level = curve.levels.get(load) if load is not None else None
    if slo is None or level is None or (met := level.meets(slo)) is None:
        return None
    beyond = level.beyond(slo[0], slo[2]) or 0.0
    close = "too close" in claim.text[: claim.found.start()].rpartition("miss")[2]
    if met is close:
        return None
    return f"at {load:g}, {100 * beyond:.1f} % of the requests fail or take longer: it is {'met' if met else 'missed'}"


def _met(claim: Claim, curve: Curve, wanted: bool = True) -> str | None:
    level = curve.levels.get(claim.group("at"))
    if level is None:
        return f"{curve.deployment} · {curve.workload} was not validly measured at {claim.group('at'):g}" if wanted else None
    missed = [text for text, slo in curve.slos.items() if level.meets(slo) is False]
    if wanted:
        return f"at {level.load:g} it misses {', '.join(missed)}" if missed else None
    failed = sum(not each["ok"] for each in level.judged) / max(1, len(level.judged))
    grows = any((run["steady_growth"] or 0) > 0.01 for run in level.runs)
    return None if missed or failed > 0.01 or grows or not curve.slos else f"at {level.load:g} every limit is met"


def _beside_limit(claim: Claim, curve: Curve) -> str | None:
    metric, at, value, said, limit, unit = claim.found.groups()
    slo = slo_of(f"{metric} {at} ≤ {limit} {unit}")
    levels = [level for load, level in curve.levels.items() if claim.load in (None, load)]
    wrong = [level for level in levels if slo and level.meets(slo) is not None and level.meets(slo) is not (said == "within")]
    return f"at {wrong[0].load:g} it is {'missed' if said == 'within' else 'met'}" if wrong and len(wrong) == len(levels) else None


def _not_met(claim: Claim, curve: Curve) -> str | None:
    return _met(claim, curve, wanted=False)


def _burst_met(claim: Claim, curve: Curve) -> str | None:
    return _met(claim, curve) if "meet the SLOs" in claim.text else None


def _inside(claim: Claim, _: Curve) -> str | None:
    value, low, high = (number(claim.found[name].replace("−", "-").replace("+", "")) for name in ("value", "low", "high"))
    slack = 10 ** -len(claim.found["value"].partition(".")[2]) if "." in claim.found["value"] else 0.5 if value > 3 else 1e-9
    return (
        None if low - slack <= value <= high + slack and low <= high else f"{value:g} does not lie between {low:g} and {high:g}"
    )


def _possible(claim: Claim, curve: Curve) -> str | None:
    names = ("throughput_requests_per_s", "steady_requests_per_s", "achieved_rate")
    most = max(
        (run[name] for level in curve.levels.values() for run in level.runs for name in names if run.get(name)), default=None
    )
    high = claim.group("high")
    if most is None or high <= _BEYOND_ALL * most:
        return None
    return f"no run of it gave more than {most:.3g} requests/s"


def _no_more(claim: Claim, curve: Curve) -> str | None:
    words = {"KV memory": "kv", "bound on sequences": "sequences", "prompts computed twice": "prefill", "steps twice": "decode",
             "elsewhere": "interference"}  # fmt: skip
    gains = {each["resource"]: each for each in claim.study.gains.get((curve.deployment, curve.workload), ())}
    wrong = [
        gains[name]
        for word, name in words.items()
        if word in claim.found[1] and name in gains and gains[name]["high"] > _NO_MORE
    ]
    return (
        ", ".join(f"{each['resource']} gains {each['gain']:.3g} ({each['low']:.3g} to {each['high']:.3g})" for each in wrong)
        or None
    )


def _sustain_no_more(claim: Claim, curve: Curve) -> str | None:
    rates = {load: level.values("throughput_requests_per_s")[-1] for load, level in curve.levels.items()}
    at, most = claim.load, claim.group("most")
    if at not in rates:
        return None
    more = [
        f"{rate:.3g} requests/s at {load:g}" for load, rate in rates.items() if at < load <= most and rate > _SAME * rates[at]
    ]
    return f"{rates[at]:.3g} requests/s at {at:g}, {', '.join(more)}" if more else None


def _agree(claim: Claim, curve: Curve) -> str | None:
    row = claim.study.tables["saturation"].get((curve.deployment, curve.workload), {})
    points = claim.study.tables["regions"].get((curve.deployment, curve.workload), {})
    ranges = {}  # at, low, high
    if "throughput" in claim.found[0]:
        ranges["throughput"] = tuple(points.get(f"saturation_{name}") for name in ("at", "low", "high"))
    for word, at, below in (("KV cache", "measured", "below"), ("queue", "queue", "queue_below")):
        if word in claim.found[0]:
            ranges[word] = (row.get(at), row.get(below), row.get(at))
    known = {name: each for name, each in ranges.items() if None not in each}
    for i, (name, (at, low, high)) in enumerate(known.items()):
        for other, (its, least, most) in list(known.items())[i + 1 :]:
            alike = at == its if "throughput" not in known else least <= at <= most or low <= its <= high
            if not alike and not max(low, least) < min(high, most):
                return f"{name} at {at:.3g} ({low:g} to {high:g}), {other} at {its:.3g} ({least:g} to {most:g})"
            if not alike and "throughput" in (name, other):
                return f"{name} at {at:.3g} ({low:g} to {high:g}), {other} at {its:.3g} ({least:g} to {most:g}): neither lies in the other's range"
    return None


def _end(claim: Claim, curve: Curve) -> str | None:
    """The lowest or highest load; those that no valid run has, or that cannot be judged, may be left out."""
    load, which = claim.group(), claim.found[2]
    loads = [float(row["level"]) for row in curve.rows]
    judged = [each for each, level in curve.levels.items() if all((run["steady"] is not False) for run in level.runs)] or loads
    ends = (
        (min(loads), min(judged), min(curve.levels, default=0))
        if which == "lowest"
        else (max(loads), max(judged), max(curve.levels, default=0))
    )
    searched = "tried" in claim.text
    return None if searched or load in ends else f"the {which} is {ends[0]:g}"


def _peak(claim: Claim, curve: Curve) -> str | None:
    rates = {
        load: level.values("throughput_tokens_per_s")[-1]
        for load, level in curve.levels.items()
        if level.values("throughput_tokens_per_s")
    }
    best = max(rates, key=lambda load: rates[load], default=None)
    here = curve.rate(claim.group())
    return (
        None
        if best is None or here is None or here >= 0.85 * rates[best]
        else f"{here:.3g} tokens/s there, {rates[best]:.3g} at {best:g}"
    )


def _flat(claim: Claim, curve: Curve) -> str | None:
    here = curve.rate(claim.group())
    beyond = [
        (level.values("throughput_tokens_per_s") or [0.0])[-1] for load, level in curve.levels.items() if load > claim.group()
    ]
    if here is None or not beyond or max(beyond) <= _FLAT * here:
        return None
    return f"{here:.3g} tokens/s there, up to {max(beyond):.3g} beyond"


def _falls(claim: Claim, curve: Curve) -> str | None:
    rates = [(level.values("throughput_tokens_per_s") or [0.0])[-1] for level in curve.levels.values()]
    return (
        None
        if len(rates) < 2 or rates[-1] < max(rates)
        else f"the highest load has the highest throughput, {rates[-1]:.3g} tokens/s"
    )


def _full(claim: Claim, curve: Curve) -> str | None:
    at, below = claim.group("at"), claim.found.groupdict().get("below")
    level = curve.levels.get(at)
    if level is None:  # the server's own counts stand where the client's latencies do not
        rows = [row for row in curve.rows if row["level"] == at and row["counts_valid"]]
    else:
        rows = level.runs
    if not rows:
        return f"{curve.deployment} · {curve.workload} was not validly measured at {at:g}"
    for row in rows:
        if (row["kv_usage_peak"] or 0) < 0.8 and not row["preemptions"] and not row["waiting_peak"]:
            return f"{row['run']} had {100 * (row['kv_usage_peak'] or 0):.0f} % in use, and nothing preempted or waiting"
    if below is None:
        return None
    under = [row for row in curve.rows if row["level"] == number(below) and row["counts_valid"]]
    if under and all((row["kv_usage_peak"] or 0) >= 0.99 or row["preemptions"] for row in under):
        return f"it was full at {below} too"
    return None if number(below) < at else f"{below} is not below {at:g}"


def _measured(claim: Claim, curve: Curve) -> str | None:
    load = claim.group()
    beyond = load > curve.highest * (1 + 1e-9)
    if not beyond or re.search(r"predict|replay|limit is|peak of|search", claim.text):
        return None
    return f"{curve.deployment} · {curve.workload} was measured up to {curve.highest:g}"


def _cause(claim: Claim, curve: Curve) -> str | None:
    load = (
        claim.load
        if claim.load is not None
        else next((float(each) for each in re.findall(rf"burst of ({N})", claim.text)), None)
    )
    level = curve.levels.get(load) if load is not None else None
    if level is None or re.search(r"cache|preempt|memory is", claim.text.split("Replayed")[0]):
        return None
    runs = level.runs
    full = all((run["kv_usage_peak"] or 0) >= 0.95 for run in runs)
    preempted = sum((run["preemptions"] or 0) for run in runs) / max(1, sum(run["requests"] for run in runs))
    waits = min((run["waiting_standing"] or 0) for run in runs)
    if full and preempted > 0.1 and waits >= 1:
        return f"the KV cache was full, {100 * preempted:.0f} % of the requests were preempted, {waits:.0f} waited all the time"
    return None


def _instances(claim: Claim, _: Curve) -> str | None:
    peak, instances = claim.group("peak"), claim.group("instances")
    rate = re.search(rf"[Ss]ustains ({N}) requests/s", claim.text[: claim.found.start()])
    if not rate:
        return None
    ends = [math.ceil(peak / (number(rate[1]) * (1 + sign * 0.006))) for sign in (1, -1)]
    return None if ends[0] <= instances <= ends[1] else f"{peak:g} ÷ {rate[1]} requests/s takes {ends[0]}"


def _safety(claim: Claim, _: Curve) -> str | None:
    wanted = math.ceil(claim.group("instances") * claim.group("safety") - 1e-9)
    return None if claim.group("gpus") % wanted == 0 else f"{claim.found['instances']} × {claim.found['safety']} is {wanted}"


def _valid(claim: Claim, _: Curve) -> str | None:
    rows = list(claim.study.runs.values())
    valid, (first, *_rest) = sum(row["valid"] for row in rows), map(number, re.findall(N, claim.found[0]))
    said = 0 if claim.found[0].startswith("None") else first
    said = len(rows) - said if "invalid" in claim.found[0] else said
    return None if said == valid else f"{valid} of {len(rows)} are valid"


def _streamed(claim: Claim, curve: Curve) -> str | None:
    return (
        "every answer was streamed"
        if all(row["stream"] is not False for row in curve.rows) and any(row["stream"] for row in curve.rows)
        else None
    )


def _modelled(claim: Claim, curve: Curve) -> str | None:
    return None


# (kind, pattern, check). Groups: `at`, `most`, `below`: loads. The load of `missed` is named before it.
CLAIMS: tuple[tuple[str, str, Check], ...] = (
    ("missed", SLO, _missed),
    ("met", rf"[Ss]ustains {N} requests/s(?: \([^)]*\))? at (?P<at>{N})", _met),
    ("met", rf"(TTFT|TPOT|E2E) (P\d\d) ({N} (?:ms|s)) \((within|misses) its limit, ({N}) (ms|s)\)", _beside_limit),
    ("met", rf"[Cc]arries (?P<at>{N}) (?:in flight|requests?)", _met),
    ("met", rf"up to (?P<at>{N}) meet", _met),
    ("met", rf"[Aa] burst of (?P<at>{N})[^.]* meets the SLOs", _met),
    ("met", rf"(?:meets the SLOs up to [a-z ]+|within the SLOs, is |C_max is )(?P<at>{N})(?= \(| or more)", _met),
    ("met", rf"(?P<at>{N}) requests? of ", _burst_met),
    ("met", rf"\((?P<at>{N}) do not\)", _not_met),
    ("interval", rf"(?<![\w-])(?P<value>[+−-]?{N})(?:{UNIT}(?: at {N}{UNIT})?(?: at once)?)? \((?:95 %: )?(?P<low>[+−-]?{N}) to (?P<high>[+−-]?{N})", _inside),
    ("interval", rf"(?P<value>{N}) \((?:at least )(?P<low>{N}), below (?P<high>{N})\)", _inside),
    ("interval", rf"{N} requests/s(?: at {N}{UNIT})? \({N} to (?P<high>{N})", _possible),
    ("no more", r"((?:with|without) [^;.:]*?), no more", _no_more),
    ("no more", rf"up to (?P<most>{N})[^.;]*? sustain (?:no|hardly) more", _sustain_no_more),
    ("agree", r"(?:throughput|KV cache|queue)[\w ,]* agree", _agree),
    ("best", rf"({N})(?: (?:requests?|conversations?|users?)?(?:/s| ?in flight)?)?,? (?:is )?the (lowest|highest)(?! rate| throughput)", _end),
    ("best", rf"(?:throughput is highest at|[Tt]hroughput peaks at|earns the most at) ({N})", _peak),
    ("flat", rf"(?:is flat from|stops growing at) ({N})", _flat),
    ("flat", rf"({N}) \([^)]*\), then flat", _flat),
    ("flat", rf"({N}) \([^)]*\), then it falls", _falls),
    ("full", rf"full (?:at|from) (?P<at>{N})(?:(?: in flight)?(?:, and not at| \((?:and )?not(?: yet)? at|, not at) (?P<below>{N}))?", _full),
    ("beyond", rf"\b[Aa]t ({N}) (?:requests? in flight|in flight|requests?/s)", _measured),
    ("cause", r"prompts of other requests|prompts take too long|wait for the prefill|steps take too long", _cause),
    ("cause", r"not streamed have no", _streamed),
    ("count", rf"peak of (?P<peak>{N}) requests/s takes (?P<instances>{N}) instances?", _instances),
    ("count", rf"plan (?P<gpus>{N}) [^()]*\((?P<instances>{N}) instances, times the safety factor (?P<safety>{N})", _safety),
    ("count", r"(?:All \d+ runs are|None of the \d+ runs is|\d+ of \d+ runs are) (?:in)?valid", _valid),
)  # fmt: skip
_AT = re.compile(rf"(?:\b[Aa]t|burst of|\bin) ({N})(?!\d| ms| s\b| %|\.\d| run)")


def check(folder: Path) -> Checked:
    """What the outputs in a results folder claim, and which of it their tables contradict."""
    study, outputs = Study(folder), read_outputs(folder)
    findings: dict[Finding, None] = {}
    claims: Counter[str] = Counter()
    rows = [
        Text(table.where, f"{row[0]}: {head} {cell}")
        for table in outputs.tables
        for row in table.rows[1:]
        for head, cell in zip(table.heads, row, strict=False)
    ]
    cards = [
        Text(where, f"{deployment}: {what} {value}") for where, deployment, what, value in outputs.cards if where == "page"
    ]
    texts = [*outputs.texts, *rows, *cards]
    for text in texts:
        for kind, finding in _of_text(study, text):
            claims[kind] += 1
            if finding:
                findings[finding] = None
    for kind, finding in (
        *_bold(study, outputs.tables),
        *_named(study, outputs),
        *_unsaid(study, outputs),
        *_ticks(outputs.panels),
        *_models(study, outputs.texts),
    ):
        claims[kind] += 1
        if finding:
            findings[finding] = None
    shown = list(_shown(study, outputs, texts))
    claims["one value"] += len(shown)
    findings |= dict.fromkeys(contradictions(shown))
    return Checked(list(findings), claims)


def _of_text(study: Study, text: Text) -> Iterator[tuple[str, Finding | None]]:
    for kind, pattern, wrong in CLAIMS:
        for found in re.finditer(pattern, text.text):
            before = text.text[: found.start()]
            if kind == "missed" and not re.search(
                r"(?:miss(?:es|ed)?|too close to tell:)(?:(?!\. |within|is met with|meet).)*$", before
            ):
                continue
            position = found.end() if found[0].endswith("of ") else found.start()  # what it is of follows
            curves = study.curves_at(text.text, position, text.context)
            loads = _AT.findall(before)
            claim = Claim(found, curves, number(loads[-1]) if loads else None, study, text.text)
            told = [wrong(claim, curve) for curve in curves]
            said = f"…{text.text[max(0, found.start() - 90) : found.end() + 60]}…" if len(text.text) > 200 else text.text
            yield kind, Finding(kind, text.where, said, f"{_name(curves)}: {told[0]}") if told and all(told) else None


def _name(curves: Sequence[Curve]) -> str:
    return " or ".join(f"{curve.deployment} · {curve.workload}" for curve in curves[:2])


def _bold(study: Study, tables: Sequence[Table]) -> Iterator[tuple[str, Finding | None]]:
    """What is marked as within its limit is, and nothing else."""
    for table in tables:
        if table.caption != "Every level":
            continue
        for cells, bold in zip(table.rows[1:], table.bold[1:], strict=True):
            (curve,) = study.curves_at(cells[0], 0)[:1]
            level = curve.levels.get(_first(cells[1]) or -1.0)
            for head, cell, marked in zip(table.heads, cells, bold, strict=True):
                slo = next((slo for text, slo in curve.slos.items() if text.startswith(head + " ")), None)
                if level and slo and (met := level.meets(slo)) is not None:
                    wrong = met is not marked
                    yield (
                        "met",
                        Finding(
                            "met",
                            table.where,
                            f"{' '.join(cells[:2])}: {head} {cell}",
                            f"is {'' if met else 'not '}within its limit",
                        )
                        if wrong
                        else None,
                    )


def _named(study: Study, outputs: Outputs) -> Iterator[tuple[str, Finding | None]]:
    """A large number names its workload where its deployment has several, and its unit."""
    for where, deployment, what, value in outputs.cards:
        curves = next((curves for _, curves in study.mentions(f"{deployment} {what} {value}")), [])
        named = (
            deployment not in study.several
            or any(curve.workload in f"{what} {value}" for curve in curves)
            or " · " in deployment
        )
        said = f"{deployment}: {what} {value}"
        yield (
            "named",
            None if named else Finding("named", where, said, f"{deployment} has several workloads, and the number names none"),
        )
        unit = re.search(r"in flight|/s|instances?|GPUs?|machines?|USD|users|%|times", value)
        yield "unit", None if unit else Finding("unit", where, said, "the number has no unit")
    for text in outputs.texts:
        if text.where != "page":
            continue
        found = re.search(rf"[Ss]ustains {N} requests/s|it misses|KV cache is full at {N}", text.text)
        if found and len(study.curves) > 1:
            curves = study.curves_at(text.text, found.start(), text.context)
            yield "named", None if len(curves) == 1 else Finding("named", text.where, text.text[:200], "no curve is named")
        if re.search(rf"\b[Aa]t {N}(?![\d.]| %)", text.text):
            unit = re.search(r"in flight|requests?/s|users|a burst|conversations|times", text.text, re.IGNORECASE)
            yield "unit", None if unit else Finding("unit", text.where, text.text[:200], "the load has no unit")


def _unsaid(study: Study, outputs: Outputs) -> Iterator[tuple[str, Finding | None]]:
    """Of a curve whose every load misses a limit clearly, some sentence says that it misses it."""
    for curve in study.curves.values():
        every = {text for each in study.curves.values() for text in each.slos} | {
            slo for text in outputs.texts for slo in re.findall(SLO, text.text)
        }
        for label in sorted(every):
            slo = slo_of(label)
            if slo is None or not curve.levels or (curve.slos and label not in curve.slos):
                continue
            if not all((level.beyond(slo[0], slo[2]) or 0) > 2 * (1 - slo[1]) for level in curve.levels.values()):
                continue
            metric = label.partition(" ≤")[0]
            said = any(metric in text.text and re.search(r"miss|exceed|over the limit|above its limit|too slow", text.text)
                       and curve in study.curves_at(text.text, len(text.text), text.context) for text in outputs.texts)  # fmt: skip
            yield (
                "missed",
                None
                if said
                else Finding(
                    "missed",
                    "page",
                    f"{_name([curve])}: nothing says that it misses {label}",
                    "every load that was measured misses it",
                ),
            )


def _ticks(panels: Sequence[Panel]) -> Iterator[tuple[str, Finding | None]]:
    """An axis of loads has ticks at two measured loads or more."""
    for panel in panels:
        loads = panel.loads
        if len(loads) < 2:
            continue
        ticks = _default_ticks(loads[0], loads[-1], math.ceil(panel.width / 40)) if panel.ticks is None else panel.ticks
        scale: Callable[[float], float] = math.log if panel.log else float
        near = _NEAR * (scale(loads[-1]) - scale(loads[0]))
        marked = [
            load for load in loads if any(tick > 0 and abs(scale(tick) - scale(load)) <= near or tick == load for tick in ticks)
        ]
        said = f"ticks at {', '.join(f'{tick:g}' for tick in ticks)}"
        yield (
            "ticks",
            None
            if len(marked) > 1
            else Finding("ticks", panel.where, said, f"loads {', '.join(f'{load:g}' for load in loads)}"),
        )


def _default_ticks(low: float, high: float, count: int) -> list[float]:
    """Those of d3, which draws an axis that names none."""
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = power * (10 if raw / power >= 50**0.5 else 5 if raw / power >= 10**0.5 else 2 if raw / power >= 2**0.5 else 1)
    return [step * i for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _models(study: Study, texts: Sequence[Text]) -> Iterator[tuple[str, Finding | None]]:
    """A server that has no model has no time that is split by one."""
    for curve in study.curves.values():
        mine = [text for text in texts if curve in study.curves_at(text.text, len(text.text), text.context)]
        without = next((text for text in mine if "no model of this server" in text.text), None)
        by = next((text for text in mine if "by the calibrated model" in text.text), None)
        if without or by:
            yield (
                "model",
                Finding("model", by.where, by.text[:160], f"{_name([curve])}: {without.text[-120:]}")
                if without and by
                else None,
            )


# One quantity has one value


@dataclass(frozen=True)
class Shown:
    """A value, as far as its digits tell. Attributes: at: the run, or the level; None of a whole curve."""

    curve: tuple[str, str]
    at: str | float | None
    quantity: str
    low: float
    high: float
    where: str

    @classmethod
    def exact(cls, curve: Curve, at: str | float | None, quantity: str, value: float, where: str) -> Shown:
        return cls(
            (curve.deployment, curve.workload), at, quantity, value - 1e-9 * abs(value), value + 1e-9 * abs(value), where
        )

    @classmethod
    def text(cls, curve: Curve, at: str | float | None, quantity: str, text: str, where: str, factor: float = 1.0) -> Shown:
        """As printed: within half of the last digit."""
        value, decimals = number(text), len(text.partition(".")[2])
        half = 0.5 * 10.0**-decimals
        if not decimals and len(text.replace(",", "")) > 3:  # three digits of more
            half = 0.5 * 10.0 ** (math.floor(math.log10(value or 1)) - 2)
        return cls(
            (curve.deployment, curve.workload),
            at,
            quantity,
            (value - half) * factor - 1e-12,
            (value + half) * factor + 1e-12,
            where,
        )


def contradictions(shown: Sequence[Shown]) -> Iterator[Finding]:
    """What is shown with two values that cannot be one, with both places."""
    groups: dict[tuple[Any, ...], list[Shown]] = defaultdict(list)
    for each in shown:
        groups[each.curve, each.at, each.quantity].append(each)
    for (curve, at, quantity), group in groups.items():
        lowest, highest = min(group, key=lambda each: each.high), max(group, key=lambda each: each.low)
        if highest.low > lowest.high:
            said = f"{' · '.join(curve)}{'' if at is None else f' at {at}'}: {quantity} {highest.low:.6g}"
            yield Finding("one value", highest.where, said, f"{lowest.high:.6g} in {lowest.where}")


_OF_HEADS = {
    "requests/s": "throughput_requests_per_s", "tokens/s": "throughput_tokens_per_s", "peak KV usage": "kv_usage_peak", "knee": "knee",
    "instances": "instances", "KV cache full": "kv_full", "standing queue": "queue", "operated at": "operate_at", "C_max": "c_max",
    **{f"{metric.upper()} {at.upper()}{unit}": f"{metric}_{at}_s" for metric in ("ttft", "tpot", "e2e") for at in ("p50", "p90", "p95", "p99")
       for unit in ("", " (s)")},
}  # fmt: skip
_OF_CURVE = ("c_max", "usable_rps", "usable_low", "usable_high", "operate_at", "kv_full", "queue", "instances")
# Of a sentence of one curve: a pattern, and what its groups are.
_SAID = (
    (rf"[Ss]ustains ({N}) requests/s(?: \([^)]*\))? at ({N})", ("usable_rps", "operate_at")),
    (rf"[Ss]ustains {N} requests/s(?: at \S+ (?:requests? in flight|requests?/s))? \(({N}) to ({N}) at 95", ("usable_low", "usable_high")),
    (rf"takes ({N}) instances", ("instances",)),
    (rf"KV cache is full at ({N})", ("kv_full",)),
    (rf"(?:within the SLOs, is|C_max is|meets the SLOs up to [a-z ]+) ({N})(?= \(| or more)", ("c_max",)),
    (rf"(?:C_max[^.;]* is|meets the SLOs up to [a-z ]+) {N}(?: or more)? \(at least ({N})(?:, below ({N}))?", ("low", "high")),
    (rf"(?:C_max[^.;]* is) {N}[^(]{{0,9}}\(the limit lies between ({N}) and ({N})", ("low", "high")),
    (rf"puts the limit at {N} in flight \(({N}) to ({N})", ("low", "last_within")),
    (rf"puts the limit at {N} requests?/s \(({N}) to ({N})", ("low", "high")),
    (rf"sustains within .* ({N}) in flight \(({N}) to ({N})\)", ("limit", "low", "last_within")),
    (rf"throughput (?:stops growing|peaks) at ({N}) \(({N}) to ({N})", ("saturation_at", "saturation_low", "saturation_high")),
    (rf"(?:equilibrium A\|B|proportional up to) ({N})[^(;]*\(({N}) to ({N})", ("equilibrium_at", "equilibrium_low", "equilibrium_high")),
    (rf"(?:saturation B\|C|throughput (?:is flat from|peaks at)) ({N})[^(;]*\(({N}) to ({N})", ("saturation_at", "saturation_low", "saturation_high")),
    (rf"stops growing in proportion at ({N})[^(;]*\(({N}) to ({N})", ("equilibrium_at", "equilibrium_low", "equilibrium_high")),
)  # fmt: skip


def _shown(study: Study, outputs: Outputs, texts: Sequence[Text]) -> Iterator[Shown]:
    for key, curve in study.curves.items():
        for table, names in (
            ("capacity", (*_OF_CURVE, "low", "high")),
            ("saturation", ("queue",)),
            ("regions", [f"{point}_{end}" for point in ("equilibrium", "saturation") for end in ("at", "low", "high")]),
        ):
            row = study.tables[table].get(key, {})
            yield from (
                Shown.exact(curve, None, name, row[name], f"{table}.parquet")
                for name in names
                if isinstance(row.get(name), int | float)
            )
        full = study.tables["saturation"].get(key, {}).get("measured")
        if full is not None:
            yield Shown.exact(curve, None, "kv_full", full, "saturation.parquet")
        high = study.tables["capacity"].get(key, {}).get("high")
        if high is not None:
            yield Shown.exact(curve, None, "last_within", high - 1, "capacity.parquet")
        for level in curve.levels.values():
            for metric in ("ttft", "tpot", "e2e"):
                for at in ("p50", "p90", "p95", "p99"):
                    for value in level.values(f"{metric}_{at}_s")[:1] if level.judged else ():
                        yield Shown.exact(curve, level.load, f"{metric}_{at}_s", value, "summary.parquet, all requests")
            for column in ("throughput_requests_per_s", "throughput_tokens_per_s"):
                if values := level.values(column):  # of whole runs or of steady windows
                    ends = (
                        Shown.exact(curve, level.load, column, min(values), "summary.parquet"),
                        Shown.exact(curve, level.load, column, max(values), "summary.parquet"),
                    )
                    yield replace(ends[0], high=ends[1].high)
            if (usage := level.highest("kv_usage_peak")) is not None:
                yield Shown.exact(curve, level.load, "kv_usage_peak", usage, "summary.parquet")
    for table in outputs.tables:
        yield from _of_table(study, table)
    for text in texts:
        yield from _of_sentence(study, text)
    for where, title, row in outputs.drawn:
        yield from _of_drawn(study, where, title, row)


def _of_table(study: Study, table: Table) -> Iterator[Shown]:
    heads, where = table.heads, f"{table.where}, {table.caption}"
    whole = table.caption == "Every run"
    if not heads or heads[0] not in ("curve", "run") and heads[:2] != ["deployment", "parameters (M)"]:
        return
    for cells in table.rows[1:]:
        curves = study.curves_at(cells[0], 0)
        run = cells[0].split("/", 1)[1] if whole and "/" in cells[0] else None
        if run:
            row = next((row for (_, name), row in study.runs.items() if name == run), None)
            curves = [study.curves[row["deployment"], row["workload"]]] if row else []
        if len(curves) != 1:
            continue
        at: str | float | None = run or (_first(cells[1]) if heads[1] == "load" else None)
        if table.caption not in ("Every run", "Every level") and not table.caption.startswith(
            ("What one instance", "A fleet", "Predicted and measured sat")
        ):
            continue
        for head, cell in zip(heads, cells, strict=False):
            quantity = _OF_HEADS.get(head)
            found = re.match(rf"~?({N})(?: (ms|s|%)\b| (%))?", cell)
            if quantity and found and (at is not None or quantity in _OF_CURVE or quantity == "knee"):
                factor = {"ms": 1e-3, "%": 1e-2}.get(found[2] or found[3] or "", 1.0)
                yield Shown.text(curves[0], at, quantity, found[1], where, factor)
            if head.startswith("usable requests/s") and (ends := re.findall(N, cell)):
                yield from (
                    Shown.text(curves[0], None, name, each, where)
                    for name, each in zip(("usable_rps", "usable_low", "usable_high"), ends, strict=False)
                    if "not established" not in cell
                )


def _of_sentence(study: Study, text: Text) -> Iterator[Shown]:
    for pattern, quantities in _SAID:
        for found in re.finditer(pattern, text.text):
            curves = study.curves_at(text.text, found.start(), text.context)
            if len(curves) == 1:
                yield from (
                    Shown.text(curves[0], None, name, each, text.where)
                    for name, each in zip(quantities, found.groups(), strict=True)
                    if each
                )
    for found in re.finditer(
        rf"(TTFT|TPOT|E2E) (P\d\d)(?: ≤ {N} (?:ms|s)(?: is met[^(;]*)?)? \(({N}) (ms|s)(?: there)?\)", text.text
    ):
        loads, curves = _AT.findall(text.text[: found.start()]), study.curves_at(text.text, found.start(), text.context)
        if loads and len(curves) == 1 and number(loads[-1]) in curves[0].levels:
            yield Shown.text(
                curves[0],
                number(loads[-1]),
                f"{found[1]}_{found[2]}_s".lower(),
                found[3],
                text.where,
                1e-3 if found[4] == "ms" else 1.0,
            )


def _of_drawn(study: Study, where: str, title: str, row: dict[str, Any]) -> Iterator[Shown]:
    """A row of a figure: what stands in columns that are named as those of the summary, and in a few that are not."""
    label = f"{row['deployment']} · {row['workload']}" if {"deployment", "workload"} <= row.keys() else row.get("curve")
    curves = study.curves_at(str(label), 0) if label else []
    if len(curves) != 1 or row.get("valid") is False or "shared" in row:
        return
    curve = study.curves.get((row.get("deployment") or curves[0].deployment, curves[0].workload), curves[0])
    at = row.get("run") or row.get("level")
    known = set(curve.rows[0]) - {"level", "repeat"}
    if at is not None and "metric" not in row and "line" not in row:
        for name, value in row.items():
            if name in known and name.endswith(("_s", "_peak")) and isinstance(value, int | float):
                yield Shown.exact(curve, at, name, value, where)
        for name in ("tail", "median"):
            if (found := re.match(r"(TTFT|TPOT|E2E) (P\d+)", title)) and isinstance(row.get(name), int | float):
                yield Shown.exact(curve, at, f"{found[1]}_{found[2] if name == 'tail' else 'P50'}_s".lower(), row[name], where)
        if (slo := slo_of(str(row.get("slo")))) and row.get("seconds") is not None:
            yield Shown.exact(curve, at, f"{slo[0]}_p{100 * slo[1]:.0f}_s", row["seconds"], where)
        if row.get("a_user"):
            yield Shown.exact(curve, at, "tpot_p50_s", 1 / row["a_user"], where)
    if row.get("mark") == "C_max":
        yield Shown.exact(curve, None, "c_max", row["level"], where)
    if row.get("point") in ("A|B", "B|C") and where != "figure peak-throughput":  # which has those of another throughput too
        yield Shown.exact(curve, None, f"{'equilibrium' if row['point'] == 'A|B' else 'saturation'}_at", row["level"], where)
    limits = [slo[2] for slo in curve.slos.values()]
    if row.get("limit_s", limits[0] if limits else None) in limits and ("slo" in row or "limit_s" in row):
        names = ("c_max", "usable_rps", "usable_low", "usable_high", *(("low", "high") if "slo" in row else ()))
        yield from (
            Shown.exact(curve, None, name, row[name], where) for name in names if isinstance(row.get(name), int | float)
        )


def _first(text: str) -> float | None:
    found = re.search(N, text)
    return number(found[0]) if found else None

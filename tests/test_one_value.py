"""A quantity of a curve has one value, wherever it is printed or drawn.

Simulated servers go through the whole pipeline. From each place that shows a quantity of a run, a level or a curve its values are read,
and where two of them cannot be the same number to the digits that are shown, both places are named.
"""

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from html.parser import HTMLParser

import benchmarks.capacity.files as made
import polars as pl
import pytest
from benchmarks.capacity.fleet import Case
from benchmarks.capacity.server import Server
from benchmarks.capacity.truth import Demand, Limit

from bench.aggregate import aggregate
from bench.analyse import write_analysis
from bench.cli import main
from bench.figures import Results, figure_names
from bench.figures.charts import fleet
from bench.figures.registry import load_figure
from bench.parse import parse_run
from bench.records.columns import COLUMNS
from bench.records.files import write_record
from bench.report import write_report
from bench.study import Decision, parse_slo
from bench.study.config import Thresholds
from tests import records
from tests.planted import calibrated, searched

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
SLOS = ("ttft_p90=55ms", "tpot_p95=40ms")
SERVERS = {"s000": ("closed", 16.0, 160), "s001": ("poisson", 20.0, 200)}
NUMBER = r"[\d,]*\.?\d+"


@dataclass(frozen=True)
class Shown:
    """A value, as far as its digits tell. `at`: the run, or the level; None of a whole curve."""

    curve: str
    at: str | float | None
    quantity: str
    low: float
    high: float
    where: str

    @classmethod
    def exact(cls, curve, at, quantity, value, where):
        return cls(curve, at, quantity, value - 1e-9 * abs(value), value + 1e-9 * abs(value), where)

    @classmethod
    def text(cls, curve, at, quantity, text, where, factor=1.0):
        """As printed: within half of the last digit."""
        digits = text.replace(",", "")
        half = 0.5 * 10.0 ** -len(digits.partition(".")[2])
        half = max(
            half,
            0.5 * 10.0 ** (math.floor(math.log10(abs(float(digits)) or 1)) - 2) if "." not in digits and len(digits) > 3 else 0,
        )
        return cls(curve, at, quantity, (float(digits) - half) * factor - 1e-12, (float(digits) + half) * factor + 1e-12, where)


def contradictions(shown):
    """What is shown with two values that cannot be one: lines that name both places."""
    groups = defaultdict(list)
    for each in shown:
        groups[each.curve, each.at, each.quantity].append(each)
    found = []
    for key, group in groups.items():
        lowest, highest = min(group, key=lambda each: each.high), max(group, key=lambda each: each.low)
        if highest.low > lowest.high:
            found.append(f"{key}: {lowest.low:.6g} in {lowest.where}, {highest.low:.6g} in {highest.where}")
    return found


# A study


def study(folder):
    """The results of two servers whose caches fill: a closed loop and Poisson arrivals."""
    summaries, launches, facts = [], [], []
    for number, (name, (arrival, around, blocks)) in enumerate(SERVERS.items()):
        server = Server(a_ms=8.0, b_ms=0.6, c_ms=0.05, d_ms=0.05, noise=0.05, slots=24, blocks=blocks, wire_ms=0.3)
        demand = Demand(arrival=arrival, prompt=100, output=30, sigma=0.4)
        case = Case(number, "any", server, demand, Limit("ttft", 0.9, 0.4), around, 1.0, around, drift="rounds")
        (folder / name).mkdir()
        made.write_study(case, folder / name)
        launches.append(folder / name / "launch.json")
        facts.append(folder / name / "deployment.json")
        for run in sorted((folder / name / "runs").iterdir()):
            out = folder / "parsed" / name / run.name
            files = {
                "requests": "requests.parquet",
                "telemetry": "telemetry.parquet",
                "wide": "metrics.csv",
                "summary": "summary.json",
            }
            parse_run(run, **{key: out / file for key, file in files.items()})
            summaries.append(out / "summary.json")
    tables = {
        "summary": folder / "summary.parquet",
        "summary_csv": folder / "summary.csv",
        "timeseries": folder / "timeseries.parquet",
    }
    slos = [parse_slo(slo) for slo in SLOS]
    aggregate(summaries, launches=launches, facts=facts, thresholds=Thresholds(), slos=slos, baseline="s000", **tables)
    decision = Decision(slo=list(SLOS), peak_rps=200, price_per_hour=2.0, price_per_million_tokens=1.0)
    results = Results.read(tables["summary"], tables["timeseries"], decision)
    found = (
        (target, {"limit": limit, "low": limit - 1, "high": limit + 2})
        for target, limit in (("slo", 14), ("equilibrium", 9), ("throughput", 13))
    )
    searches = tuple(
        (
            "s000",
            searched(
                workload="load",
                target=target,
                slos=tuple(map(str, decision.slos)) if target == "slo" else (),
                top=800.0,
                **ends,
            ),
        )
        for target, ends in found
    )
    return replace(results, searches=searches, calibration=of_whole_runs(pl.read_parquet(tables["summary"])))


def of_whole_runs(runs):
    """A model of each server, with what its runs measured as a whole."""
    by_run = {(row["deployment"], row["run"]): row for row in runs.to_dicts()}
    models = []
    for model in (models_of := calibrated(runs)).models:
        rows = [(load, by_run[model.deployment, load.run]) for load in model.measured]
        measured = [
            replace(load, numbers={key: row[key] for key in load.numbers if row.get(key) is not None}) for load, row in rows
        ]
        models.append(replace(model, measured=tuple(measured)))
    return replace(models_of, models=tuple(models))


# What is read


class Tables(HTMLParser):
    """The tables of a page: caption, heads, and rows of texts."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.cell = [], None
        self.feed(text)

    def handle_starttag(self, tag, _):
        if tag == "table":
            self.tables.append({"caption": "", "heads": [], "rows": []})
        elif tag == "tr" and self.tables:
            self.tables[-1]["rows"].append([])
        if tag in ("caption", "th", "td"):
            self.cell = []

    def handle_data(self, data):
        if self.cell is not None:
            self.cell.append(data)

    def handle_endtag(self, tag):
        if tag not in ("caption", "th", "td"):
            return
        text, self.cell = "".join(self.cell).strip(), None
        if tag == "caption":
            self.tables[-1]["caption"] = text
        else:
            self.tables[-1]["rows"][-1].append(text)


def tables_of(page):
    for table in Tables(page).tables:
        heads, *rows = table["rows"]
        yield table["caption"], heads, rows


OF_HEADS = {
    "requests/s": "throughput_requests_per_s",
    "tokens/s": "throughput_tokens_per_s",
    "peak KV usage": "kv_usage_peak",
    "knee": "knee",
    "instances": "instances",
    "KV cache full": "kv_full",
    "standing queue": "queue",
    "equilibrium A|B": "equilibrium",
    "saturation B|C": "saturation",
    "operated at": "operate_at",
    "C_max": "c_max",
    **{f"{metric.upper()} {at.upper()}": f"{metric}_{at}_s" for metric in ("ttft", "tpot", "e2e") for at in ("p50", "p90", "p95", "p99")},
}  # fmt: skip
OF_RUNS = {"TTFT P50 (s)": "ttft_p50_s", "TTFT P99 (s)": "ttft_p99_s", "TPOT P50 (s)": "tpot_p50_s", "E2E P50 (s)": "e2e_p50_s",
           "tokens/s": "throughput_tokens_per_s", "peak KV usage": "kv_usage_peak"}  # fmt: skip
# Tables that show no quantity of a run, a level or a curve that others show.
OTHERS = ("Limits for one instance", "Predicted before the runs", "What a step of", "How far predictions", "Where a request", "Where each run", "Deployments",
          "Workloads", "What each search found", "Differences from", "Profit", "The load that leaves")  # fmt: skip


def from_page(page) -> Iterator[Shown]:
    for caption, heads, rows in tables_of(page):
        if caption.startswith(OTHERS):
            continue
        for cells in rows:
            row = dict(zip(heads, cells, strict=True))
            name = cells[0].split(" · ")[0].split("/")[0].removeprefix("✕ invalid: ")
            if caption == "Every run":
                yield from cells_of(name, cells[0].split("/", 1)[1], row, OF_RUNS, caption)
            elif caption == "Every level":
                yield from cells_of(name, first_number(row["load"]), row, OF_HEADS, caption)
            else:
                yield from cells_of(
                    name, None, {k: v for k, v in row.items() if k not in ("tokens/s", "TTFT P50, P99 (s)")}, OF_HEADS, caption
                )
            if usable := re.fullmatch(rf"({NUMBER}) \((.*) to (.*)\)", row.get("usable requests/s (at 95 % confidence)", "")):
                yield from ends_of(name, "usable", usable.groups(), caption)
                at = first_number(row["operated at"])
                yield Shown.text(name, at, "throughput_tokens_per_s", row["tokens/s"], caption)
                p50, p99 = re.findall(rf"~?({NUMBER})", row["TTFT P50, P99 (s)"])[:2]
                yield Shown.text(name, at, "ttft_p50_s", p50, caption)
                yield Shown.text(name, at, "ttft_p99_s", p99, caption)
            if "C_max" in row:
                yield from c_max_of(name, row["C_max"], caption)
            if "equilibrium A|B" in row:
                for head, quantity in (("equilibrium A|B", "equilibrium"), ("saturation B|C", "saturation")):
                    yield from between(name, quantity, row[head], caption)


def first_number(text):
    return float(re.search(NUMBER, text)[0].replace(",", ""))


def cells_of(curve, at, row, quantities, where):
    for head, quantity in quantities.items():
        found = re.match(rf"~?({NUMBER})(?: (ms|s|%)\b| %)?", row.get(head, ""))
        if found:
            factor = {"ms": 1e-3, "%": 1e-2}.get(found[2] or ("%" if found[0].endswith("%") else ""), 1.0)
            yield Shown.text(curve, at, quantity, found[1], where, factor)


def ends_of(curve, quantity, texts, where):
    for name, text in zip(("rps", "low", "high"), texts, strict=True):
        if re.fullmatch(NUMBER, text):
            yield Shown.text(curve, None, f"{quantity}_{name}", text, where)


def c_max_of(curve, text, where):
    for pattern, quantity in ((rf"^({NUMBER})", "c_max"), (rf"at least ({NUMBER})", "low"), (rf"below ({NUMBER})", "high")):
        if found := re.search(pattern, text):
            yield Shown.text(curve, None, quantity, found[1], where)


def between(curve, quantity, text, where):
    """A point with its ends: `48 (40 to 56)`."""
    if found := re.search(rf"({NUMBER})[^(;]*?\(({NUMBER}) to ({NUMBER})", text):
        for name, number in zip(("at", "low", "high"), found.groups(), strict=True):
            yield Shown.text(curve, None, f"{quantity}_{name}", number, where)


def from_text(text, where) -> Iterator[Shown]:
    """Sentences of the answers and verdicts: each line of one curve, which its name begins."""
    for line in text.splitlines():
        named = re.match(r"- \**(s00\d)(?: · load|, load)?\**:? ?(.*)", line)
        if named is None:
            continue
        curve, rest = named.groups()
        for pattern, quantities in (
            (rf"[Ss]ustains ({NUMBER}) requests/s \([^)]*\) at ({NUMBER})", ("usable_rps", "operate_at")),
            (rf"ustains {NUMBER} requests/s \(({NUMBER}) to ({NUMBER}) at 95", ("usable_low", "usable_high")),
            (rf"ustains {NUMBER} requests/s \(at least ({NUMBER}) at 95", ("usable_low",)),
            (rf"takes ({NUMBER}) instances", ("instances",)),
            (rf"KV cache is full at ({NUMBER}) in flight", ("kv_full",)),
            (rf"within the SLOs \([^)]*\), is ({NUMBER})", ("c_max",)),
            (rf"puts the limit at {NUMBER} in flight \(({NUMBER}) to ({NUMBER})", ("low", "last_within")),
        ):  # fmt: skip
            if found := re.search(pattern, rest):
                yield from (
                    Shown.text(curve, None, name, number, where)
                    for name, number in zip(quantities, found.groups(), strict=True)
                )
        if found := re.search(rf"C_max, the highest load within the SLOs \([^)]*\), is {NUMBER}[^(;:]*\(([^)]*)\)", rest):
            yield from (each for each in c_max_of(curve, found[1], where) if each.quantity != "c_max")
        if found := re.search(rf"At ({NUMBER}) requests.*TTFT P90 ≤ 55 ms \(({NUMBER}) ms\)", rest):
            yield Shown.text(curve, float(found[1]), "missed", "1", where)
        for words, quantity in (("throughput stops growing in proportion at", "equilibrium"), ("of it is reached at", "saturation"),
                                ("throughput stops growing at", "saturation")):  # fmt: skip
            if words in rest:
                yield from between(curve, quantity, rest.split(words)[1], where)


def from_figures(results) -> Iterator[Shown]:
    for name in figure_names():
        figure = load_figure(name)
        given = results.given(figure.uses)
        for part in given.by_axis() if figure.by_axis else [given]:
            spec = figure.draw(part).to_dict(validate=False)
            yield from from_spec(spec, spec.get("datasets", {}), f"figure {name}", {})
        for text in (figure.finding(given) if figure.finding else None, figure.note(given) if figure.note else None):
            yield from from_words(text or "", f"words of {name}")


def from_words(text, where):
    for curve, throughput in (
        re.findall(rf"(s00\d)(?: \S+)? ({NUMBER})(?: tokens/s|,|$)", text) if "Within the SLOs" in text else ()
    ):
        yield Shown.text(curve, "operate_at", "throughput_tokens_per_s", throughput, where)
    for curve, before, below, after, highest in re.findall(
        rf"(s00\d): ({NUMBER}) at ({NUMBER}), ({NUMBER}) at ({NUMBER}) \(", text
    ):
        yield Shown.text(curve, float(below), "throughput_tokens_per_s", before, where)
        yield Shown.text(curve, float(highest), "throughput_tokens_per_s", after, where)
    for curve, instances in re.findall(rf"({NUMBER})(?: instances)? of (s00\d)", text) if "takes" in text else ():
        yield Shown.text(instances, None, "instances", curve, where)
    for curve, full, usage in re.findall(rf"(s00\d): full at ({NUMBER})[^(]*\(({NUMBER}) % in use", text):
        yield Shown.text(curve, None, "kv_full", full, where)
        yield Shown.text(curve, float(full), "kv_usage_peak", usage, where, 0.01)


def from_spec(spec, datasets, where, above) -> Iterator[Shown]:
    """Every layer's rows, by what its axis calls them; parts inherit their encoding, their title and their data."""
    if not isinstance(spec, dict):
        return
    title = spec.get("title")
    heading = title.get("text") if isinstance(title, dict) else title
    seen = {
        "encoding": {**above.get("encoding", {}), **spec.get("encoding", {})},
        "heading": heading or above.get("heading"),
        "data": spec.get("data", {}).get("name") or above.get("data"),
    }
    for key in ("layer", "hconcat", "vconcat", "concat"):
        for part in spec.get(key, []):
            yield from from_spec(part, datasets, where, seen)
    if "spec" in spec:
        yield from from_spec(spec["spec"], datasets, where, seen)
    if "mark" in spec:
        y = seen["encoding"].get("y", {})
        yield from from_rows(datasets.get(seen["data"], []), y, seen["heading"], where)


def from_rows(rows, y, heading, where):
    """Of a layer's rows, each by what draws it: the field of its axis, or columns that some figures alone have."""
    words = " ".join(y["title"]) if isinstance(y.get("title"), list) else str(y.get("title"))
    read = SPECIAL.get(where, lambda row: of_field(row, y.get("field") or "", words, heading, where))
    for row in rows:
        if row.get("curve") is not None and row.get("valid") is not False:
            yield from read(row)


def of_field(row, field, words, heading, where):
    quantity, at = field, row.get("run") or row.get("level")
    if field in ("tail", "median") and (found := re.match(r"(TTFT|TPOT|E2E) (P\d+)", heading or "")):
        quantity = f"{found[1].lower()}_{(found[2] if field == 'tail' else 'P50').lower()}_s"
    if "metric" in row:  # predicted-loads has a row for each, predicted ones without a run
        quantity = f"{row['metric']}{' of whole runs' if 'whole run' in words else ''}" if row.get("run") else ""
        field = "value"
    if at is not None and quantity.removesuffix(" of whole runs") in COLUMNS and isinstance(row.get(field), int | float):
        yield Shown.exact(row["curve"], at, quantity, row[field], where)
    if row.get("point") in POINTS:
        yield Shown.exact(row["curve"], None, f"{POINTS[row['point']]}_at", row["level"], where)


POINTS = {"A|B": "equilibrium", "B|C": "saturation"}


def of_margin(row):
    where = "figure slo-margin"
    for end in ("low", "high"):
        if row.get(end) is not None:
            yield Shown.exact(row["curve"], None, end, row[end], where)
    slo = next((slo for slo in map(parse_slo, SLOS) if str(slo) == row.get("slo")), None)
    if slo and 0.05 < row["at"] < 20:
        at = row["level"] if row["run"] is None else row["run"]
        yield Shown.exact(row["curve"], at, slo.column, row["at"] * slo.limit_s, where)


def of_curve(row):
    """latency-throughput: a row a level, with its place on both axes."""
    if row.get("run") is None:
        for column in row.keys() & COLUMNS.keys() - {"level", "workload", "run"}:
            if row[column] is not None:
                yield Shown.exact(row["curve"], row["level"], column, row[column], "figure latency-throughput")
        if row.get("mark"):
            yield Shown.exact(row["curve"], None, row["mark"].lower(), row["level"], "figure latency-throughput")


def of_speed(row):
    if "a_user" in row:
        yield Shown.exact(row["curve"], row["level"], "tpot_p50_s", 1 / row["a_user"], "figure user-speed")
    else:
        yield Shown.exact(row["curve"], row["level"], "ttft_p90_s", row["ttft_p90_s"], "figure user-speed")
    yield Shown.exact(row["curve"], row["level"], "throughput_tokens_per_s", row["an_instance"], "figure user-speed")


def of_fleet(row):
    """Rates over an SLO's limit, of which those of the decision count."""
    if row.get("limit_s") not in [parse_slo(slo).limit_s for slo in SLOS]:
        return
    for name in ("c_max", "usable_rps", "usable_low", "usable_high"):
        if row.get(name) is not None:
            yield Shown.exact(row["curve"], None, name, row[name], "figure fleet")


SPECIAL = {
    "figure slo-margin": of_margin,
    "figure latency-throughput": of_curve,
    "figure user-speed": of_speed,
    "figure fleet": of_fleet,
}


ENDS = tuple(f"{point}_{end}" for point in POINTS.values() for end in ("at", "low", "high"))


def from_tables(results) -> Iterator[Shown]:
    """What is written for machines."""
    yield from columns_of(
        results.points, ("c_max", "low", "high", "usable_rps", "usable_low", "usable_high", "operate_at"), "capacity.parquet"
    )
    yield from columns_of(results.saturation.rename({"measured": "kv_full"}), ("kv_full", "queue", *ENDS), "saturation")
    yield from columns_of(results.analysis.regions.filter(metric="throughput_tokens_per_s"), ENDS, "regions.parquet")
    for row in results.points.iter_rows(named=True):
        curve, at, where = row["deployment"], row["operate_at"], "capacity.parquet"
        yield Shown.exact(curve, at, "throughput_tokens_per_s", row["tokens_per_s"], where)
        yield Shown.exact(curve, "operate_at", "throughput_tokens_per_s", row["tokens_per_s"], where)
        if row["unit"] == "requests in flight":  # the rate of an open loop is at most what it was offered
            yield Shown.exact(curve, at, "throughput_requests_per_s", row["usable_rps"], where)
            yield from (Shown.exact(curve, None, "last_within", high - 1, where) for high in [row["high"]] if high is not None)
        for miss in row["missed"] or ():
            yield Shown.exact(curve, row["missed_at"], miss["by"], miss["reached_s"], where)
    for each in results.analysis.findings.curves:
        yield Shown.exact(each.deployment, None, "instances", each.fleet["instances"], "findings.json")
        yield from (
            Shown.exact(each.deployment, None, "knee", knee, "findings.json") for knee in [each.knee] if knee is not None
        )
    for row in results.runs.filter("valid").iter_rows(named=True):
        for name in OF_RUNS.values():
            yield Shown.exact(row["deployment"], row["run"], name, row[name], "summary.parquet, in windows")


def columns_of(table, names, where):
    for row in table.iter_rows(named=True):
        yield from (Shown.exact(row["deployment"], None, name, row[name], where) for name in names if row[name] is not None)


def from_command(folder, capsys) -> Iterator[Shown]:
    for name in SERVERS:
        words = [f"{folder}:{name}", *(word for slo in SLOS for word in ("--slo", slo)), "--peak-rps", "200", "--json"]
        assert main(["size", *words]) == 0
        told = json.loads(capsys.readouterr().out)
        for quantity in ("usable_rps", "usable_low", "usable_high", "instances"):
            if told[quantity] is not None:
                yield Shown.exact(name, None, quantity, told[quantity], "bench size")


def shown_by(results, folder):
    facts = []
    for name in SERVERS:
        facts.append(folder / f"{name}.json")
        write_record(records.facts(deployment=name, kv_tokens=2560, kv_blocks=160, block_size=16), facts[-1])
    write_report(folder / "report.html", title="t", results=results, specs=[], facts=facts, summary=folder / "report.md")
    yield from from_page((folder / "report.html").read_text())
    yield from from_text((folder / "report.md").read_text(), "report.md")
    yield from from_tables(results)
    yield from from_figures(results)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A study, its folder, and all that it shows."""
    folder = tmp_path_factory.mktemp("one_value")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(made, "_LADDER", (0.5, 0.9, 1.05, 1.3))
        patch.setattr(fleet, "steps_of", lambda _, slo: [slo.limit_s])  # at other limits it takes a minute
        results = study(folder)
        return results, folder, list(shown_by(results, folder))


def test_no_quantity_is_shown_with_two_values(drawn):
    _, _, shown = drawn
    assert contradictions(shown) == []


def test_all_places_are_read(drawn):
    """So that none is passed over once its words or its columns change."""
    _, _, shown = drawn
    places = defaultdict(set)
    for each in shown:
        places[each.quantity].add(each.where)
    fewest = {
        **{"c_max": 5, "low": 3, "high": 2, "usable_rps": 4, "usable_low": 4, "usable_high": 3, "instances": 4, "kv_full": 3},
        **{
            "operate_at": 3,
            "throughput_tokens_per_s": 10,
            "ttft_p90_s": 5,
            "ttft_p50_s": 5,
            "tpot_p50_s": 4,
            "kv_usage_peak": 4,
        },
        **{"equilibrium_at": 4, "saturation_at": 4},
    }
    assert {name: sorted(places[name]) for name, count in fewest.items() if len(places[name]) < count} == {}


@pytest.mark.parametrize(
    ("quantity", "table"), [("usable_rps", "capacity"), ("usable_low", "capacity"), ("c_max", "capacity"), ("high", "capacity"), ("measured", "saturation"), ("equilibrium_at", "regions")]
)  # fmt: skip
def test_a_second_value_is_found(drawn, monkeypatch, quantity, table):
    """A table that is off by 4 %, or a level, beside what is drawn and written from the right one."""
    results, _, shown = drawn
    right = getattr(results.analysis, table)
    wrong = right.with_columns(pl.col(quantity) * 1.04 + 0.5)
    analysis = results.analysis
    monkeypatch.setitem(vars(analysis), table, wrong)
    fresh = replace(results, analysed=analysis)
    assert contradictions([*shown, *from_tables(fresh)])


def test_commands_say_the_same(drawn, capsys):
    results, folder, shown = drawn
    write_analysis(results.analysis, folder / "analysis")
    told = list(from_command(folder, capsys))
    assert told
    assert contradictions([*told, *shown]) == []

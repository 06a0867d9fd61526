"""The scrapes of a run as tables: tidy, and the study's wide form."""

from __future__ import annotations

import gzip
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NotRequired, TypedDict

import msgspec
import polars as pl

from bench.errors import BenchError, shown
from bench.parse.exposition import ExpositionError, ExpositionReader, Series

TELEMETRY_SCHEMA = {
    "scrape": pl.Int32,
    "elapsed_s": pl.Float64,
    "endpoint": pl.String,
    "name": pl.String,
    "labels": pl.String,
    "value": pl.Float64,
}
SCRAPE_SCHEMA = {"scrape": pl.Int32, "endpoint": pl.String, "received_s": pl.Float64, "error": pl.String, "last": pl.Boolean}

# longest line that is read (bytes); derived: the scraper keeps 8 MiB of an answer (`bench.bounds.MOST_BYTES`), and JSON writes a
# character as six at most
_MOST_BYTES = 49 * 2**20
_DISCARD = "discard the run (`bench runs --discard RUN`) and measure it again"


_Moment = Annotated[float, msgspec.Meta(gt=-1e12, lt=1e12)]


class Scrape(TypedDict):
    """A line of `telemetry.jsonl.gz` (`bench.measure.scraper.scrape`)."""

    slot: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    endpoint: str
    due: NotRequired[_Moment]
    sent: _Moment
    received: _Moment
    text: NotRequired[str]
    error: NotRequired[str | None]
    last: NotRequired[bool]


def read_scrapes(path: Path) -> Iterator[Scrape]:
    """The scrapes in `telemetry.jsonl.gz`, in order; a file whose end was lost (a killed scraper) gives what it has."""
    decode = msgspec.json.Decoder(Scrape).decode
    with gzip.open(path, "rb") as file:
        try:
            while line := file.readline(_MOST_BYTES + 1):
                if len(line) > _MOST_BYTES:
                    raise ValueError(f"a line of more than {_MOST_BYTES >> 20} MiB")
                yield decode(line)
        except msgspec.ValidationError as error:
            raise BenchError(f"{path}: no scrape: {error}; {_DISCARD}.") from None
        except (EOFError, msgspec.DecodeError):
            return
        except (gzip.BadGzipFile, zlib.error, ValueError) as error:
            raise BenchError(f"{path}: {error}; {_DISCARD}.") from None


def scrape_tables(path: Path, start: float) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Every scrape, and every sample of those that succeeded.

    One scrape is held as text at a time: what grows with the run's length is the tables alone.

    Args:
        path: the raw scrapes. start: the run's start on their clock (s).

    Returns:
        Scrapes, in the file's order: `scrape` (number), `endpoint`, `received_s` (since `start`; s), `error` (null where it
        succeeded; a text that is not an exposition is an error), `last` (whether it is its endpoint's last, after the load).
        Samples: `scrape`, `elapsed_s` (middle of sending and receiving, since `start`; s), `endpoint`, `name`, `labels` (as
        `a="1",b="2"`, sorted), `value`.

    Raises:
        BenchError: the scraper did not write this file.
    """
    scrapes: list[tuple[int, str, float, str | None, bool]] = []
    elapsed: list[float] = []
    seen: set[tuple[int, str]] = set()
    sizes: list[int] = []
    readers: dict[str, ExpositionReader] = {}
    catalogue: dict[tuple[str, Series], int] = {}
    codes, values = array("I"), array("d")

    def reader_of(endpoint: str) -> ExpositionReader:
        return ExpositionReader(lambda series: catalogue.setdefault((endpoint, series), len(catalogue)))

    for scrape in read_scrapes(path):
        slot, endpoint = scrape["slot"], scrape["endpoint"]
        if (slot, endpoint) in seen:
            raise BenchError(f"{path}: scrape {slot} of {shown(endpoint)} is in it twice; {_DISCARD}.")
        seen.add((slot, endpoint))
        scrapes.append((slot, endpoint, scrape["received"] - start, scrape.get("error"), scrape.get("last", False)))
        elapsed.append(round((scrape["sent"] + scrape["received"]) / 2 - start, 6))
        sizes.append(0)
        if "text" in scrape:
            if endpoint not in readers:
                readers[endpoint] = reader_of(endpoint)
            try:
                new_codes, new_values = readers[endpoint].read(scrape["text"])
            except ExpositionError as error:
                scrapes[-1] = (*scrapes[-1][:3], f"no Prometheus exposition: {error}", scrapes[-1][4])
                continue
            codes.extend(new_codes)
            values.extend(new_values)
            sizes[-1] = len(new_values)
    tried = pl.DataFrame(scrapes, schema=SCRAPE_SCHEMA, orient="row")
    at = pl.Series(range(len(sizes)), dtype=pl.UInt32)
    row = pl.select(at.repeat_by(pl.Series(sizes, dtype=pl.UInt32)).explode(empty_as_null=False)).to_series()
    series = pl.DataFrame(
        [(endpoint, name, labels) for endpoint, (name, labels) in catalogue],
        schema=["endpoint", "name", "labels"],
        schema_overrides=TELEMETRY_SCHEMA,
        orient="row",
    )[pl.Series(codes, dtype=pl.UInt32)]
    samples = series.with_columns(
        scrape=tried["scrape"].gather(row),
        elapsed_s=pl.Series(elapsed, dtype=pl.Float64).gather(row),
        value=pl.Series(values, dtype=pl.Float64),
    )
    return tried, samples.select(*TELEMETRY_SCHEMA)


def wide_table(telemetry: pl.DataFrame) -> pl.DataFrame:
    """The study's form: one row a scrape, `elapsed_s` first, then one column a series; the union of all series seen.

    A series that one scrape lacks is null there. Where there are several endpoints, the series carry theirs.
    """
    series = pl.when(pl.col("labels") == "").then("name").otherwise(pl.concat_str("name", pl.lit("{"), "labels", pl.lit("}")))
    if telemetry["endpoint"].n_unique() > 1:
        series = pl.format("{} {}", "endpoint", series)
    identity = ["endpoint", "name", "labels"]
    # A name is made once a series, not once a sample; and placing each value where it belongs takes a tenth of a pivot's time.
    names = telemetry.select(identity).unique().with_columns(series=series)
    columns = names.select(pl.col("series").unique().sort()).with_row_index("column")
    rows = telemetry.group_by("scrape").agg(pl.col("elapsed_s").min()).sort("scrape").with_row_index("row")
    places = (
        telemetry.join(names.join(columns, on="series"), on=identity, maintain_order="left")
        .join(rows.select("scrape", "row"), on="scrape", maintain_order="left")
        .select("value", place=pl.col("column") * len(rows) + pl.col("row"))
        .reverse()  # of samples that share a place the first one stays, as it is written last
    )
    empty = pl.repeat(None, len(columns) * len(rows), dtype=pl.Float64, eager=True)
    values = empty.scatter(places["place"], places["value"])
    return pl.DataFrame(
        [rows["elapsed_s"], *(values.slice(i * len(rows), len(rows)).alias(name) for i, name in columns.iter_rows())]
    )

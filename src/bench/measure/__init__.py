"""A session: one server, every run that is missing, and nothing left running afterwards."""

from bench.measure.recording import RECORD_FILES, Recording, record_run
from bench.measure.session import measure
from bench.measure.store import Store

__all__ = ["RECORD_FILES", "Recording", "Store", "measure", "record_run"]

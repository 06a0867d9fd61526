"""The runs that are measured, and what is missing of a study."""

from bench.store.state import (
    State,
    kept_facts,
    refresh_sessions,
    run_states,
    unended_searches,
    unmeasured_sessions,
    write_index,
)
from bench.store.store import Store

__all__ = [
    "State",
    "Store",
    "kept_facts",
    "refresh_sessions",
    "run_states",
    "unended_searches",
    "unmeasured_sessions",
    "write_index",
]

"""What is measured: the store that keeps it by digest, what it holds of a study, and packs that carry it to another machine."""

from bench.store.state import State, facts_key, run_states
from bench.store.store import Store

__all__ = ["State", "Store", "facts_key", "run_states"]

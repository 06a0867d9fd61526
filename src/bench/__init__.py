"""Saturate: find where an LLM inference server saturates, and why.

A package is a room, and imports point one way: docs/contributing.md has all rooms with what they hold, the highest first. The data
takes the other way: `study` → `measure` with `load` → `runs` → `parse` → `analysis` → `figures`, `report`.
Nothing here imports snakemake; the rules and scripts under `workflow/` do.
"""

__version__ = "0.1.0"

"""Saturate: find where an LLM inference server saturates, and why.

One package a stage, in the order in which the data flows, and imports point one way along it:
study, models, engine, load, measure, parse, analysis, figures, report, cli.
Nothing here imports snakemake; the rules and scripts under `workflow/` do.
"""

__version__ = "0.1.0"

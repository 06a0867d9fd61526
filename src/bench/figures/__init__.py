"""Figures: each a function from the results to an Altair chart, in a file of its own under `charts/`."""

from bench.figures.results import Results, figure_names

__all__ = ["Results", "figure_names"]

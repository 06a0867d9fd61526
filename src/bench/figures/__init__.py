"""Figures: each a function from the results to an Altair chart, in a file of its own under `charts/`."""

from bench.figures.results import Results
from bench.figures.selection import figure_names, figures_of

__all__ = ["Results", "figure_names", "figures_of"]

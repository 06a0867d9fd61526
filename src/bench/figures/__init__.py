"""Figures: each a function from the results to an Altair chart, in a file of its own under `charts/`."""

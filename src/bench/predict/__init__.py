"""Loads that were not measured, predicted by a model of the server that is calibrated on those that were."""

"""Predictions of loads that were not measured, by a model of the server calibrated on those that were."""

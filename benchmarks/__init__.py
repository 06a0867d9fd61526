"""Measurements of Saturate itself, beside the product."""

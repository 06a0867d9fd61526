"""The server's own account of itself: what it exposes, scraped beside the load."""

from bench.telemetry.catalogue import COUNTERS, GAUGES, HISTOGRAMS, SHARES, Catalogue, exposition_names, find_catalogue
from bench.telemetry.scraper import scrape, scraping

__all__ = [
    "COUNTERS",
    "GAUGES",
    "HISTOGRAMS",
    "SHARES",
    "Catalogue",
    "exposition_names",
    "find_catalogue",
    "scrape",
    "scraping",
]

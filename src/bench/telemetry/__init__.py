"""The server's own account of itself: what it exposes, scraped beside the load."""

from bench.telemetry.catalogue import COUNTERS, GAUGES, HISTOGRAMS, METRICS, SHARES, missing_metrics
from bench.telemetry.scraper import scrape, scraping

__all__ = ["COUNTERS", "GAUGES", "HISTOGRAMS", "METRICS", "SHARES", "missing_metrics", "scrape", "scraping"]

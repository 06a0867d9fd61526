"""The scraper as a process: `python -m bench.telemetry INTERVAL FILE URL...`, until its standard input ends."""

import sys

from bench.telemetry.scraper import main

main(*sys.argv[1:])

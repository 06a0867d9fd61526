"""A session while it measures, from the files that it writes anyhow.

`sessions` and `tail` read; `lines` and `panel` draw what they found.
"""

from bench.watch.follow import follow
from bench.watch.sessions import Build, Session, Snapshot, Watcher

__all__ = ["Build", "Session", "Snapshot", "Watcher", "follow"]

"""Access logs of known truth."""

import json
import re
import shlex

import numpy as np

from bench.beside.traffic import log as logs
from bench.beside.traffic.log import Log
from bench.errors import BenchError

HEAD = "timestamp,prompt_tokens,completion_tokens\n"


def written(folder, content, name="log.csv"):
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(file)


def arrivals(log):
    return log.arrival_s.round(6).tolist()


def planted(moments, resolution_s=0.0):
    """A log of arrivals alone."""
    moments = np.asarray(moments, dtype=float)
    if resolution_s:
        moments = np.floor(moments / resolution_s) * resolution_s
    ones = np.ones(len(moments), dtype=np.int64)
    return Log("x", len(ones), {}, moments - moments[0], ones, ones)


def gamma(shape, count, seed):
    return 100 + np.cumsum(np.random.default_rng([seed, count]).gamma(shape, 2.0 / shape, count))


def jsonl(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def read_log(path, given=None, **options):
    """A log; where its columns have to be named, with the line that is given for it, as a user copies it."""
    try:
        return logs.read_log(path, given=given, **options)
    except BenchError as error:
        line = re.search(r"Perhaps: --columns (.+?)\. Counts", str(error))
        if line is None:
            raise
        (columns,) = shlex.split(line[1])
        guessed = dict(pair.split("=", 1) for pair in columns.split(","))
        return logs.read_log(path, given=guessed | (given or {}), **options)

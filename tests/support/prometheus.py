"""A real Prometheus that holds planted series."""

import shutil
import socket
import subprocess
import time
from contextlib import contextmanager

import polars as pl
import pytest
import requests

from bench.beside.production.drifted.served import SAMPLES


def samples(*series):
    """Args: series: name, labels, and its values each 10 s; None where a scrape is missing."""
    rows = [
        ("x", 10.0 * i, name, labels, float(value))
        for name, labels, values in series
        for i, value in enumerate(values)
        if value is not None
    ]
    return pl.DataFrame(rows, schema=SAMPLES, orient="row")


PROMETHEUS = shutil.which("prometheus") and shutil.which("promtool")
BEGIN = 1_795_000_000  # of the planted hour (s since 1970)


def open_metrics(table):
    """Planted samples as promtool loads them."""
    lines = []
    for (name,), group in table.sort("name", "labels", "at_s").group_by("name", maintain_order=True):
        rows = group.select("labels", "at_s", "value").rows()
        lines += [f"# TYPE {name} unknown", *(f"{name}{{{labels}}} {value} {BEGIN + at:.3f}" for labels, at, value in rows)]
    return lines


@contextmanager
def prometheus(folder, lines):
    """A Prometheus that holds these series; its address."""
    if not PROMETHEUS:
        pytest.fail("prometheus is not installed: apt-get install prometheus")
    (folder / "planted.txt").write_text("\n".join([*lines, "# EOF\n"]))
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "planted.txt", "data"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (folder / "prometheus.yml").write_text("{}")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = ["prometheus", "--config.file", "prometheus.yml", "--storage.tsdb.path", "data", "--web.listen-address", address]
    command += ["--storage.tsdb.retention.time", "100y"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        for _ in range(200):
            try:
                if requests.get(f"http://{address}/-/ready", timeout=1).ok:
                    break
            except requests.ConnectionError:
                pass
            time.sleep(0.05)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait()

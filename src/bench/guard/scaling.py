"""When Kubernetes starts another instance: a ScaledObject of KEDA, which makes a HorizontalPodAutoscaler of it."""

from __future__ import annotations

import json
import math
import re

import yaml

from bench.axes import CONCURRENCY
from bench.errors import shown_share
from bench.export.comments import comment
from bench.guard.measured import Measured
from bench.guard.rules import records
from bench.guard.series import LOADS

_FILLED = 0.8  # load of an instance ÷ lower end of C_max's interval; convention: the most that `bench fleet` wants at a peak


def scaled_object(measured: Measured) -> tuple[str | None, list[str]]:
    """A ScaledObject by the load that the study's limit is counted in, averaged over instances.

    Source: keda.sh, the scaler `prometheus`; its `threshold` is the value of one instance (`AverageValue`).
    """
    low, unit = measured.low, measured.point["unit"]
    if not measured.found or low is None:
        return None, [f"No keda.yaml: {measured.no_low if measured.found else 'no limit was found'}."]
    recorded, _ = records(measured)
    series = LOADS.get(measured.axis or "")
    if series not in {rule["record"] for rule in recorded}:
        return None, [f"No keda.yaml: {measured.engine or 'the server'} does not show {unit}."]
    admitted = measured.limits.admission if measured.limits and measured.axis == CONCURRENCY else None
    # Behind a proxy that admits fewer, an instance never shows more.
    sustained = min(low, measured.point["c_max"], math.inf if admitted is None else admitted)
    target = _FILLED * sustained / max(1, measured.workers)
    name = re.sub(r"[^a-z0-9]+", "-", measured.deployment.lower()).strip("-")[:50].strip("-") or "model"
    content = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": f"saturate-{name}"},
        "spec": {
            "scaleTargetRef": {"name": "CHANGE-ME"},
            "minReplicaCount": 1,
            "triggers": [
                {
                    "type": "prometheus",
                    "metricType": "AverageValue",
                    "metadata": {
                        "serverAddress": "http://CHANGE-ME:9090",
                        "query": f"sum({series}{{job={json.dumps(measured.deployment)}}})",
                        "threshold": f"{target:.3g}",
                    },
                }
            ],
        },
    }
    what = f"each of {measured.workers} workers" if measured.workers else "one instance"
    notes = [
        f"A ScaledObject of KEDA. {measured.limit_text}.",
        f"The threshold is {shown_share(_FILLED)} of what {what} is established to sustain, in {unit}: the rest is for the "
        "time that a new instance takes to start. It needs the rules of rules.yaml.",
        *(
            [
                f"Limits of rules.yaml are those of {measured.workers} workers: with others its alerts on the load and the queue "
                "are silent, and SaturateFleetSize (info) says so. Measure the fleet with other numbers, too."
            ]
            if measured.workers
            else []
        ),
        "CHANGE-ME: the Deployment, and the address of Prometheus.",
    ]
    return comment(notes) + yaml.safe_dump(content, sort_keys=False), []

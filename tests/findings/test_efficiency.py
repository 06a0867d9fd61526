"""What a fleet sustains against as many times what one replica does: planted, with how often its interval holds."""

import json
from dataclasses import replace

import numpy as np
import pytest

from bench.analysis.capacity import operating_points
from bench.analysis.efficiency import Efficiency, efficiencies
from bench.study import Slo
from bench.words.workers import efficiency
from tests.support.planted import steady_row, summary_row, summary_rows

SLO = Slo("ttft", "p90", 1.0)
LEVELS = [2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32]


def curve(deployment, limit, replicas, random, levels=LEVELS, **settings):
    """Runs of a closed loop of which 10 % of the requests are late at `limit`, more above it and fewer below."""
    row = summary_row(
        deployment=deployment, workload="w", family="w", model="m", engine="e", axis="concurrency", repeat=1, turns=1, valid=True,
        counts_valid=True, telemetry_valid=True, replicas=replicas, max_num_seqs=8,
        **{"router": "haproxy" if replicas > 1 else None, **settings},
    )  # fmt: skip
    runs = []
    for repeat in (1, 2):
        for level in levels:
            speed = random.normal(0.0, 0.03)  # of a run
            late = 0.1 * np.exp(6.0 * (np.log(level / limit) + speed))
            slow = int(random.binomial(400, min(0.95, late)))
            runs.append({**steady_row(row, level, slow=slow), "repeat": repeat, "run": f"{deployment}-{level}-{repeat}"})
    return runs


def made(seed, *, true=0.9, one=9.0, replicas=2, levels=LEVELS):
    random = np.random.default_rng(seed)
    rows = curve("one", one, 1, random) + curve("two", true * replicas * one, replicas, random, levels=levels)
    return summary_rows(rows)


def test_a_fleet_is_held_against_one_replica_behind_its_own_router():
    random = np.random.default_rng(0)
    alone = [
        curve(name, 9.0, 1, random, router=router) for name, router in (("bare", None), ("h", "haproxy"), ("v", "vllm-router"))
    ]
    fleets = [curve(f"two-{router}", 16.0, 2, random, router=router) for router in ("vllm-router", "haproxy", "sglang-router")]
    runs = [row for rows in (*alone, *fleets) for row in rows]
    assert {each.fleet: each.one for each in efficiencies(summary_rows(runs), [SLO])} == {
        "two-vllm-router": "v", "two-haproxy": "h", "two-sglang-router": "h",
    }  # fmt: skip


def test_the_interval_holds_the_planted_efficiency():
    for seed in range(2):
        (found,) = efficiencies(made(seed), [SLO])
        assert found.low < 0.9 < found.high < found.low + 0.5, seed


@pytest.mark.long(part="truth")
def test_the_interval_holds_the_planted_efficiency_as_often_as_it_says():
    found = [efficiencies(made(seed), [SLO])[0] for seed in range(20)]
    held = [each.low is not None and each.high is not None and each.low <= 0.9 <= each.high for each in found]
    assert sum(held) >= 17  # of 20 at 95 %: fewer have a probability of 1.6 %
    assert np.median([each.value for each in found]) == pytest.approx(0.9, abs=0.05)
    assert np.median([each.high - each.low for each in found]) < 0.4


def test_a_fleet_that_no_load_limits_has_a_lower_end_alone():
    (found,) = efficiencies(made(1, levels=[2, 4, 6, 8]), [SLO])
    assert found.value is None
    assert found.high is None
    assert ("at least" if found.low else "not known") in efficiency(found)


def of_two_classes(row, missing):
    """The run with two classes of requests; Args: missing: which of its answers have no TTFT, by class and load."""
    names = ("chat", "batch")
    judged = [{**each, "request_class": names[i % 2]} for i, each in enumerate(row["judged"])]
    judged = [{**each, "ttft": None} if missing(each["request_class"], row["level"]) else each for each in judged]
    return {**row, "classes": json.dumps({name: {} for name in names}), "judged": judged}


def test_of_a_class_whose_latency_was_not_measured_nothing_is_said():
    """As C_max of the same runs: there is none where an SLO cannot be judged."""
    for missing, known in (
        (lambda name, load: False, True),  # noqa: ARG005
        (lambda name, load: name == "batch", True),  # noqa: ARG005
        (lambda name, load: name == "chat", False),  # noqa: ARG005
        (lambda name, load: name == "chat" and load == 8, False),
        (lambda name, load: True, False),  # noqa: ARG005
    ):
        rows = [of_two_classes(row, missing) for row in made(2).to_dicts()]
        slo = replace(SLO, request_class="chat")
        (found,) = efficiencies(summary_rows(rows), [slo])
        assert (found.low is not None) == known, missing
        assert (set(operating_points(summary_rows(rows), [slo])["kind"]) == {"unjudged"}) != known, missing


def test_only_what_differs_in_nothing_else_is_compared():
    random = np.random.default_rng(0)
    rows = curve("one", 9.0, 1, random, prefix_caching=True) + curve("two", 16.0, 2, random, prefix_caching=False)
    assert efficiencies(summary_rows(rows), [SLO]) == []
    assert efficiencies(summary_rows(curve("two", 16.0, 2, random)), [SLO]) == []
    # Two replicas on two nodes are twice one on one of them, and not twice a server that spreads over both.
    for nodes, found in ((1, 1), (2, 0)):
        rows = curve("one", 9.0, 1, random, nodes=nodes) + curve("two", 16.0, 2, random, nodes=2)
        assert len(efficiencies(summary_rows(rows), [SLO])) == found


def test_in_words():
    known = Efficiency("w", "two", "one", 2, 0.93, 0.85, 1.01)
    assert efficiency(known) == "two, w: 2 replicas sustain 93 % (85 % to 101 %) of 2 times what one sustains."
    assert "at least 85 % of 2 times" in efficiency(Efficiency("w", "two", "one", 2, None, 0.85, None))
    assert "not known" in efficiency(Efficiency("w", "two", "one", 2, None, None, None))

"""How many requests a level takes for its SLOs, by hand."""

from types import SimpleNamespace

from bench.study.plan import Plan
from bench.study.precision import auto_lines, enough_requests, requests_for, thin_levels, with_requests
from bench.study.read import load_config
from bench.study.slo import parse_slo
from bench.workloads.workload import Workload

P99, P90 = parse_slo("ttft_p99=1s"), parse_slo("tpot_p90=50ms")


def test_requests_of_a_percentile_are_those_of_its_interval():
    """shareⁿ ≤ 2.5 % for the first time."""
    for slo, requests in (("ttft_p50=1s", 6), ("ttft_p90=1s", 36), ("ttft_p95=1s", 72), ("ttft_p99=1s", 368)):
        share = parse_slo(slo).share
        assert share**requests <= 0.025 < share ** (requests - 1), slo
        assert requests_for(parse_slo(slo)) == requests, slo


def test_the_strictest_percentile_decides():
    assert enough_requests(workload(), [P90, P99]) == enough_requests(workload(), [P99]) > enough_requests(workload(), [P90])
    assert enough_requests(workload(), []) == 0


def test_what_auto_comes_to_is_said_before_anything_is_measured(content):
    arrival = {"arrival": "closed", "prompt_tokens": 16, "output_tokens": 33, "num_requests": "auto"}
    fixed = {"deployment": "a", "workload": "fixed", "concurrency": [1]}
    for slos, more, ladder, line in (
        (["ttft_p90=1s", "tpot_p90=50ms"], {}, {"concurrency": [2, 8, 32]},
         "90 a run at 2, 8; 160 a run at 32"),  # 45 + 12 + 5 turnovers
        (["e2e_p90=10s"], {}, {"concurrency": [9], "repeats": 2},
         "45 a run at 9"),
        (["ttft_p90=1s"], {}, {"concurrency": [9]}, "90 a run at 9"),
        (["ttft_p90=1s"], {"num_requests": None}, {"concurrency": [9]}, "90 a run at 9"),
        (["ttft_p90=1s"], {"arrival": "poisson"}, {"request_rate": [1.0, 9.0]},
         "90 a run at 1, 9"),
        (["e2e_p90=10s"], {"turns": {"count": 2, "new_tokens": 8, "think_s": 5.0}}, {"users": [45]},
         "225 a run at 45"),
    ):  # fmt: skip
        content["workloads"] = {"chat": {**arrival, **more}, "fixed": {**arrival, "num_requests": 99}}
        content["study"]["ladders"] = [{"deployment": "a", "workload": "chat", **ladder}, fixed]
        content["decision"] = {"slo": slos}
        assert auto_lines(Plan.of(load_config(content, source="t"))) == [f"chat: `num_requests: auto` is {line}"]


def workload(**more):
    return Workload.model_validate(
        {"arrival": "closed", "prompt_tokens": 16, "output_tokens": 8, "num_requests": "auto", **more}
    )


def test_automatic_requests_by_hand():
    for level, repeats, slos, requests in (
        (4, 1, [P99], 920),  # 1.5 · 368 / 0.6
        (4, 2, [P99], 460),
        (4, 3, [P99], 307),  # 306.7
        (4, 1, [P90], 90),
        (20, 1, [P90], 100),  # five times what is in flight
        (4, 1, [], 250),  # 1.5 · 100 / 0.6
    ):
        assert with_requests(workload(), level, repeats, slos).num_requests == requests, (level, repeats, slos)
    assert with_requests(workload(arrival="poisson"), 20, 1, [P90]).num_requests == 90  # which has no turnovers
    assert with_requests(workload(num_requests=7), 20, 1, [P90]).num_requests == 7
    # Bursts tell less: the gaps' variance ÷ mean² is 1 ÷ the shape, so it takes four times 1.5 · 36 / 0.6 at a quarter.
    for burstiness, requests in ((0.25, 360), (0.5, 180), (1.0, 90), (4.0, 90)):
        gamma = workload(arrival="gamma", burstiness=burstiness)
        assert with_requests(gamma, 20, 1, [P90]).num_requests == requests, burstiness


def run(level, arrival="poisson", name="chat", deployment="a", **more):
    result = workload(arrival=arrival, **more)
    return SimpleNamespace(workload=result, workload_name=name, level=level, deployment=SimpleNamespace(name=deployment))


def test_a_level_with_too_few_requests_is_named():
    for more, repeats, count in (
        ({"num_requests": 59}, 1, 59),
        ({"num_requests": 60}, 1, None),  # 36 of them lie in the window
        ({"num_requests": 29}, 2, 58),
        ({"num_requests": 30}, 2, None),
        ({"num_requests": None, "duration_s": 14.0}, 1, 56),  # four a second
        ({"num_requests": None, "duration_s": 15.0}, 1, None),
        ({"num_requests": 19, "turns": {"count": 3, "new_tokens": 4}}, 1, 57),
        ({"num_requests": 20, "turns": {"count": 3, "new_tokens": 4}}, 1, None),
        ({"num_requests": None, "duration_s": 4.5, "turns": {"count": 3, "new_tokens": 4}}, 1, 54),
    ):
        lines = thin_levels([run(4.0, **more)] * repeats, [P90])
        assert len(lines) == (count is not None), more
        for line in lines:
            assert line.startswith(f"chat: too few requests to show that {P90.name} is met, so C_max may get no lower bound.")
            assert f"Each load needs 60 over all repeats, and at 4 requests/s it has {count} or more. Raise" in line


def test_a_level_of_bursty_arrivals_takes_more():
    bursty = {"arrival": "gamma", "burstiness": 0.5}
    (line,) = thin_levels([run(4.0, **bursty, num_requests=119)], [P90])
    assert "Each load needs 120 over all repeats, and at 4 requests/s it has 119 or more." in line  # twice the 60 of Poisson's
    assert thin_levels([run(4.0, **bursty, num_requests=120)], [P90]) == []


def test_workloads_that_lack_the_same_are_named_in_one_line_and_bursts_never():
    few = [
        run(1.0, num_requests=5),
        run(2.0, num_requests=5),
        run(1.0, num_requests=5, name="code"),
        run(1.0, num_requests=99, name="x"),
    ]
    (line,) = thin_levels(few[:2], [P90, P99])
    assert "at 1, 2 requests/s it has 5 or more. Raise" in line  # all of its levels
    (line,) = thin_levels(few, [P90, P99])
    assert line.startswith(f"chat, code, x: too few requests to show that {P99.name} is met")
    assert "Each load needs 614 over all repeats. Raise" in line  # 368 / 0.6
    assert thin_levels([run(1.0, "burst", num_requests=None)], [P90]) == thin_levels(few, []) == []

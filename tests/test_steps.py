"""An engine's steps, from stamps of tokens whose steps are planted: 4 ms, and 1 ms more a prompt token and a running request."""

import numpy as np
import polars as pl
import pytest

from bench.parse.steps import step_figures

SCHEMA = {"token_times_s": pl.List(pl.Float64), "prompt_asked": pl.Int64}
NOTHING = {"steady_steps": None, "steady_step_s": None, "steady_prefill_share": None}


def answers(*rows):
    """Answered requests, each of the moments of its tokens and its prompt's length."""
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def engine(steps=100, *, pause_after=None, pause_s=0.0, at=0.0, each_s=0.001, prompt_s=0.001):
    """Requests of 10 and 7 tokens in turn, one every five steps, with prompts of 20 tokens; and the planted cost of the steps.

    A step takes 4 ms, `each_s` more a running request and `prompt_s` more a prompt token.

    A step gives each running request a token; the newest requests' stamps come 0.3 ms before the oldest's.

    Returns:
        Rows of `answers`; time of the counted steps (s), their prompt tokens and their mean number of requests.
    """
    tokens = {begin: range(begin, begin + (10 if begin % 2 == 0 else 7)) for begin in range(0, steps, 5)}
    stamps = {begin: [] for begin in tokens}
    took, prompts, running = [], 0, []
    for step in range(steps):
        here = [begin for begin, own in tokens.items() if step in own]
        took.append(
            0.004 + each_s * len(here) + (20 * prompt_s if step in tokens else 0) + (pause_s if step == pause_after else 0)
        )
        at += took[-1]
        prompts += 20 * (step in tokens)
        running.append(len(here))
        for begin in here:
            stamps[begin].append(at if begin == here[0] else at - 0.0003)
    # The first step has none before it, so its length is not known.
    return [(times, 20) for times in stamps.values()], sum(took[1:]), prompts - 20, np.mean(running[1:])


def test_the_steps_and_what_prompts_take_of_them():
    rows, seconds, prompts, running = engine()
    result = step_figures(answers(*rows), 0.0, 10.0)
    assert result["steady_steps"] == 99
    assert result["steady_prefill_share"] == pytest.approx(0.001 * prompts / seconds)
    assert result["steady_step_s"] == pytest.approx(0.004 + 0.001 * running)


def test_only_steps_between_the_two_moments_count():
    rows, *_ = engine()
    ends = sorted(
        {max(time for times, _ in rows for time in times if abs(time - each) < 0.001) for times, _ in rows for each in times}
    )
    result = step_figures(answers(*rows), ends[20], ends[60])
    assert result["steady_steps"] == 40


@pytest.mark.parametrize(("medians", "steps"), [(19.4, 99), (20.6, 98)])
def test_a_step_of_more_than_twenty_medians_is_a_pause(medians, steps):
    """The median step is one of two requests without a prompt: 6 ms."""
    rows, *_ = engine(pause_after=43, pause_s=(medians - 1) * 0.006)
    assert step_figures(answers(*rows), 0.0, 10.0)["steady_steps"] == steps


def test_an_idle_server_makes_no_step():
    before, *_ = engine(50)
    end = max(time for times, _ in before for time in times)
    after, *_ = engine(50, at=end + 0.02)
    assert step_figures(answers(*before, *after), 0.0, 10.0)["steady_steps"] == 2 * 49


def test_whole_answers_have_no_steps():
    rows, *_ = engine()
    expected = step_figures(answers(*rows), 0.0, 10.0)
    whole = [([0.1 + 0.0131 * i], 500) for i in range(20)]
    assert step_figures(answers(*rows, *whole), 0.0, 10.0) == expected
    # Two tokens are of two steps, whose order is told by their other requests as well.
    first = min(rows[0][0])
    pair = ([first, rows[0][0][1]], 20)
    assert step_figures(answers(*rows, pair), 0.0, 10.0)["steady_step_s"] != expected["steady_step_s"]


def test_fewer_than_thirty_steps_tell_nothing():
    times = [0.01 * (i + 1) for i in range(31)]
    result = step_figures(answers((times, 8)), 0.0, 1.0)
    assert result == {"steady_steps": 30, "steady_step_s": pytest.approx(0.01), "steady_prefill_share": 0}
    assert step_figures(answers((times[:30], 8)), 0.0, 1.0) == NOTHING
    assert step_figures(answers(), 0.0, 1.0) == NOTHING


def test_tokens_that_all_come_at_once_tell_nothing():
    """As behind a proxy that buffers."""
    assert step_figures(answers(*[([0.5] * 40, 8)] * 3), 0.0, 1.0) == NOTHING


def test_more_requests_make_no_step_shorter_and_nor_do_prompts():
    """Without a slope of requests, a step without its prompts is what those that have none take, here 80 with 129 requests."""
    rows, *_ = engine(each_s=-0.0005)
    assert step_figures(answers(*rows), 0.0, 10.0)["steady_step_s"] == pytest.approx(0.004 - 0.0005 * 129 / 80)
    rows, *_ = engine(prompt_s=-0.0001)
    assert step_figures(answers(*rows), 0.0, 10.0)["steady_prefill_share"] == 0

"""Percentiles of the last seconds."""

import random

import pytest

from gpu_stages.loop_figures import LoopFigures
from gpu_stages.spread import Spread

S = 1_000_000


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_percentile_is_at_most_an_eighth_too_large(seed: int) -> None:
    chance = random.Random(seed)
    values = [int(chance.lognormvariate(7, 2)) for _ in range(5000)]
    spread = Spread()
    for value in values:
        spread.add(value, S)
    told = spread.figures("x", "_us", S)
    for name, share in (("x_p50_us", 0.5), ("x_p95_us", 0.95)):
        true = sorted(values)[int(share * len(values))]
        assert true * 0.98 <= told[name] <= true * 1.14 + 1
    assert told["x_max_us"] == max(values)


def test_small_numbers_are_exact() -> None:
    spread = Spread()
    for value in (1, 1, 2, 3, 8):
        spread.add(value, S)
    assert spread.figures("batch", "", S) == {"batch_p50": 2, "batch_p95": 8, "batch_max": 8}


def test_what_is_long_ago_is_forgotten() -> None:
    spread = Spread(window_us=10 * S)
    spread.add(500, 20 * S)
    assert spread.figures("x", "", 25 * S)["x_max"] == 500
    spread.add(5, 31 * S)
    assert spread.figures("x", "", 32 * S)["x_max"] == 500, "one window ago"
    assert spread.figures("x", "", 42 * S)["x_max"] == 5
    assert spread.figures("x", "", 99 * S) == {"x_p50": 0, "x_p95": 0, "x_max": 0}


def test_any_value_has_a_bucket() -> None:
    spread = Spread()
    for value in (-5, 0, 7, 8, 15, 16, 1 << 39, 1 << 60):
        spread.add(value, S)
    assert spread.figures("x", "", S)["x_max"] == 1 << 60


def test_the_loop_s_figures_have_their_names() -> None:
    figures = LoopFigures()
    figures.queued(3, S)
    figures.began(-100, S)
    figures.began(250, S)
    figures.processed(4, 800, S)
    told = figures.figures(S)
    assert (told["lateness_p50_us"], told["lateness_max_us"]) == (0, 250), "early is not late"
    assert (told["queue_max"], told["batch_max"], told["message_max_us"]) == (3, 4, 200)

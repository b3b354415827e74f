"""The noise of a measured rate, and the mix of classes of late."""

from __future__ import annotations

import random

import pytest

from adaptive_gamma.routing import ClassMix
from adaptive_gamma.routing.rate_noise import RateNoise


def noise_after(looks: int, spread: float, seed: int = 1) -> float:
    draw, noise = random.Random(seed), RateNoise()
    for _ in range(looks):
        noise.saw(2.0 * draw.gauss(1.0, spread), 3.0, 1.0)
    error = noise.relative_error
    assert error is not None
    return error


def test_the_error_is_that_of_a_mean_and_falls_with_the_looks() -> None:
    for looks in (25, 100, 400):
        assert noise_after(looks, 0.2) == pytest.approx(0.2 / looks**0.5, rel=0.35)
    assert noise_after(400, 0.0) == pytest.approx(0.0, abs=1e-6)


def test_what_was_seen_long_ago_is_forgotten() -> None:
    """The weights of ten minutes' half-life are worth 1,731 looks a second apart, however long they go on."""
    assert noise_after(20_000, 0.2) == pytest.approx(0.2 / 1731**0.5, rel=0.1)


def test_too_few_looks_say_nothing() -> None:
    noise = RateNoise()
    for _ in range(4):
        noise.saw(1.0, 1.0, 1.0)
    assert noise.relative_error is None
    noise.saw(1.0, 1.0, 1.0)
    noise.saw(1.0, 1.0, 1.0)
    assert noise.relative_error == pytest.approx(0.0, abs=1e-6)


def test_short_looks_weigh_little_and_a_load_that_changes_is_no_noise() -> None:
    draw, noise = random.Random(2), RateNoise()
    for second in range(1000):
        if second % 2:
            noise.saw(draw.choice((0.0, 2.0)), 1.0, 1.0)
        else:
            predicted = draw.uniform(100.0, 1000.0)
            noise.saw(0.9 * predicted, predicted, 1.0)
    error = noise.relative_error
    assert error is not None
    assert error < 1e-3


def test_the_mix_halves_with_each_quarter_of_its_window() -> None:
    mix = ClassMix(60.0)
    assert mix.weights == {}
    mix.saw({"structured": 4}, 100.0)
    mix.saw({"chat": 3}, 115.0)
    assert mix.weights == {"structured": pytest.approx(2.0), "chat": 3}
    mix.window_s = 4.0
    mix.saw({}, 215.0)
    assert mix.weights == {}

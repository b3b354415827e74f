from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.roofline import (
    CaptureSizes,
    Combine,
    LinearStep,
    ModelShare,
    PlainPoolStep,
    RooflineStep,
    StepTime,
    gqa_kv_bytes_per_token,
    largest_captured_gamma,
    mla_kv_bytes_per_token,
)

from .article import CONTEXT, article_step

batches = st.integers(1, 2048)
widths = st.integers(1, 17)
contexts = st.integers(0, 65_536)


def llama_8b(combine: Combine = 2.0, capture: CaptureSizes | None = None, launch: float = 0.0) -> RooflineStep:
    return RooflineStep(
        weight_bytes=16.06e9,
        flops_per_token=16.06e9,
        kv_bytes_per_token=131_072,
        bandwidth=3.35e12,
        compute=989e12,
        combine=combine,
        launch_seconds=launch,
        capture=capture,
    )


STEPS: list[StepTime] = [
    article_step(),
    llama_8b(),
    llama_8b(capture=CaptureSizes((1, 2, 4, 8, 16, 32, 64, 128, 256, 512))),
    LinearStep(0.0206, 1.05e-4, 62.6e-9),
    PlainPoolStep(LinearStep(0.0206, 1.05e-4)),
    PlainPoolStep(llama_8b(), kv_read_once=True),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda s: type(s).__name__)
@given(batch=batches, width=widths, context=contexts)
def test_more_work_never_takes_less_time(step: StepTime, batch: int, width: int, context: int) -> None:
    base = step.seconds(batch, width, context)
    slack = 1e-12
    assert base > 0
    assert step.seconds(batch + 1, width, context) >= base - slack
    assert step.seconds(batch, width + 1, context) >= base - slack
    assert step.seconds(batch, width, context + 100) >= base - slack
    assert step.seconds(batch, width, context, 256) >= base - slack


@pytest.mark.parametrize("step", STEPS, ids=lambda s: type(s).__name__)
def test_arrays_broadcast_and_numbers_give_floats(step: StepTime) -> None:
    grid = step.seconds(np.asarray([1, 8, 64])[:, None], np.asarray([1, 4]), 2048)
    assert grid.shape == (3, 2)
    one = step.seconds(8, 4, 2048)
    assert isinstance(one, float)
    assert grid[1, 1] == one


@given(batches, widths, contexts, st.floats(1.0, 50.0))
def test_p_norm_lies_between_maximum_and_sum(batch: int, width: int, context: int, power: float) -> None:
    largest = llama_8b("max").seconds(batch, width, context)
    total = llama_8b(1.0).seconds(batch, width, context)
    value = llama_8b(power).seconds(batch, width, context)
    assert largest * (1 - 1e-12) <= value <= total * (1 + 1e-12)


@given(batches, widths, contexts)
def test_p_norm_tends_to_the_maximum(batch: int, width: int, context: int) -> None:
    largest = llama_8b("max").seconds(batch, width, context)
    distances = [llama_8b(p).seconds(batch, width, context) - largest for p in (1.0, 2.0, 8.0, 64.0, 4096.0)]
    assert all(a >= b - 1e-15 for a, b in pairwise(distances))
    assert distances[-1] <= 2e-4 * largest
    assert llama_8b(math.inf).seconds(batch, width, context) == largest


def test_p_norm_of_equal_terms() -> None:
    step = RooflineStep(1e9, 1e9, 0, 1e12, 1e12, 1.0, 1.0, combine=2.0)
    assert step.seconds(1, 1, 0) == pytest.approx(math.sqrt(2) * 1e-3)


def test_memory_and_compute_bound_ends() -> None:
    step = article_step()
    terms = step.terms(CONTEXT)
    assert step.seconds(1, 1, CONTEXT) == pytest.approx(terms.weight_seconds + terms.kv_seconds_per_sequence)
    assert step.seconds(1000, 8, CONTEXT) == pytest.approx(8000 * terms.token_seconds)


def test_prefill_tokens_count_as_computed_tokens() -> None:
    step = article_step()
    assert step.seconds(100, 1, 0, 700) == step.seconds(100, 8, 0)
    linear = LinearStep(0.02, 1e-4)
    assert linear.seconds(10, 1, 0, 2048) == pytest.approx(0.02 + 1e-4 * 2058)


def test_launch_time_is_added() -> None:
    assert llama_8b(launch=0.001).seconds(4, 1, 100) == pytest.approx(llama_8b().seconds(4, 1, 100) + 0.001)


def test_a_share_of_a_roofline_is_a_smaller_roofline() -> None:
    share = ModelShare(weight=0.04, compute=0.04, kv=0.5)
    small = RooflineStep(0.04 * 54e9, 0.04 * 54e9, 0.5 * 262_144, 3.35e12, 989e12, 0.8, 0.5, "max")
    assert article_step().seconds(64, 7, CONTEXT, share=share) == pytest.approx(small.seconds(64, 7, CONTEXT))


def test_the_published_linear_fits() -> None:
    """Llama-3.1-70B FP8 on H200: 20.6 ms + .105 ms per token + 62.6 ns per KV token."""
    step = LinearStep(0.0206, 1.05e-4, 62.6e-9)
    assert step.seconds(64, 1, 2048) == pytest.approx(0.0206 + 64 * 1.05e-4 + 64 * 2048 * 62.6e-9)
    terms = step.terms(2048)
    assert terms.kv_seconds_per_sequence == pytest.approx(2048 * 62.6e-9)


@given(batches, widths, contexts)
def test_plain_pool_prices_a_linear_server_exactly(batch: int, width: int, context: int) -> None:
    without_kv = LinearStep(0.0206, 1.05e-4)
    assert PlainPoolStep(without_kv).seconds(batch, width, context) == pytest.approx(
        without_kv.seconds(batch, width, context)
    )
    with_kv = LinearStep(0.0206, 1.05e-4, 62.6e-9)
    assert PlainPoolStep(with_kv, kv_read_once=True).seconds(batch, width, context) == pytest.approx(
        with_kv.seconds(batch, width, context)
    )
    assert PlainPoolStep(with_kv).seconds(batch, width, context) == with_kv.seconds(batch * width, 1, context)


@given(batches, widths, contexts)
def test_plain_pool_prices_a_roofline_exactly(batch: int, width: int, context: int) -> None:
    pooled = PlainPoolStep(llama_8b(), kv_read_once=True)
    assert pooled.seconds(batch, width, context) == pytest.approx(llama_8b().seconds(batch, width, context))
    assert pooled.terms(100) == llama_8b().terms(100)


class TestCapture:
    sizes = CaptureSizes((1, 2, 4, 8, 16))

    def test_padding_is_a_staircase(self) -> None:
        assert self.sizes.padded(np.asarray([1, 3, 5, 8, 9, 16, 17])).tolist() == [1, 4, 8, 8, 16, 16, 17]
        assert self.sizes.limit == 16

    def test_padded_tokens_are_paid_for(self) -> None:
        stepped, smooth = llama_8b(1.0, self.sizes), llama_8b(1.0)
        assert stepped.seconds(9, 1, 0) == smooth.seconds(16, 1, 0)
        assert stepped.seconds(16, 1, 0) == smooth.seconds(16, 1, 0)
        assert stepped.seconds(17, 1, 0) == smooth.seconds(17, 1, 0)

    def test_kv_reads_are_not_padded(self) -> None:
        step = RooflineStep(1.0, 1.0, 1e6, 1e12, 1e18, capture=self.sizes, combine="max")
        assert step.seconds(9, 1, 1000) == pytest.approx(9e9 / 0.8e12)

    @pytest.mark.parametrize("bad", [(), (0, 1), (4, 4), (8, 2)])
    def test_sizes_must_rise(self, bad: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match="capture sizes"):
            CaptureSizes(bad)

    @given(st.integers(1, 4096), st.integers(1, 8192))
    def test_largest_gamma_fits_and_the_next_does_not(self, batch: int, limit: int) -> None:
        gamma = largest_captured_gamma(batch, limit)
        assert gamma is not None
        assert gamma == 0 or batch * (gamma + 1) <= limit
        assert batch * (gamma + 2) > limit
        assert largest_captured_gamma(batch, None) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("weight_bytes", 0),
        ("bandwidth", -1),
        ("memory_efficiency", 1.2),
        ("compute_efficiency", 0),
        ("combine", 0.5),
        ("launch_seconds", -1e-3),
        ("kv_bytes_per_token", -1),
    ],
)
def test_impossible_rooflines_name_the_field(field: str, value: float) -> None:
    values: dict[str, Any] = {
        "weight_bytes": 1e9, "flops_per_token": 1e9, "kv_bytes_per_token": 1, "bandwidth": 1e12, "compute": 1e14,
    }  # fmt: skip
    with pytest.raises(ValueError, match=field):
        RooflineStep(**{**values, field: value})


def test_impossible_linear_steps() -> None:
    with pytest.raises(ValueError, match="kv_token_seconds"):
        LinearStep(0.02, 1e-4, -1e-9)
    with pytest.raises(ValueError, match="fixed_seconds"):
        LinearStep(0, 0)


def test_kv_bytes_per_token() -> None:
    assert gqa_kv_bytes_per_token(32, 8, 128) == 131_072
    assert gqa_kv_bytes_per_token(80, 8, 128) == 327_680
    assert gqa_kv_bytes_per_token(64, 8, 128) == 262_144
    assert gqa_kv_bytes_per_token(32, 8, 128, bytes_per_value=1) == 65_536
    assert mla_kv_bytes_per_token(61, 512, 64) == 70_272

"""Mixture of experts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.roofline import LinearStep, ModelShape, ModelShare, MoeStep, RooflineStep, distinct_experts

QWEN3_235B: dict[str, Any] = {
    "_name_or_path": "Qwen3-235B-A22B", "model_type": "qwen3_moe", "num_hidden_layers": 94, "hidden_size": 4096,
    "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 12288,
    "moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1,
    "mlp_only_layers": [], "vocab_size": 151936, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
    "num_key_value_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128, "q_lora_rank": 1536, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "moe_layer_freq": 1, "vocab_size": 129280, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
MIXTRAL_8X7B: dict[str, Any] = {
    "model_type": "mixtral", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "num_local_experts": 8, "num_experts_per_tok": 2,
    "vocab_size": 32000, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip


def moe(**changed: Any) -> MoeStep:
    given: dict[str, Any] = {
        "shared_seconds": 4e-3, "experts_seconds": 7e-3, "active_share": 8 / 128, "token_seconds": 8e-6,
        "exponent": 0.85, "kv_token_seconds": 2e-9,
    }  # fmt: skip
    return MoeStep(**{**given, **changed})


def test_distinct_experts_by_hand() -> None:
    """8 of 128 experts: 8, 15.5, 29.1, 51.6, 82.4 (printed as 1, 1.94, 3.64, 6.45, 10.3 of one token's)."""
    found = distinct_experts(np.asarray([1, 2, 4, 8, 16]), 128, 8)
    assert found / 8 == pytest.approx([1, 1.94, 3.64, 6.45, 10.3], rel=0.01)


@given(st.integers(2, 512), st.integers(1, 8), st.floats(0.3, 1.0), st.integers(1, 100_000))
def test_experts_read_rise_to_all(experts: int, active: int, exponent: float, tokens: int) -> None:
    active = min(active, experts - 1)
    found = float(distinct_experts(tokens, experts, active, exponent))
    assert active * (1 - 1e-9) <= found <= experts * (1 + 1e-12)
    assert distinct_experts(tokens + 1, experts, active, exponent) >= found
    assert distinct_experts(1, experts, active, exponent) == pytest.approx(active)
    assert distinct_experts(tokens, experts, active, exponent) <= distinct_experts(tokens, experts, active) * (1 + 1e-9)


@given(st.integers(1, 2048), st.integers(1, 17), st.integers(0, 65_536), st.sampled_from([1.0, 2.0, "max"]))
def test_more_work_never_takes_less_time(batch: int, width: int, context: int, combine: Any) -> None:
    step = moe(combine=combine)
    base = step.seconds(batch, width, context)
    assert base > 0
    assert step.seconds(batch + 1, width, context) >= base
    assert step.seconds(batch, width + 1, context) >= base
    assert step.seconds(batch, width, context + 100) >= base
    assert step.seconds(batch, width, context, 256) >= base


def test_small_batches_are_the_bad_zone() -> None:
    """Verifying four tokens is dear at one sequence and nearly free where all experts are read anyway."""
    step = moe(kv_token_seconds=0.0)
    small = step.seconds(1, 4, 0) / step.seconds(1, 1, 0)
    large = step.seconds(64, 4, 0) / step.seconds(64, 1, 0)
    assert small > 1.15
    assert moe(token_seconds=0.0).seconds(256, 4, 0) / moe(token_seconds=0.0).seconds(256, 1, 0) < 1.05
    assert large > 1.0


def test_all_experts_read_is_a_line() -> None:
    step, line = moe(active_share=0.999999), LinearStep(11e-3, 8e-6, 2e-9)
    for batch in (1, 7, 300):
        assert step.seconds(batch, 3, 1000) == pytest.approx(line.seconds(batch, 3, 1000), rel=1e-4)


def test_sizes_give_the_seconds_of_a_roofline_once_all_experts_are_read() -> None:
    step = MoeStep.from_sizes(
        shared_bytes=20e9, expert_bytes=200e9, experts=128, active_experts=8, flops_per_token=44e9,
        kv_bytes_per_token=190_000, bandwidth=8 * 4.8e12, compute=8 * 989e12, memory_efficiency=0.7,
        compute_efficiency=0.6, launch_seconds=1e-3,
    )  # fmt: skip
    dense = RooflineStep(
        220e9, 44e9, 190_000, 8 * 4.8e12, 8 * 989e12, 0.7, 0.6, combine=2.0, launch_seconds=1e-3
    )  # fmt: skip
    assert step.seconds(512, 4, 2000) == pytest.approx(dense.seconds(512, 4, 2000), rel=1e-6)
    assert step.seconds(1, 1, 2000) < 0.3 * dense.seconds(1, 1, 2000)
    terms = step.terms(1000)
    assert terms.token_seconds == pytest.approx(44e9 / (8 * 989e12 * 0.6))
    assert terms.kv_seconds_per_sequence == pytest.approx(190_000 * 1000 / (8 * 4.8e12 * 0.7))


def test_a_share_is_a_smaller_step() -> None:
    step = moe()
    half = step.seconds(8, 2, 500, share=ModelShare(0.5, 0.5, 0.5))
    assert half == pytest.approx(0.5 * step.seconds(8, 2, 500))


@pytest.mark.parametrize(
    ("config", "total", "active"),
    [(QWEN3_235B, 235.09, 22.19), (DEEPSEEK_V3, 671.0, 37.6), (MIXTRAL_8X7B, 46.70, 12.88)],
)
def test_published_parameter_counts(config: dict[str, Any], total: float, active: float) -> None:
    shape = ModelShape.from_hf_config(config)
    assert shape.mixture_of_experts
    assert shape.total_parameters is not None
    assert shape.active_parameters is not None
    assert shape.total_parameters / 1e9 == pytest.approx(total, rel=2e-3)
    assert shape.active_parameters / 1e9 == pytest.approx(active, rel=5e-3)


def test_a_configuration_that_does_not_say_how_many_experts_a_token_uses() -> None:
    shape = ModelShape.from_hf_config({k: v for k, v in QWEN3_235B.items() if k != "num_experts_per_tok"})
    assert shape.mixture_of_experts
    assert shape.experts is None
    assert shape.total_parameters is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("shared_seconds", -1), ("active_share", 0), ("active_share", 1), ("exponent", 0), ("combine", 0.5)],
)
def test_impossible_steps_name_the_field(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        moe(**{field: value})

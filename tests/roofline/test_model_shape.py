"""Model shapes."""

from __future__ import annotations

from typing import Any

import pytest

from adaptive_gamma.roofline import ModelShape

LLAMA_8B: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "hidden_act": "silu",
    "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
    "num_key_value_heads": 128, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128, "q_lora_rank": 1536, "intermediate_size": 18432, "vocab_size": 129280, "n_routed_experts": 256,
}  # fmt: skip


def test_llama_from_its_config() -> None:
    shape = ModelShape.from_hf_config(LLAMA_8B)
    assert shape.parameters == 8_030_261_248
    assert (shape.layers, shape.kv_heads, shape.head_dim) == (32, 8, 128)
    assert not shape.mixture_of_experts


def test_latent_attention_from_its_config() -> None:
    shape = ModelShape.from_hf_config(DEEPSEEK_V3)
    assert shape.kv_bytes_per_token() == 70_272
    assert shape.mixture_of_experts
    assert shape.parameters is None


def test_dense_latent_attention_counts_its_projections() -> None:
    dense = {k: v for k, v in DEEPSEEK_V3.items() if k != "n_routed_experts"}
    attention = 1536 * (7168 + 128 * 192) + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    per_layer = attention + 3 * 7168 * 18432 + 2 * 7168
    assert ModelShape.from_hf_config(dense).parameters == 61 * per_layer + 2 * 129280 * 7168 + 7168


def test_the_language_part_of_a_multimodal_config() -> None:
    shape = ModelShape.from_hf_config({"model_type": "mllama", "text_config": LLAMA_8B, "vision_config": {}})
    assert shape.parameters == 8_030_261_248


def test_tied_embeddings_and_plain_activation() -> None:
    tied = ModelShape.from_hf_config({**LLAMA_8B, "tie_word_embeddings": True})
    assert tied.parameters == 8_030_261_248 - 128256 * 4096
    ungated = ModelShape.from_hf_config({**LLAMA_8B, "hidden_act": "gelu_new"})
    assert ungated.parameters == 8_030_261_248 - 32 * 4096 * 14336


def test_linear_attention_layers_hold_no_kv_cache() -> None:
    kinds = (["linear_attention"] * 3 + ["full_attention"]) * 8
    shape = ModelShape.from_hf_config({**LLAMA_8B, "layer_types": kinds})
    assert shape.attention_layers == 8
    assert shape.kv_bytes_per_token() == 131_072 / 4


def test_sliding_layers_are_counted_in_full() -> None:
    kinds = ["sliding_attention", "full_attention"] * 16
    shape = ModelShape.from_hf_config({**LLAMA_8B, "layer_types": kinds})
    assert shape.sliding_layers == 16
    assert shape.kv_bytes_per_token() == 131_072


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("num_hidden_layers", None, "num_hidden_layers is missing"),
        ("hidden_size", "4096", "hidden_size must be a whole number"),
        ("vocab_size", 0, "vocab_size must be a whole number"),
        ("num_attention_heads", True, "num_attention_heads must be"),
    ],
)
def test_broken_configs_name_the_key(key: str, value: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        ModelShape.from_hf_config({**LLAMA_8B, key: value})

"""Hardware peaks and model shapes."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from adaptive_gamma.roofline import HARDWARE, KNOWN_MODELS, ModelShape, achieved_efficiency, hardware_named, model_named

PEAKS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "measured" / "hardware_peaks.csv"


def test_peaks_equal_the_table_they_come_from() -> None:
    if not PEAKS.is_file():
        pytest.skip(f"the table of peaks is not here ({PEAKS.name})")
    rows = list(csv.DictReader(line for line in PEAKS.read_text().splitlines() if not line.startswith("#")))
    assert len(rows) == len(HARDWARE)
    for row in rows:
        found = hardware_named(row["gpu"].split(" (")[0])
        assert found is not None, row["gpu"]
        assert found.bandwidth == pytest.approx(float(row["hbm_bw_TBs"]) * 1e12)
        assert found.bf16_flops == pytest.approx(float(row["bf16_dense_TF"]) * 1e12)
        assert found.fp8_flops == (pytest.approx(float(row["fp8_dense_TF"]) * 1e12) if row["fp8_dense_TF"] else None)
        assert found.memory_bytes == pytest.approx(float(row["mem_GB"]) * 1e9)


@pytest.mark.parametrize(
    ("asked", "name"), [("h100", "H100 SXM"), ("H100-PCIe", "H100 PCIe"), ("b300 sxm", "B300 SXM")]
)
def test_names_are_forgiving(asked: str, name: str) -> None:
    found = hardware_named(asked)
    assert found is not None
    assert found.name == name
    assert found.source


def test_unknown_hardware() -> None:
    assert hardware_named("TPU v5") is None


def test_without_fp8_units_weights_are_computed_in_bf16() -> None:
    a100, h100 = hardware_named("A100"), hardware_named("H100")
    assert a100 is not None
    assert h100 is not None
    assert a100.flops("fp8") == 312e12
    assert h100.flops("fp8") == 1978e12
    assert achieved_efficiency(h100, "bf16") == (0.80, 0.80)
    assert achieved_efficiency(a100, "fp8") is None
    for hardware in HARDWARE:
        for number_format in ("bf16", "fp8"):
            for value in achieved_efficiency(hardware, number_format) or ():
                assert 0 < value <= 1


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


@pytest.mark.parametrize(
    ("name", "billions", "kv"),
    [
        ("Llama-3.1-8B", 8.03, 131_072),
        ("Llama-3.1-70B", 70.55, 327_680),
        ("Mistral-7B-v0.3", 7.25, 131_072),
        ("Qwen2.5-7B", 7.62, 57_344),
        ("Qwen3-8B", 8.19, 147_456),
        ("Qwen3-32B", 32.76, 262_144),
    ],
)
def test_parameters_and_kv_of_known_models(name: str, billions: float, kv: int) -> None:
    """Parameter counts as the models' cards print them."""
    shape = KNOWN_MODELS[name]
    assert shape.parameters is not None
    assert shape.parameters / 1e9 == pytest.approx(billions, rel=0.001)
    assert shape.kv_bytes_per_token() == kv
    assert shape.kv_bytes_per_token(bytes_per_value=1) == kv / 2


def test_known_models_are_found_under_their_usual_names() -> None:
    for name in ("llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B"):
        assert model_named(name) is KNOWN_MODELS["Llama-3.1-8B"]
    assert model_named("gpt-6") is None


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

"""Shapes of models people ask for by name, restated from their published ``config.json``."""

from __future__ import annotations

from adaptive_gamma.roofline.model_shape import ModelShape

__all__ = ["KNOWN_MODELS", "model_named"]


def _shape(name: str, layers: int, hidden: int, heads: int, kv_heads: int, feed_forward: int, vocabulary: int,
           head_dim: int | None = None) -> ModelShape:  # fmt: skip
    return ModelShape.from_hf_config(
        {
            "_name_or_path": name,
            "num_hidden_layers": layers,
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": head_dim,
            "intermediate_size": feed_forward,
            "vocab_size": vocabulary,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
        }
    )


KNOWN_MODELS: dict[str, ModelShape] = {
    shape.name: shape
    for shape in (
        _shape("Llama-3.1-8B", 32, 4096, 32, 8, 14336, 128256),
        _shape("Llama-3.1-70B", 80, 8192, 64, 8, 28672, 128256),
        _shape("Mistral-7B-v0.3", 32, 4096, 32, 8, 14336, 32768),
        _shape("Qwen2.5-7B", 28, 3584, 28, 4, 18944, 152064),
        _shape("Qwen3-8B", 36, 4096, 32, 8, 12288, 151936, 128),
        _shape("Qwen3-32B", 64, 5120, 64, 8, 25600, 151936, 128),
    )
}
"""Dense models by name; ``-Instruct`` and an organisation in front do not matter."""


def model_named(name: str) -> ModelShape | None:
    """The known model of that name, or None."""
    squeezed = _squeezed(name)
    return next((shape for known, shape in KNOWN_MODELS.items() if _squeezed(known) == squeezed), None)


def _squeezed(name: str) -> str:
    last = name.rsplit("/", 1)[-1].lower().removesuffix("-instruct").removeprefix("meta-")
    return "".join(c for c in last if c.isalnum())

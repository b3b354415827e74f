"""Bytes of KV cache that one token of context takes, over all layers."""

from __future__ import annotations

__all__ = ["gqa_kv_bytes_per_token", "mla_kv_bytes_per_token"]


def gqa_kv_bytes_per_token(layers: int, kv_heads: int, head_dim: int, bytes_per_value: float = 2.0) -> float:
    """Keys and values of grouped-query attention (multi-head where kv_heads = heads): 2 L H_kv d b.

    >>> gqa_kv_bytes_per_token(layers=80, kv_heads=8, head_dim=128)  # Llama-3.1-70B in bf16
    327680.0
    """
    return 2.0 * layers * kv_heads * head_dim * bytes_per_value


def mla_kv_bytes_per_token(layers: int, kv_lora_rank: int, rope_head_dim: int, bytes_per_value: float = 2.0) -> float:
    """The compressed vector and the rotary key of multi-head latent attention: L (rank + rope) b.

    Every tensor-parallel rank holds all of it.

    >>> mla_kv_bytes_per_token(layers=61, kv_lora_rank=512, rope_head_dim=64)  # DeepSeek-V3 in bf16
    70272.0
    """
    return float(layers) * (kv_lora_rank + rope_head_dim) * bytes_per_value

"""The shape of a model, read from its Hugging Face ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from adaptive_gamma.roofline.kv_cache import gqa_kv_bytes_per_token, mla_kv_bytes_per_token

__all__ = ["ExpertShape", "ModelShape"]

_NESTED = ("text_config", "llm_config", "language_config")
_ACTIVE_KEYS = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts")
_EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_UNGATED = frozenset({"gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh", "relu", "relu2"})
_GATED_WITH_GELU = ("gemma",)


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """The routed experts of a mixture of experts."""

    count: int
    """Experts of a layer."""
    active: int
    """Of these, how many a token uses."""
    parameters: float
    """Of all experts of all layers."""
    shared_parameters: float
    """Everything else: attention, embeddings, shared experts, dense layers, routers."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What step times need of a decoder-only transformer."""

    name: str
    layers: int
    attention_layers: int
    """Layers with a KV cache; linear-attention and state-space layers have none."""
    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    parameters: float | None
    """Estimated parameters of a dense model, embeddings included; None for a mixture of experts."""
    kv_lora_rank: int | None = None
    """Size of the compressed KV vector under multi-head latent attention; None otherwise."""
    rope_head_dim: int = 0
    """Size of the rotary key beside it."""
    sliding_layers: int = 0
    """Of ``attention_layers``, those that look back over a window only."""
    experts: ExpertShape | None = None
    """None for a dense model, and for a mixture of experts whose configuration does not say how many a token uses."""

    @property
    def total_parameters(self) -> float | None:
        """All parameters; None where the configuration does not tell."""
        if self.experts is not None:
            return self.experts.parameters + self.experts.shared_parameters
        return self.parameters

    @property
    def active_parameters(self) -> float | None:
        """Parameters that a token uses; None where the configuration does not tell."""
        if self.experts is not None:
            used = self.experts.parameters * self.experts.active / self.experts.count
            return used + self.experts.shared_parameters
        return self.parameters

    @property
    def mixture_of_experts(self) -> bool:
        return self.parameters is None

    def kv_bytes_per_token(self, bytes_per_value: float = 2.0) -> float:
        """KV cache bytes per token of context, all attention layers counted.

        Sliding-window layers are counted like full ones, so this is an upper bound for them beyond their window.
        """
        if self.kv_lora_rank is not None:
            return mla_kv_bytes_per_token(self.attention_layers, self.kv_lora_rank, self.rope_head_dim, bytes_per_value)
        return gqa_kv_bytes_per_token(self.attention_layers, self.kv_heads, self.head_dim, bytes_per_value)

    @classmethod
    def from_hf_config(cls, config: Mapping[str, Any]) -> ModelShape:
        """From a parsed ``config.json``; a multimodal one is read at its language part.

        Raises ValueError that names a key which is missing or not a positive whole number.
        """
        text = config
        for key in _NESTED:
            if isinstance(config.get(key), Mapping):
                text = {**config, **config[key]}
                break
        layers = _whole(text, "num_hidden_layers", "n_layer")
        hidden = _whole(text, "hidden_size", "n_embd")
        heads = _whole(text, "num_attention_heads", "n_head")
        vocabulary = _whole(text, "vocab_size")
        kv_heads = _whole(text, "num_key_value_heads", default=heads)
        latent = _whole(text, "kv_lora_rank", default=0) or None
        rope_dim = _whole(text, "qk_rope_head_dim", default=0) if latent else 0
        head_dim = _whole(text, "head_dim", default=max(hidden // heads, 1))
        types = text.get("layer_types")
        kinds = [str(t) for t in types] if isinstance(types, list) and len(types) == layers else []
        without_cache = sum(1 for kind in kinds if "linear" in kind or "mamba" in kind or "recurrent" in kind)
        attention = (
            _latent_attention(text, hidden, heads, latent, rope_dim)
            if latent
            else hidden * head_dim * (2 * heads + 2 * kv_heads)
        )
        count = next((text[k] for k in _EXPERT_KEYS if isinstance(text.get(k), int) and text[k] > 1), None)
        matrices = 3 if _gated(text) else 2
        tied = bool(text.get("tie_word_embeddings", False))
        outside_mlp = vocabulary * hidden * (1 if tied else 2) + layers * (attention + 2 * hidden) + hidden
        parameters: float | None = None
        experts: ExpertShape | None = None
        if count is None:
            feed_forward = _whole(text, "intermediate_size", "n_inner", default=4 * hidden)
            parameters = float(outside_mlp + layers * matrices * hidden * feed_forward)
        else:
            experts = _experts(text, count, layers, matrices * hidden, hidden, outside_mlp)
        return cls(
            name=str(config.get("_name_or_path") or text.get("model_type") or "unnamed"),
            layers=layers,
            attention_layers=layers - without_cache,
            hidden_size=hidden,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            vocabulary=vocabulary,
            parameters=parameters,
            kv_lora_rank=latent,
            rope_head_dim=rope_dim,
            sliding_layers=sum(1 for kind in kinds if "sliding" in kind or "chunked" in kind),
            experts=experts,
        )


def _experts(
    text: Mapping[str, Any], count: int, layers: int, per_width: int, hidden: int, outside_mlp: int
) -> ExpertShape | None:
    """Routed experts, shared ones, and the layers that have none; None where no key says how many a token uses."""
    active = next((text[k] for k in _ACTIVE_KEYS if isinstance(text.get(k), int)), None)
    if active is None or not 1 <= active < count:
        return None
    dense = _whole(text, "intermediate_size", default=4 * hidden)
    width = _whole(text, "moe_intermediate_size", default=dense)
    shared_width = _whole(text, "shared_expert_intermediate_size", default=0)
    shared_width += _whole(text, "n_shared_experts", default=0) * width
    without = text.get("mlp_only_layers")
    dense_layers = len(without) if isinstance(without, list) else _whole(text, "first_k_dense_replace", default=0)
    every = _whole(text, "decoder_sparse_step", "interleave_moe_layer_step", default=1)
    sparse = (layers - dense_layers) // every
    shared = outside_mlp + sparse * (per_width * shared_width + hidden * count)
    shared += (layers - sparse) * per_width * dense
    return ExpertShape(count, active, float(sparse * count * per_width * width), float(shared))


def _latent_attention(text: Mapping[str, Any], hidden: int, heads: int, rank: int, rope_dim: int) -> int:
    """Parameters of one multi-head latent attention layer."""
    nope_dim = _whole(text, "qk_nope_head_dim")
    value_dim = _whole(text, "v_head_dim")
    query_rank = _whole(text, "q_lora_rank", default=0)
    query_dim = heads * (nope_dim + rope_dim)
    query = query_rank * (hidden + query_dim) if query_rank else hidden * query_dim
    return query + hidden * (rank + rope_dim) + rank * heads * (nope_dim + value_dim) + heads * value_dim * hidden


def _gated(text: Mapping[str, Any]) -> bool:
    activation = str(text.get("hidden_act") or text.get("hidden_activation") or text.get("activation_function") or "")
    if str(text.get("model_type", "")).startswith(_GATED_WITH_GELU):
        return True
    return activation not in _UNGATED


def _whole(text: Mapping[str, Any], *keys: str, default: int | None = None) -> int:
    for key in keys:
        value = text.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            if default is not None and value == 0:
                return default
            raise ValueError(f"{key} must be a whole number >= 1, not {value!r}")
        return value
    if default is None:
        raise ValueError(f"{keys[0]} is missing")
    return default

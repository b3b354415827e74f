"""Tiny models with random weights, made on the spot, in the form that Hugging Face's libraries read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

__all__ = ["make_pair", "make_repeater"]

_HIDDEN, _LAYERS, _HEADS, _INNER = 64, 2, 2, 128
_SPECIALS = ["<s>", "</s>"]
_ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
_VOCABULARY = len(_ALPHABET) + len(_SPECIALS)
_Weights = dict[str, NDArray[np.float32]]


def make_pair(directory: Path, *, noise: float, seed: int = 0) -> tuple[Path, Path]:
    """A target and its drafter: the same random weights with noise on them, so that it guesses some tokens right.

    Args:
        directory: where both are put.
        noise: standard deviation of the noise over that of the weights. 0 drafts what the target says.
        seed: of the weights and the noise.

    Returns:
        The directories of the target and the drafter.
    """
    random = np.random.default_rng(seed)
    weights = _weights(random)
    drafter = {
        name: each if each.ndim == 1 else each + noise * each.std() * random.standard_normal(each.shape, np.float32)
        for name, each in weights.items()
    }
    return _write(directory / "target", weights), _write(directory / "drafter", drafter)


def make_repeater(directory: Path, *, seed: int = 0) -> Path:
    """A target that says its last token again and again: its layers add next to nothing to what goes in."""
    weights = _weights(np.random.default_rng(seed))
    weights = {name: each if each.ndim == 1 else 0.01 * each for name, each in weights.items()}
    weights["model.embed_tokens.weight"] *= 100.0
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    return _write(directory / "repeater", weights)


def _weights(random: np.random.Generator) -> _Weights:
    def matrix(rows: int, columns: int, scale: float) -> NDArray[np.float32]:
        return scale * random.standard_normal((rows, columns), np.float32)

    weights: _Weights = {
        "model.embed_tokens.weight": matrix(_VOCABULARY, _HIDDEN, 1.0),
        "model.norm.weight": np.ones(_HIDDEN, np.float32),
        "lm_head.weight": matrix(_VOCABULARY, _HIDDEN, _HIDDEN**-0.5),
    }
    for layer in range(_LAYERS):
        prefix = f"model.layers.{layer}."
        for name in ("q", "k", "v", "o"):
            weights[f"{prefix}self_attn.{name}_proj.weight"] = matrix(_HIDDEN, _HIDDEN, 2.0 * _HIDDEN**-0.5)
        weights[f"{prefix}mlp.gate_proj.weight"] = matrix(_INNER, _HIDDEN, 2.0 * _HIDDEN**-0.5)
        weights[f"{prefix}mlp.up_proj.weight"] = matrix(_INNER, _HIDDEN, 2.0 * _HIDDEN**-0.5)
        weights[f"{prefix}mlp.down_proj.weight"] = matrix(_HIDDEN, _INNER, 2.0 * _INNER**-0.5)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{name}.weight"] = np.ones(_HIDDEN, np.float32)
    return weights


def _write(directory: Path, weights: _Weights) -> Path:
    directory.mkdir(parents=True)
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": _HIDDEN,
        "intermediate_size": _INNER, "num_hidden_layers": _LAYERS, "num_attention_heads": _HEADS,
        "num_key_value_heads": _HEADS, "head_dim": _HIDDEN // _HEADS, "vocab_size": _VOCABULARY,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
        "bos_token_id": len(_ALPHABET), "eos_token_id": len(_ALPHABET) + 1, "torch_dtype": "float32",
    }  # fmt: skip
    (directory / "config.json").write_text(json.dumps(config))
    _write_safetensors(directory / "model.safetensors", weights)
    tokenizer = Tokenizer(models.BPE(vocab={text: index for index, text in enumerate(_ALPHABET)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(_SPECIALS)
    tokenizer.save(str(directory / "tokenizer.json"))
    template = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    (directory / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": _SPECIALS[0], "eos_token": _SPECIALS[1],
                "model_max_length": 2048, "chat_template": template,
            }
        )
    )  # fmt: skip
    return directory


def _write_safetensors(path: Path, weights: _Weights) -> None:
    """The format: length of a JSON header (8 bytes, little endian), the header, the tensors one after another."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, each in weights.items():
        header[name] = {"dtype": "F32", "shape": list(each.shape), "data_offsets": [start, start + each.nbytes]}
        start += each.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as stream:
        stream.write(len(text).to_bytes(8, "little"))
        stream.write(text)
        for each in weights.values():
            stream.write(np.ascontiguousarray(each, np.float32).tobytes())

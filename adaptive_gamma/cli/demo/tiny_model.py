"""Two tiny llama-architecture models with one vocabulary, made on the spot: a target and the draft that guesses for it.

The weights are random, so the text is gibberish; what is real is everything around it: an engine loads the files, keeps
a KV cache, batches, drafts and verifies. The draft is the first layers of the target. The target's remaining layers
write to the residual stream with a small factor, so the draft agrees with it often and not always.

Needs the ``demo`` extra (gguf, tokenizers). Takes a few seconds once per directory; later calls find the files.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["DEMO_SHAPE", "ModelPair", "TinyShape", "write_tiny_models"]

_Matrix: TypeAlias = NDArray[np.float32]
_LAYOUT_VERSION = 1
"""Raised whenever the bytes written for the same shape change, so that old files are not reused."""

_END_OF_TEXT, _TURN_START, _TURN_END = _SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n{%- endif -%}"
)
_BIAS_VALUE = 4.0
_FORBIDDEN_WEIGHT = -40.0


@dataclass(frozen=True, slots=True)
class TinyShape:
    """The shape of the pair. ``hidden`` must be a multiple of ``heads``, and of 32 for
    ``q8_0`` and ``q4_0``."""

    hidden: int = 128
    layers: int = 6
    draft_layers: int = 1
    feed_forward: int = 256
    heads: int = 4
    vocabulary: int = 1024
    context_tokens: int = 8192
    late_scale: float = 0.15
    """Factor on what the layers the draft lacks write; 0 makes the draft agree always."""
    weights: Literal["f32", "f16", "q8_0", "q4_0"] = "f16"
    seed: int = 7

    def __post_init__(self) -> None:
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not a multiple of heads {self.heads}")
        if self.weights in ("q8_0", "q4_0") and (self.hidden % 32 or self.feed_forward % 32):
            raise ValueError(f"{self.weights} needs hidden and feed_forward to be multiples of 32")
        if not 1 <= self.draft_layers <= self.layers:
            raise ValueError(f"draft_layers {self.draft_layers} must be in 1..{self.layers}")


DEMO_SHAPE = TinyShape(hidden=256, layers=16, feed_forward=512, weights="f32")
"""A pair of 49 MB on which a step is dear enough for speculation to pay. On one core of an AMD EPYC (two cores, other
work beside it), gamma 4 and cumulative acceptance 0.8, 0.6, 0.4, 0.2 gave 1.1 times plain's tokens per second at
concurrency 1, 1.2 at 2, 1.0 to 1.1 at 4, 0.9 at 8 and 0.7 at 16. On the default shape speculation never paid (0.5 to
0.6): there a step costs little more than its tokens."""


@dataclass(frozen=True, slots=True)
class ModelPair:
    """Paths of the GGUF files."""

    target: Path
    draft: Path


def write_tiny_models(directory: Path, shape: TinyShape | None = None) -> ModelPair:
    """The pair of ``shape`` (by default the smallest, for tests) under ``directory``, written unless already there.

    The files lie in a subdirectory named by a digest of all that decides their bytes (shape, layout version, versions
    of Python and of the libraries that write them). It appears whole or not at all, so two processes may call this at
    once and an interrupted call leaves nothing that looks finished.

    Raises:
        ModuleNotFoundError: the ``demo`` extra is not installed.
    """
    shape = shape or TinyShape()
    home = directory / f"tiny-{_digest(shape)}"
    pair = ModelPair(target=home / "target.gguf", draft=home / "draft.gguf")
    if pair.target.exists() and pair.draft.exists():
        return pair
    directory.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="tiny-", suffix=".partial", dir=directory))
    try:
        tokens, merges = _train_vocabulary(shape.vocabulary)
        weights = _Weights(shape, tokens)
        for path, layers in ((pair.target, shape.layers), (pair.draft, shape.draft_layers)):
            _write_gguf(scratch / path.name, path.stem, layers, shape, tokens, merges, weights)
        try:
            scratch.rename(home)
        except OSError:
            if not (pair.target.exists() and pair.draft.exists()):  # else another process was faster
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return pair


def _digest(shape: TinyShape) -> str:
    makers = [f"{name}={importlib.metadata.version(name)}" for name in ("gguf", "numpy", "tokenizers")]
    content = json.dumps([_LAYOUT_VERSION, sys.version_info[:3], makers, asdict(shape)])
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def _corpus() -> Iterator[str]:
    """Some of the standard library's own sources: text that every Python installation carries."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:60]:
        yield path.read_text(encoding="utf-8")


def _train_vocabulary(size: int) -> tuple[list[str], list[str]]:
    """Token spellings by id and merge rules of a byte-level BPE vocabulary; the special tokens come first."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(_SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    ids: dict[str, int] = model["vocab"]
    merges = [rule if isinstance(rule, str) else " ".join(rule) for rule in model["merges"]]
    return sorted(ids, key=ids.__getitem__), merges


def _forbidden(tokens: list[str]) -> list[int]:
    """Ids that must never be generated: specials, and whatever is not printable ASCII.

    A random model strings bytes together that are no UTF-8; llama.cpp's server answers such text with an error.
    """
    space, newline = "\u0120", "\u010a"  # how byte-level BPE spells them
    printable = {chr(code) for code in range(33, 127)} | {space, newline}
    return [i for i, token in enumerate(tokens) if token in _SPECIAL or not printable.issuperset(token)]


class _Weights:
    """Random weights, drawn once; the draft takes the embeddings and the first layers of the same draw.

    Channel 0 of the residual stream is a bias lane: every embedding holds the same value there, no layer writes to it,
    and the output rows of forbidden tokens weigh it so negatively that sampling never picks them.
    """

    def __init__(self, shape: TinyShape, tokens: list[str]) -> None:
        self._rng = np.random.default_rng(shape.seed)
        hidden = shape.hidden
        self.embedding = self._rng.standard_normal((len(tokens), hidden), dtype=np.float32)
        self.embedding[:, 0] = _BIAS_VALUE
        self.output = self._matrix(len(tokens), hidden, 6.0)
        self.output[:, 0] = 0.0
        self.output[_forbidden(tokens), 0] = _FORBIDDEN_WEIGHT
        self.layers = [
            self._layer(shape, 1.0 if index < shape.draft_layers else shape.late_scale) for index in range(shape.layers)
        ]

    def _matrix(self, rows: int, columns: int, scale: float = 1.0) -> _Matrix:
        values = self._rng.standard_normal((rows, columns), dtype=np.float32)
        return values * np.float32(scale / np.sqrt(columns))

    def _into_residual(self, rows: int, columns: int, scale: float) -> _Matrix:
        values = self._matrix(rows, columns, scale)
        values[0] = 0.0
        return values

    def _layer(self, shape: TinyShape, scale: float) -> dict[str, _Matrix]:
        hidden, inner = shape.hidden, shape.feed_forward
        return {
            "attn_q": self._matrix(hidden, hidden),
            "attn_k": self._matrix(hidden, hidden),
            "attn_v": self._matrix(hidden, hidden),
            "attn_output": self._into_residual(hidden, hidden, scale),
            "ffn_gate": self._matrix(inner, hidden),
            "ffn_up": self._matrix(inner, hidden),
            "ffn_down": self._into_residual(hidden, inner, scale),
        }


def _write_gguf(
    path: Path, name: str, layers: int, shape: TinyShape, tokens: list[str], merges: list[str], weights: _Weights
) -> None:
    import gguf

    file_types = {
        "f32": gguf.LlamaFileType.ALL_F32,
        "f16": gguf.LlamaFileType.MOSTLY_F16,
        "q8_0": gguf.LlamaFileType.MOSTLY_Q8_0,
        "q4_0": gguf.LlamaFileType.MOSTLY_Q4_0,
    }
    writer: Any = gguf.GGUFWriter(os.fspath(path), "llama")
    writer.add_name(f"adaptive-gamma tiny {name}")
    writer.add_file_type(file_types[shape.weights])
    writer.add_vocab_size(len(tokens))
    writer.add_context_length(shape.context_tokens)
    writer.add_block_count(layers)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_rope_dimension_count(shape.hidden // shape.heads)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)

    kinds = [gguf.TokenType.CONTROL if token in _SPECIAL else gguf.TokenType.NORMAL for token in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index(_END_OF_TEXT))
    writer.add_eos_token_id(tokens.index(_TURN_END))
    writer.add_pad_token_id(tokens.index(_END_OF_TEXT))
    writer.add_add_bos_token(False)
    writer.add_chat_template(_CHAT_TEMPLATE)

    def add_matrix(tensor: str, values: _Matrix) -> None:
        if shape.weights == "f32":
            writer.add_tensor(tensor, values)
        elif shape.weights == "f16":
            writer.add_tensor(tensor, values.astype(np.float16))
        else:
            kind = gguf.GGMLQuantizationType[shape.weights.upper()]
            writer.add_tensor(tensor, gguf.quants.quantize(values, kind), raw_dtype=kind)

    ones = np.ones(shape.hidden, dtype=np.float32)
    add_matrix("token_embd.weight", weights.embedding)
    writer.add_tensor("output_norm.weight", ones)
    add_matrix("output.weight", weights.output)
    for index, layer in enumerate(weights.layers[:layers]):
        writer.add_tensor(f"blk.{index}.attn_norm.weight", ones)
        writer.add_tensor(f"blk.{index}.ffn_norm.weight", ones)
        for tensor, values in layer.items():
            add_matrix(f"blk.{index}.{tensor}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

"""What the doctor knows of engines: a file or a folder for each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from adaptive_gamma.doctor.engines.llamacpp import LLAMACPP
from adaptive_gamma.doctor.engines.sglang import SGLANG
from adaptive_gamma.doctor.engines.tensorrt_llm import TENSORRT_LLM
from adaptive_gamma.doctor.engines.vllm.flags import VLLM
from adaptive_gamma.doctor.engines.words import EngineWords

__all__ = ["ENGINES", "EngineWords"]

ENGINES: Mapping[str, EngineWords] = MappingProxyType(
    {engine.name: engine for engine in (VLLM, SGLANG, LLAMACPP, TENSORRT_LLM)}
)
"""By name."""

"""The physics: how many tokens a step yields, and how long it takes. Pure functions of numbers, vectorised.

Seconds, bytes, FLOP and tokens throughout; gamma is the number of draft tokens per step.
"""

from adaptive_gamma.roofline.acceptance import AcceptanceCurve, Reading, draft_length_varies
from adaptive_gamma.roofline.arrays import FloatArray, Numbers
from adaptive_gamma.roofline.capture import CaptureSizes, largest_captured_gamma
from adaptive_gamma.roofline.captured_step import CapturedStep
from adaptive_gamma.roofline.drafter import (
    AutoregressiveDrafter,
    Drafter,
    DraftPass,
    NgramDrafter,
    ParallelDrafter,
    PassFraction,
    PassSeconds,
)
from adaptive_gamma.roofline.hardware import Efficiency, Hardware, NumberFormat, achieved_efficiency
from adaptive_gamma.roofline.kv_cache import gqa_kv_bytes_per_token, mla_kv_bytes_per_token
from adaptive_gamma.roofline.model_shape import ExpertShape, ModelShape
from adaptive_gamma.roofline.moe import MoeStep, distinct_experts
from adaptive_gamma.roofline.speculation import SpeculationCost, ZeroGammaTax, compute_bound_batch
from adaptive_gamma.roofline.step_time import (
    WHOLE_MODEL,
    Combine,
    LinearStep,
    ModelShare,
    PlainPoolStep,
    RooflineStep,
    StepTerms,
    StepTime,
)
from adaptive_gamma.roofline.table_step import Interpolation, MeasuredTableStep

__all__ = [
    "WHOLE_MODEL",
    "AcceptanceCurve",
    "AutoregressiveDrafter",
    "CaptureSizes",
    "CapturedStep",
    "Combine",
    "DraftPass",
    "Drafter",
    "Efficiency",
    "ExpertShape",
    "FloatArray",
    "Hardware",
    "Interpolation",
    "LinearStep",
    "MeasuredTableStep",
    "ModelShape",
    "ModelShare",
    "MoeStep",
    "NgramDrafter",
    "NumberFormat",
    "Numbers",
    "ParallelDrafter",
    "PassFraction",
    "PassSeconds",
    "PlainPoolStep",
    "Reading",
    "RooflineStep",
    "SpeculationCost",
    "StepTerms",
    "StepTime",
    "ZeroGammaTax",
    "achieved_efficiency",
    "compute_bound_batch",
    "distinct_experts",
    "draft_length_varies",
    "gqa_kv_bytes_per_token",
    "largest_captured_gamma",
    "mla_kv_bytes_per_token",
]

"""adaptive-gamma: the speculation length of LLM serving, chosen by load and acceptance.

The names below are the library's: the physics of a step, acceptance by position, and the policy made of both. They are
imported when they are first used, so that ``import adaptive_gamma`` alone brings no dependency with it.

>>> from adaptive_gamma import AcceptanceCurve, load_policy
>>> AcceptanceCurve.independent(0.8).expected_tokens(4)  # gamma 4: 1 + 0.8 + 0.64 + 0.512 + 0.4096
3.3616...
>>> policy = load_policy("h200-llama3-70b-fp8")
>>> [policy.best_gamma("structured", batch) for batch in (1, 32, 256)]
[6, 4, 1]
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from adaptive_gamma._version import __version__

if TYPE_CHECKING:
    from adaptive_gamma.bench import Sweep, read_sweep
    from adaptive_gamma.errors import AdaptiveGammaError, ConfigurationError, ExportRefused, PolicyError, SweepError
    from adaptive_gamma.policy import (
        Policy,
        PolicyInputs,
        build_policy,
        lint_policy,
        load_policy,
        parse_inputs,
        policy_yaml,
        shipped_policies,
    )
    from adaptive_gamma.policy.export import EngineExport, ScheduleOptions, ServerOptions, export_policy
    from adaptive_gamma.roofline import (
        AcceptanceCurve,
        AutoregressiveDrafter,
        CapturedStep,
        Hardware,
        LinearStep,
        MeasuredTableStep,
        ModelShape,
        MoeStep,
        NgramDrafter,
        ParallelDrafter,
        PassFraction,
        PassSeconds,
        PlainPoolStep,
        RooflineStep,
        SpeculationCost,
        StepTime,
        ZeroGammaTax,
        compute_bound_batch,
        distinct_experts,
    )
    from adaptive_gamma.routing import GammaSchedule, classify_prompt

_HOMES = {
    "bench": ("Sweep", "read_sweep"),
    "errors": ("AdaptiveGammaError", "ConfigurationError", "ExportRefused", "PolicyError", "SweepError"),
    "policy": (
        "Policy", "PolicyInputs", "build_policy", "lint_policy", "load_policy", "parse_inputs", "policy_yaml",
        "shipped_policies",
    ),
    "policy.export": ("EngineExport", "ScheduleOptions", "ServerOptions", "export_policy"),
    "roofline": (
        "AcceptanceCurve", "AutoregressiveDrafter", "CapturedStep", "Hardware", "LinearStep", "MeasuredTableStep",
        "ModelShape", "MoeStep", "NgramDrafter", "ParallelDrafter", "PassFraction", "PassSeconds", "PlainPoolStep",
        "RooflineStep", "SpeculationCost", "StepTime", "ZeroGammaTax", "compute_bound_batch", "distinct_experts",
    ),
    "routing": ("GammaSchedule", "classify_prompt"),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AcceptanceCurve",
    "AdaptiveGammaError",
    "AutoregressiveDrafter",
    "CapturedStep",
    "ConfigurationError",
    "EngineExport",
    "ExportRefused",
    "GammaSchedule",
    "Hardware",
    "LinearStep",
    "MeasuredTableStep",
    "ModelShape",
    "MoeStep",
    "NgramDrafter",
    "ParallelDrafter",
    "PassFraction",
    "PassSeconds",
    "PlainPoolStep",
    "Policy",
    "PolicyError",
    "PolicyInputs",
    "RooflineStep",
    "ScheduleOptions",
    "ServerOptions",
    "SpeculationCost",
    "StepTime",
    "Sweep",
    "SweepError",
    "ZeroGammaTax",
    "__version__",
    "build_policy",
    "classify_prompt",
    "compute_bound_batch",
    "distinct_experts",
    "export_policy",
    "lint_policy",
    "load_policy",
    "parse_inputs",
    "policy_yaml",
    "read_sweep",
    "shipped_policies",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

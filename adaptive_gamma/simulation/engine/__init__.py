"""A simulated vLLM server: the same HTTP surface and metrics page, and no model behind it.

Never to be mistaken for a real engine: its ``Server`` header is ``adaptive-gamma-simulated-engine``, its version is
``simulated``, and so is the ``system_fingerprint`` of every answer.
"""

from adaptive_gamma.simulation.engine.acceptance import DEFAULT_ACCEPTANCE, ScriptedAcceptance
from adaptive_gamma.simulation.engine.app import SERVER_NAME, SimulatedEngine
from adaptive_gamma.simulation.engine.core import EngineCore, drain
from adaptive_gamma.simulation.engine.faults import GENERATION_FAULTS, METRICS_FAULTS, FaultError, Faults
from adaptive_gamma.simulation.engine.metrics import EngineMetrics, metrics_page
from adaptive_gamma.simulation.engine.server import run_engine, serving
from adaptive_gamma.simulation.engine.settings import DEFAULT_STEP, EngineSettings, class_by_prompt
from adaptive_gamma.simulation.engine.step_clock import LinearStepClock, PolicyStepClock, StepClock
from adaptive_gamma.simulation.engine.steps import (
    CoreLimits,
    EngineRequest,
    FinishedRequest,
    StepOutcome,
    StepPlan,
    TokenEvent,
)

__all__ = [
    "DEFAULT_ACCEPTANCE",
    "DEFAULT_STEP",
    "GENERATION_FAULTS",
    "METRICS_FAULTS",
    "SERVER_NAME",
    "CoreLimits",
    "EngineCore",
    "EngineMetrics",
    "EngineRequest",
    "EngineSettings",
    "FaultError",
    "Faults",
    "FinishedRequest",
    "LinearStepClock",
    "PolicyStepClock",
    "ScriptedAcceptance",
    "SimulatedEngine",
    "StepClock",
    "StepOutcome",
    "StepPlan",
    "TokenEvent",
    "class_by_prompt",
    "drain",
    "metrics_page",
    "run_engine",
    "serving",
]

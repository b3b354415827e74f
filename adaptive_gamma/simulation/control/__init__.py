"""Closed loops in a simulation: acceptance learned, schedules or gammas set and requests routed by what serves traffic.

``control_session`` closes the loop around a fleet, ``contestants`` are what it is compared with on the same requests
and the same luck, ``hold`` keeps a load, and ``fall_of_acceptance``, ``load_about_an_edge`` and
``recovery_from_counters`` are its hard cases.
"""

from adaptive_gamma.simulation.control.contestants import (
    CONTROL,
    ONE_GAMMA,
    ORACLE,
    Contestant,
    class_mix_of,
    contestants,
    mean_context,
    pools,
    start_gamma,
    vllm_schedule,
)
from adaptive_gamma.simulation.control.facts import (
    Fall,
    Swing,
    fall_of_acceptance,
    load_about_an_edge,
    most_in_a_minute,
    policy_with_an_edge,
)
from adaptive_gamma.simulation.control.held import HeldRun, Sent, hold, queue_of_requests
from adaptive_gamma.simulation.control.learning import LearningRules, PolicyInUse, histogram_of
from adaptive_gamma.simulation.control.loop import ControlLoop, ControlRules, GammaChange, control_session, settable
from adaptive_gamma.simulation.control.recovery import Recovered, recovery_from_counters
from adaptive_gamma.simulation.control.sglang import DEFAULT_TABLE, AdaptiveSlot, AdaptiveTable, SlotRule
from adaptive_gamma.simulation.control.workloads import swinging

__all__ = [
    "CONTROL",
    "DEFAULT_TABLE",
    "ONE_GAMMA",
    "ORACLE",
    "AdaptiveSlot",
    "AdaptiveTable",
    "Contestant",
    "ControlLoop",
    "ControlRules",
    "Fall",
    "GammaChange",
    "HeldRun",
    "LearningRules",
    "PolicyInUse",
    "Recovered",
    "Sent",
    "SlotRule",
    "Swing",
    "class_mix_of",
    "contestants",
    "control_session",
    "fall_of_acceptance",
    "histogram_of",
    "hold",
    "load_about_an_edge",
    "mean_context",
    "most_in_a_minute",
    "policy_with_an_edge",
    "pools",
    "queue_of_requests",
    "recovery_from_counters",
    "settable",
    "start_gamma",
    "swinging",
    "vllm_schedule",
]

"""Where a request goes, as pure functions: no clock, no socket, no file."""

from adaptive_gamma.routing.affinity import BLOCK_CHARACTERS, LARGEST_PREFIX, AffinityIndex, Locality
from adaptive_gamma.routing.capability import STRUCTURED_OUTPUT, is_capable
from adaptive_gamma.routing.class_mix import ClassMix
from adaptive_gamma.routing.classify import (
    CLASSES,
    ClassRule,
    PromptClass,
    RequestClassifier,
    canonical_class,
    classify_prompt,
)
from adaptive_gamma.routing.counterfactual import Alternative, Counterfactual, compare
from adaptive_gamma.routing.decide import DecisionLimits, decide, least_loaded, weigh
from adaptive_gamma.routing.decision import Candidate, Decision, RequestNeeds
from adaptive_gamma.routing.gamma_candidates import GammaCandidate, GammaPrices, GammaScores
from adaptive_gamma.routing.gamma_change import GammaDecision, GammaInputs, GammaMemory, GammaRules
from adaptive_gamma.routing.gamma_loads import Loads, LoadTrack
from adaptive_gamma.routing.gamma_pilot import GammaPilot
from adaptive_gamma.routing.gamma_schedule import choose_schedule, make_schedule
from adaptive_gamma.routing.load import batch_of, load_of
from adaptive_gamma.routing.pricing import PolicyPrices, PriceBook
from adaptive_gamma.routing.replica import GammaSchedule, GammaSetting, Pool, ReplicaState
from adaptive_gamma.routing.set_gamma import choose_gamma
from adaptive_gamma.routing.verdict import Verdict

__all__ = [
    "BLOCK_CHARACTERS",
    "CLASSES",
    "LARGEST_PREFIX",
    "STRUCTURED_OUTPUT",
    "AffinityIndex",
    "Alternative",
    "Candidate",
    "ClassMix",
    "ClassRule",
    "Counterfactual",
    "Decision",
    "DecisionLimits",
    "GammaCandidate",
    "GammaDecision",
    "GammaInputs",
    "GammaMemory",
    "GammaPilot",
    "GammaPrices",
    "GammaRules",
    "GammaSchedule",
    "GammaScores",
    "GammaSetting",
    "LoadTrack",
    "Loads",
    "Locality",
    "PolicyPrices",
    "Pool",
    "PriceBook",
    "PromptClass",
    "ReplicaState",
    "RequestClassifier",
    "RequestNeeds",
    "Verdict",
    "batch_of",
    "canonical_class",
    "choose_gamma",
    "choose_schedule",
    "classify_prompt",
    "compare",
    "decide",
    "is_capable",
    "least_loaded",
    "load_of",
    "make_schedule",
    "weigh",
]

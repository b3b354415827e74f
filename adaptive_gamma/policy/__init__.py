"""The policy: a file a person can read, and the look-ups a decision makes in it."""

from adaptive_gamma.policy.build import Grid, build_grid
from adaptive_gamma.policy.describe import (
    CostInputs,
    class_prior_input,
    cost_inputs,
    drafter_input,
    step_time_input,
)
from adaptive_gamma.policy.document import parse_document, parse_inputs
from adaptive_gamma.policy.learned import with_curves
from adaptive_gamma.policy.library import (
    LIBRARY_SCHEMA,
    Library,
    family_named,
    hardware_named,
    library,
    load_library,
    model_named,
)
from adaptive_gamma.policy.lint import Finding, lint_policy
from adaptive_gamma.policy.load import find_policy, load_policy, read_policy_file, shipped_policies
from adaptive_gamma.policy.priors import DrafterFamily, DrafterPrior, MeasuredAcceptance
from adaptive_gamma.policy.provenance import Provenance, provenance_at
from adaptive_gamma.policy.schema import SCHEMA, Evidence, PolicyDocument, PolicyInputs, PolicyTable
from adaptive_gamma.policy.starter import starter_policy
from adaptive_gamma.policy.table import CLASS_ALIASES, Policy, build_policy, rebuild_policy
from adaptive_gamma.policy.write import policy_yaml

__all__ = [
    "CLASS_ALIASES",
    "LIBRARY_SCHEMA",
    "SCHEMA",
    "CostInputs",
    "DrafterFamily",
    "DrafterPrior",
    "Evidence",
    "Finding",
    "Grid",
    "Library",
    "MeasuredAcceptance",
    "Policy",
    "PolicyDocument",
    "PolicyInputs",
    "PolicyTable",
    "Provenance",
    "build_grid",
    "build_policy",
    "class_prior_input",
    "cost_inputs",
    "drafter_input",
    "family_named",
    "find_policy",
    "hardware_named",
    "library",
    "lint_policy",
    "load_library",
    "load_policy",
    "model_named",
    "parse_document",
    "parse_inputs",
    "policy_yaml",
    "provenance_at",
    "read_policy_file",
    "rebuild_policy",
    "shipped_policies",
    "starter_policy",
    "step_time_input",
    "with_curves",
]

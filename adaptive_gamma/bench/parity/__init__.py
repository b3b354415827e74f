"""Do two replicas say the same: greedy answers of a plain one and of others, against the plain one's own noise."""

from adaptive_gamma.bench.parity.answers import Token, WholeAnswer, read_answer
from adaptive_gamma.bench.parity.asking import Failure, Form, Replica, open_replica
from adaptive_gamma.bench.parity.comparing import Distance, Divergence, distance, divergence
from adaptive_gamma.bench.parity.report import parity_document, parity_lines
from adaptive_gamma.bench.parity.run import Compared, Comparison, Observer, Pair, Sample, run_parity
from adaptive_gamma.bench.parity.significance import fewest_prompts
from adaptive_gamma.bench.parity.verdict import (
    ALPHA,
    TOLERANCE,
    CandidateVerdict,
    Outcome,
    TestResult,
    judge,
    outcome_of,
)

__all__ = [
    "ALPHA",
    "TOLERANCE",
    "CandidateVerdict",
    "Compared",
    "Comparison",
    "Distance",
    "Divergence",
    "Failure",
    "Form",
    "Observer",
    "Outcome",
    "Pair",
    "Replica",
    "Sample",
    "TestResult",
    "Token",
    "WholeAnswer",
    "distance",
    "divergence",
    "fewest_prompts",
    "judge",
    "open_replica",
    "outcome_of",
    "parity_document",
    "parity_lines",
    "read_answer",
    "run_parity",
]

"""What a replica accepts against what the policy expects of it."""

from __future__ import annotations

import math
from typing import Protocol

from adaptive_gamma.fleet.cost_check import StepPrices
from adaptive_gamma.fleet.window import AcceptanceWindow
from adaptive_gamma.routing.replica import GammaSetting

__all__ = ["AcceptancePrior", "acceptance_ratio", "routing_ratio"]

_RATIO_DRAFTS = 100.0
_RATIO_BOUNDS = (0.5, 1.5)
_FORGOTTEN_HALF_LIFE_S = 60.0
"""Of what a replica accepted before it fell silent. A replica that a few bad drafts drove all requests from would
otherwise stay without them for ever: nothing new would be counted there."""


class AcceptancePrior(StepPrices, Protocol):
    """What the fleet asks of a policy: the acceptance it expects of each class, and what steps take."""


def routing_ratio(ratio: float | None, silent_s: float) -> float | None:
    """A ratio as far as requests are routed by it: acceptance of a few minutes, held against a whole policy.

    Args:
        ratio: accepted over expected.
        silent_s: seconds since the replica was last seen to draft; in them the ratio goes back to 1.
    """
    if ratio is None:
        return None
    low, high = _RATIO_BOUNDS
    kept = math.exp2(-max(silent_s, 0.0) / _FORGOTTEN_HALF_LIFE_S)
    return 1.0 + (min(max(ratio, low), high) - 1.0) * kept


def acceptance_ratio(
    window: AcceptanceWindow, prior: AcceptancePrior | None, gamma: GammaSetting | None
) -> float | None:
    """Accepted tokens per draft seen over those the policy expects of the classes that were drafted for.

    Args:
        window: what the replica counted of late.
        prior: the policy.
        gamma: in force. One that varies needs an engine that counts its drafts by position.
    """
    observed = window.accepted_per_draft
    if prior is None or observed is None or window.weight < _RATIO_DRAFTS:
        return None
    lengths = window.drafts_by_length()
    if lengths is None:
        if not isinstance(gamma, int) or gamma < 1 or window.variable_draft_length is not False:
            return None
        lengths = {gamma: 1.0}
    whole = math.fsum(lengths.values())
    expected = weight = 0.0
    for name, drafts in window.drafts_by_class().items():
        request_class = prior.default_class if name is None else prior.class_for(name)
        for length, count in lengths.items():
            expected += drafts * (count / whole) * (prior.expected_tokens(request_class, length) - 1.0)
        weight += drafts
    if not (0 < expected < math.inf and 0 < weight < math.inf):
        return None
    ratio = observed * (weight / expected)
    return ratio if math.isfinite(ratio) else None

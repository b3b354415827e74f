"""Whether a replica can serve a request as it should be served.

A replica that cannot is used only when no other is left: it may refuse the request, but that is for the engine to say.
Four things count:

* parameters that the engine refuses while it speculates (a speculative vLLM: ``min_p`` and ``logit_bias``);
* output that must follow a grammar or schema, where the configuration keeps it off replicas that speculate;
* a prompt whose output, as long as outputs usually are, comes near the end of the drafter's context;
* a response that the request goes on from, which one replica stores and no other has.
"""

from __future__ import annotations

from adaptive_gamma.routing.decision import RequestNeeds
from adaptive_gamma.routing.pricing import USUAL_OUTPUT_TOKENS
from adaptive_gamma.routing.replica import ReplicaState

__all__ = ["STRUCTURED_OUTPUT", "incapable_because", "is_capable", "is_demanding"]

STRUCTURED_OUTPUT = "structured_output"
"""Stands among a request's parameters for all the fields by which the APIs ask for a grammar or schema."""


def is_demanding(needs: RequestNeeds) -> bool:
    """Whether there is something about the request itself that a replica may not be able to do, were its context
    short."""
    return bool(needs.parameters) or needs.pinned is not None


def is_capable(needs: RequestNeeds, state: ReplicaState) -> bool:
    """Whether the replica can serve the request. A prompt of unknown length is not too long."""
    if needs.parameters and not needs.parameters.isdisjoint(state.refused_parameters):
        return False
    if needs.pinned is not None and needs.pinned != state.name:
        return False
    limit, prompt = state.context_limit, needs.prompt_tokens
    if limit is None or prompt is None:
        return True
    output = needs.max_output_tokens
    return prompt + (USUAL_OUTPUT_TOKENS if output is None else min(output, USUAL_OUTPUT_TOKENS)) < limit


def incapable_because(needs: RequestNeeds, state: ReplicaState) -> str:
    """Why not, in words that name no value of the request."""
    refused = needs.parameters & state.refused_parameters
    if refused == {STRUCTURED_OUTPUT}:
        return "speculates, and the output is structured"
    if refused:
        return "refuses a parameter"
    if needs.pinned is not None and needs.pinned != state.name:
        return "does not have the response it goes on from"
    return "near the drafter's context limit"

"""What a client is told when no replica answers its request."""

from __future__ import annotations

from adaptive_gamma.errors import ConnectError, NoReplica
from adaptive_gamma.routing.error_answer import ErrorAnswer, shortened

__all__ = ["none_left", "waited_too_long"]

_SOON = ((b"retry-after", b"1"),)


def waited_too_long(limit_s: float) -> ErrorAnswer:
    """The answer to a request that found no room in time."""
    message = f"no replica had room within {limit_s:g} s"
    return ErrorAnswer(503, message, "at_capacity", outcome="rejected", headers=_SOON)


def none_left(error: NoReplica | ConnectError | None, model: str | None, *, tried: bool) -> ErrorAnswer:
    """The answer to a request for which there is no replica (any more).

    Args:
        error: why the last look for one failed; None where it found nobody to ask.
        model: what the request asks for.
        tried: whether some replica was tried, and could not be reached.
    """
    if isinstance(error, NoReplica) and error.model_unknown:
        message = f"no replica has the model {shortened(model or '')!r}"
        return ErrorAnswer(404, message, "model_not_found", outcome="client_error")
    if tried:
        message, code, outcome = "no replica could be reached", "no_replica", "connect_error"
    else:
        full = isinstance(error, NoReplica) and error.at_capacity
        message = "no replica can take the request (the fleet is empty)" if error is None else str(error)
        code, outcome = "at_capacity" if full else "no_replica", "rejected"
    return ErrorAnswer(503, message, code, outcome=outcome, headers=_SOON)

"""A request's body as it goes to one replica: the client's own bytes, and what is put into them for that replica."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from adaptive_gamma.proxy.body_fields import encoded_members, insert_members

if TYPE_CHECKING:
    from adaptive_gamma.engines import StreamAsk
    from adaptive_gamma.fleet import AnswerWatch, GammaControl
    from adaptive_gamma.proxy.data_plane import DataPlane
    from adaptive_gamma.routing.json_request import JsonRequest

__all__ = ["NOTHING_SENT", "EngineBody", "engine_body", "may_carry_gamma", "watch_of"]

_REFUSALS = (400, 422)


class EngineBody(NamedTuple):
    """What is sent."""

    body: bytes
    added: StreamAsk | None = None
    """What the engine is asked in the client's place."""
    gamma: int | None = None
    """The gamma put into it."""


NOTHING_SENT = EngineBody(b"")


def may_carry_gamma(control: GammaControl, request: JsonRequest | None) -> bool:
    """Whether a request may be given a gamma: some replica takes one, and the client has not set it itself."""
    return control.active and request is not None and not any(map(request.has_member, control.field_names))


def engine_body(
    plane: DataPlane, replica: str, path: str, body: bytes, asking: JsonRequest | None, *, takes_gamma: bool
) -> EngineBody:
    """The body for a replica.

    Args:
        plane: says what is to be put in.
        replica: its name.
        path: the request's.
        body: the client's.
        asking: the request, where the engine may have to be asked to report on its drafts.
        takes_gamma: whether the request may be given a gamma.
    """
    added = gamma = None
    if asking is not None and (asked := plane.asked(replica, path, asking, body)) is not None:
        body, added = asked
    if takes_gamma and (field := plane.control.field(replica, path)) is not None:
        with_gamma = insert_members(body, _members(field.name, field.gamma))
        if with_gamma is not None:
            body, gamma = with_gamma, field.gamma
    return EngineBody(body, added, gamma)


def watch_of(
    control: GammaControl, replica: str, path: str, status: int, sent: EngineBody, request_class: str
) -> AnswerWatch | None:
    """Who is to be told whether the replica drafted for a request as it was asked to; a refusal is told at once."""
    if status in _REFUSALS:
        control.refused(replica, sent.gamma, status)
    return control.watch(replica, path, sent.gamma, request_class)


@lru_cache(maxsize=256)
def _members(name: str, gamma: int) -> bytes:
    return encoded_members({name: gamma})

"""Which replicas report on the drafts of a request, and what is put into a request so that they do."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal, NamedTuple

from adaptive_gamma.engines import StreamAsk
from adaptive_gamma.proxy.body_fields import encoded_members, insert_members
from adaptive_gamma.proxy.body_options import with_option

if TYPE_CHECKING:
    from adaptive_gamma.fleet import FleetReplica
    from adaptive_gamma.routing.json_request import JsonRequest

__all__ = ["AskedBody", "Kind", "ReportLog", "asked_body"]

_log = logging.getLogger("adaptive_gamma.proxy")

_PATIENCE = 32
"""Answers without a report, one after another, after which a replica is believed not to report."""
_LOOK_AGAIN = 32
"""Of the answers of such a replica one in so many is looked at all the same."""


Kind = Literal["body", "stream", "asked"]
"""Of an answer: one JSON body, a stream, a stream that was made to report."""


class ReportLog:
    """Whether answers of a replica are worth a look: looking costs a little for each part of a stream.

    Kinds of answers are told apart, as an engine may report in one of them only.
    """

    __slots__ = ("_misses", "_reports")

    def __init__(self) -> None:
        self._misses: dict[tuple[str, Kind], int] = {}
        self._reports: dict[str, int] = {}

    @property
    def reports(self) -> dict[str, int]:
        """Answers that reported, by replica, since the start."""
        return dict(self._reports)

    def worth_a_look(self, replica: str, kind: Kind) -> bool:
        """Asked once for each answer."""
        misses = self._misses.get((replica, kind), 0)
        if misses < _PATIENCE:
            return True
        self._misses[replica, kind] = misses + 1
        return (misses - _PATIENCE) % _LOOK_AGAIN == _LOOK_AGAIN - 1

    def looked(self, replica: str, kind: Kind, *, reported: bool) -> None:
        """What the look at an answer brought."""
        key = (replica, kind)
        if reported:
            self._misses.pop(key, None)
            self._reports[replica] = self._reports.get(replica, 0) + 1
            return
        misses = self._misses.get(key, 0)
        if misses >= _PATIENCE:
            return
        self._misses[key] = misses + 1
        if kind == "asked" and misses + 1 == _PATIENCE:
            _log.warning(
                "replica %s: none of %d streams made to ask reported on its drafts; from here on one in %d is made to",
                replica,
                _PATIENCE,
                _LOOK_AGAIN,
            )

    def keep_only(self, replicas: frozenset[str]) -> None:
        """Forget the replicas that are gone, or are others under the same name."""
        self._misses = {key: count for key, count in self._misses.items() if key[0] in replicas}
        self._reports = {name: count for name, count in self._reports.items() if name in replicas}


class AskedBody(NamedTuple):
    """A body that asks for a report, and how."""

    body: bytes
    ask: StreamAsk


def asked_body(replica: FleetReplica, path: str, request: JsonRequest, body: bytes, log: ReportLog) -> AskedBody | None:
    """The client's body with the question for a report in it.

    None where none is put: the client asks itself, the replica is plain, its engine reports unasked or has not
    reported lately, the question would change more of the stream than one event, or its place cannot be told.
    """
    ask = replica.dialect.stream_ask
    if ask is None or path not in ask.paths or replica.state.speculative is False:
        return None
    known, value = request.has_member(ask.member), request.member(ask.member)
    options = value if isinstance(value, dict) else {}
    if ask.option is None:
        if known:
            return None
    elif (value is not None and value is not options) or options.get(ask.option) is True:
        return None
    if any(options.get(name) for name in ask.not_beside) or not log.worth_a_look(replica.name, "asked"):
        return None
    if ask.option is not None and known:
        asked = with_option(body, ask.member, ask.option, options)
    else:
        asked = insert_members(body, encoded_members({ask.member: True if ask.option is None else {ask.option: True}}))
    return None if asked is None else AskedBody(asked, ask)

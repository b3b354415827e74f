"""What else looks at an answer as it passes, beside the tap that learns from it. Listeners change and delay nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from adaptive_gamma.proxy.headers import Pairs, content_of
from adaptive_gamma.proxy.learning import ResponseTap
from adaptive_gamma.proxy.stored_responses import ResponseIdListener

if TYPE_CHECKING:
    from adaptive_gamma.engines import RequestAcceptance, StreamAsk
    from adaptive_gamma.fleet import AnswerWatch
    from adaptive_gamma.proxy.asking import Kind
    from adaptive_gamma.proxy.data_plane import DataPlane
    from adaptive_gamma.proxy.decision_log import DecisionRecord
    from adaptive_gamma.proxy.intake import Intake
    from adaptive_gamma.routing import Pool

__all__ = ["AnswerTap", "ListenedTap", "Listener", "answer_tap", "fitting", "may_report"]


class Listener(Protocol):
    """Hears an answer's body."""

    def feed(self, pieces: list[bytes]) -> None:
        """Bytes of the body as the engine sent them, in order."""

    def finish(self, *, whole: bool) -> None:
        """The body is over, ``whole`` or not."""


class ListenedTap:
    """A tap, where there is one, and listeners that hear what the engine sent before the tap takes anything out."""

    __slots__ = ("_listeners", "_tap")

    def __init__(self, tap: ResponseTap | None, listeners: list[Listener]) -> None:
        self._tap = tap
        self._listeners = listeners

    @property
    def removes(self) -> bool:
        return self._tap is not None and self._tap.removes

    @property
    def acceptance(self) -> RequestAcceptance | None:
        return None if self._tap is None else self._tap.acceptance

    def feed(self, pieces: list[bytes]) -> list[bytes]:
        for listener in self._listeners:
            listener.feed(pieces)
        return pieces if self._tap is None else self._tap.feed(pieces)

    def finish(self, *, whole: bool = True) -> bytes:
        for listener in self._listeners:
            listener.finish(whole=whole)
        return b"" if self._tap is None else self._tap.finish(whole=whole)


AnswerTap: TypeAlias = ResponseTap | ListenedTap


def may_report(plane: DataPlane, replica: str, pool: Pool, kind: Kind) -> bool:
    """Whether a replica's answer of this kind may tell how the drafts of its request fared. Asked once for each."""
    if pool == "plain" and plane.fleet.by_name(replica).state.speculative is False:
        return False
    return kind == "asked" or plane.reports.worth_a_look(replica, kind)  # one that was asked was worth that


def answer_tap(
    plane: DataPlane,
    replica: str,
    status: int,
    headers: Pairs,
    request_class: str | None,
    added: StreamAsk | None,
    watch: AnswerWatch | None,
    record: DecisionRecord | None,
    request: Intake,
) -> AnswerTap | None:
    """What looks at this answer, or None.

    Args:
        plane: gives the fleet, which is told what the answer says of its engine, and what remembers responses.
        replica: the name of the replica that answers.
        status: of the answer.
        headers: of the answer.
        request_class: the class that the acceptance is of; None where it is not to be learned.
        added: how the request was made to ask for a report.
        watch: is told whether the engine drafted as it was asked to.
        record: of the decision; the request may be observed.
        request: the request; its answer may create a response that is stored.
    """
    tap = ResponseTap.wanted(
        plane.fleet, replica, status, headers,
        request_class=request_class, log=plane.reports, added=added, watch=watch,
    )  # fmt: skip
    observed = None if record is None else record.observed
    if observed is None and not request.stores:
        return tap
    kind, coding = content_of(headers)
    stream = kind.startswith(b"text/event-stream")
    listeners: list[Listener] = []
    if observed is not None:
        observed.stream = stream
        listeners.append(observed)
    if request.stores and status == 200 and coding in (b"", b"identity"):
        listeners.append(ResponseIdListener(plane.stored, replica, stream=stream))
    return ListenedTap(tap, listeners) if listeners else tap


def fitting(tap: AnswerTap, headers: Pairs) -> Pairs:
    """The headers of an answer that fit what the tap passes on of it."""
    if not tap.removes:
        return headers
    return [pair for pair in headers if pair[0] != b"content-length"]

"""Was a request answered as it had to be? Judged from what its client saw, the engines' journals and the outages."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from tests.soak.downs import Down
from tests.soak.engine_fleet import Outage
from tests.soak.journal import Exchange
from tests.soak.plan import Plan
from tests.soak.proxy import Removal
from tests.soak.seen import Seen

__all__ = ["Judge", "Judgement"]

Verdict = Literal[
    "ok",  # a whole 200
    "planned",  # the fault or error its plan asked for, as it had to come out
    "excused",  # it failed, and an engine it needed was killed, stopped or taken out under it
    "left",  # its client left
    "lost",  # it had to succeed and did not
]
_RACE_S = 1.0
"""A proxy may take a connection that dies later than this for one that had the request, reused or not."""
_NAMED = re.compile(r"replica ([A-Za-z0-9._-]+):")


@dataclass
class Judgement:
    """The verdict of one request."""

    verdict: Verdict
    why: str = ""
    broken: list[str] = field(default_factory=list)
    """What must not be, whatever the verdict."""
    outcomes: frozenset[str] = frozenset()
    """Outcomes under which the proxy may have counted it."""
    hidden: bool = False
    """Whether its count may have vanished with its replica's series."""
    noticed_s: list[float] = field(default_factory=list)
    """From the client's leaving to its engine's noticing."""
    forwarded_late: bool = False
    """Whether it reached an engine only after its client had left."""


class Judge:
    """Holds requests against the journals.

    Args:
        exchanges: by request id, in order of time.
        outages: of the engines.
        removals: of replicas from the configuration.
        downs: times in which the proxy held a replica for unhealthy.
        engines: how many there are.
        cap: most requests that the proxy may have open on one, where there is a cap.
    """

    def __init__(
        self,
        exchanges: dict[str, list[Exchange]],
        outages: list[Outage],
        removals: list[Removal],
        downs: list[Down],
        engines: int = 4,
        cap: int | None = None,
    ) -> None:
        self._exchanges = exchanges
        self._outages = outages
        self._removals = removals
        self._downs = downs
        self._engines = engines
        self._cap = cap

    def judge(self, seen: Seen) -> Judgement:
        """Judge one request."""
        exchanges = self._exchanges.get(seen.case.request_id, [])
        served = next((e for e in exchanges if (e.engine, e.boot, e.number) == seen.source), None)
        left = seen.ended == "left"
        judgement = Judgement("left", outcomes=_ANY) if left else self._stayed(seen, served, exchanges)
        judgement.broken += seen.wrong
        self._check_integrity(seen, served, exchanges, judgement)
        self._check_resends(exchanges, judgement)
        self._check_removals(seen, exchanges, judgement)
        if seen.case.plan is not None:
            last = exchanges[-1].engine if exchanges else None
            judgement.hidden = any(removal.hides(last, seen.ended_at) for removal in self._removals)
        if left:
            self._check_noticed(seen, exchanges, judgement)
        return judgement

    # -- the invariants ------------------------------------------------------------------------------------------------

    def _check_integrity(
        self, seen: Seen, served: Exchange | None, exchanges: list[Exchange], judgement: Judgement
    ) -> None:
        broken = judgement.broken
        if seen.source is not None and served is None:
            broken.append(f"answered by exchange {seen.source}, which no journal has for it")
        if served is None:
            if seen.done:
                broken.append("a [DONE] that no engine wrote")
        else:
            if seen.done and not served.done:
                broken.append("a [DONE] that its engine did not write")
            if seen.ended == "clean":
                if served.end != "complete":
                    broken.append(f"a clean end, although the engine's answer {served.end}")
                elif (seen.length, seen.crc) != (served.wrote, served.crc):
                    broken.append(f"{seen.length} bytes came (crc {seen.crc:08x}), {served.wrote} were written")
            if seen.length > served.wrote and served.end != "killed":
                broken.append(f"{seen.length} bytes came, only {served.wrote} were written")
        if seen.sent:
            broken += [
                f"engine {e.engine} received the body {e.body_mark}, the client sent {seen.sent_mark}"
                for e in exchanges
                if e.body_at is not None and e.body_mark != seen.sent_mark
            ]
        if seen.case.plan is None and exchanges:
            broken.append("it reached an engine, although the proxy had to answer it")

    def _check_resends(self, exchanges: list[Exchange], judgement: Judgement) -> None:
        """Only after an early rejection, or after a reused connection died without a byte of an answer."""
        for before, after in pairwise(exchanges):
            if before.rejected:
                continue
            where = f"engine {before.engine} ({before.end}), then engine {after.engine}"
            if before.head_at is not None:
                judgement.broken.append(f"sent again after an answer had begun: {where}")
            elif before.nth == 1:
                judgement.broken.append(f"sent again after a fresh connection had taken it: {where}")
            elif before.end == "left":
                judgement.broken.append(f"sent again, though the engine was still at it: {where}")

    def _check_removals(self, seen: Seen, exchanges: list[Exchange], judgement: Judgement) -> None:
        for exchange in exchanges:
            for removal in self._removals:
                if removal.replica != f"e{exchange.engine}" or removal.confirmed is None:
                    continue
                if seen.began > removal.confirmed and (removal.back is None or exchange.at < removal.back):
                    judgement.broken.append(f"it went to {removal.replica}, which was out of the configuration")

    def _check_noticed(self, seen: Seen, exchanges: list[Exchange], judgement: Judgement) -> None:
        assert seen.left_at is not None
        for exchange in exchanges:
            if exchange.end != "left" or exchange.end_at is None:
                continue
            if exchange.end_at < seen.left_at:
                judgement.broken.append(f"the engine's connection closed {seen.left_at - exchange.end_at:.3f} s early")
            elif not self._out(exchange.engine, seen.left_at, exchange.end_at, ("freeze",)):
                if exchange.at > seen.left_at:
                    judgement.forwarded_late = True
                else:
                    judgement.noticed_s.append(exchange.end_at - seen.left_at)
            judgement.outcomes = frozenset({"client_closed"})

    # -- clients that stayed -------------------------------------------------------------------------------------------

    def _stayed(self, seen: Seen, served: Exchange | None, exchanges: list[Exchange]) -> Judgement:
        if seen.ended == "late":
            return Judgement("lost", "not over in all that time", ["the answer never ended"], _ANY)
        if seen.ended == "refused":
            return Judgement("lost", "the proxy took no connection", [], frozenset())
        if seen.status is None:
            return Judgement("lost", "the connection closed without an answer", [], _ANY)
        if seen.ended == "clean" and seen.source is not None:
            return self._whole_answer(seen, exchanges)
        if seen.ended == "clean":
            return self._own_answer(seen, exchanges)
        return self._cut(seen, served)

    def _whole_answer(self, seen: Seen, exchanges: list[Exchange]) -> Judgement:
        assert seen.status is not None
        assert seen.source is not None
        plan = _plan(seen)
        outcomes = frozenset({_outcome(seen.status)})
        if seen.source[0] in plan.reject_on:
            return self._rejected(seen, plan, exchanges, outcomes)
        if plan.status != 200 or plan.ending == "error_event":
            return Judgement("planned", outcomes=outcomes)
        return Judgement("ok", outcomes=outcomes)

    def _rejected(self, seen: Seen, plan: Plan, exchanges: list[Exchange], outcomes: frozenset[str]) -> Judgement:
        """A rejection may only be passed on when there was nowhere else to go."""
        broken = []
        if plan.reject_status != 404 and ("retry-after", "7") not in seen.headers:
            broken.append("Retry-After of a rejection is lost")
        if seen.case.owner is not None:
            owner = seen.case.owner
            reason = self._unreachable(owner, seen)
            if reason is None and not any(e.engine == owner for e in exchanges):
                return Judgement("lost", f"the replica that has it, e{owner}, was not asked", broken, outcomes)
            return Judgement("excused", reason or "the owner broke off", broken, outcomes)
        if sum(e.rejected for e in exchanges) >= 2:
            return Judgement("planned", "", broken, outcomes)
        if self._engines_out(seen):
            return Judgement("excused", "the other replica could not be reached", broken, outcomes)
        others = set(range(self._engines)) - {e.engine for e in exchanges}
        if all(self._unreachable(engine, seen) for engine in others):
            return Judgement("excused", "all others were held for unhealthy or out", broken, outcomes)
        return Judgement("lost", f"rejected once ({seen.status}) and not tried elsewhere", broken, outcomes)

    def _own_answer(self, seen: Seen, exchanges: list[Exchange]) -> Judgement:
        case, status = seen.case, seen.status
        assert status is not None
        if case.plan is None:
            if status == case.refusal:
                return Judgement("planned" if status != 200 else "ok", outcomes=frozenset({_outcome(status)}))
            busy = [e for e in range(self._engines) if self._unreachable(e, seen) or self._full(e, seen)]
            if (status, case.refusal) == (503, 404) and busy:
                why = "a replica whose models were not known could not take it"
                return Judgement("excused", why, outcomes=frozenset({"rejected", "connect_error"}))
            return Judgement("lost", f"{status} instead of {case.refusal}", [], _ANY)
        try:
            error = json.loads(seen.own_body)["error"]
            message, code = str(error["message"]), str(error["code"])
        except (ValueError, KeyError, TypeError):
            return Judgement("lost", f"{status} of its own", [f"no error object: {seen.own_body[:80]!r}"], _ANY)
        outcomes, ending = _OWN.get(status, _ANY), case.plan.ending
        if status == 502 and (ending == "no_head" or (ending in ("reset", "closed", "short") and exchanges)):
            return Judgement("planned", outcomes=outcomes)
        if status == 504 and ending in ("silent", "silent_head"):
            return Judgement("planned", outcomes=outcomes)
        if status == 502 and (named := _NAMED.search(message)) is not None:
            engine = int(named[1].removeprefix("e"))
            if self._out(engine, seen.began, seen.ended_at):
                return Judgement("excused", f"e{engine} died under it", [], outcomes)
            if exchanges and exchanges[-1].end == "raced" and (exchanges[-1].end_at or 0) > seen.began + _RACE_S:
                return Judgement("excused", "its connection was closed a second after it was sent", [], outcomes)
            unread = not any(e.engine == engine for e in exchanges)
            if unread and self._out(engine, seen.began, seen.ended_at, ("freeze",)):
                return Judgement("excused", f"e{engine} was frozen, then closed the connection unread", [], outcomes)
        if status == 503:
            broken = [] if any(name == "retry-after" for name, _ in seen.headers) else ["a 503 without Retry-After"]
            if len(self._engines_out(seen)) >= 2:
                return Judgement("excused", "two engines were out", broken, outcomes)
            return Judgement("lost", f"503 {code}: {message}", broken, outcomes)
        return Judgement("lost", f"{status} {code}: {message}", [], outcomes)

    def _cut(self, seen: Seen, served: Exchange | None) -> Judgement:
        plan = _plan(seen)
        outcomes = frozenset({"protocol_error", "timeout"})
        if served is None:
            return Judgement("lost", "cut in an answer of the proxy's own", [], _ANY)
        engine = served.engine
        if engine not in plan.reject_on and plan.ending in ("reset", "closed", "short", "silent"):
            return Judgement("planned", outcomes=outcomes)
        if served.end in ("killed", "terminated") or self._out(engine, served.at, seen.ended_at):
            return Judgement("excused", f"e{engine} died under it", [], outcomes)
        return Judgement("lost", f"cut after {seen.length} bytes, though the engine's answer {served.end}", [], _ANY)

    # -- who was out ---------------------------------------------------------------------------------------------------

    def _out(self, engine: int, start: float, end: float, kinds: tuple[str, ...] = ("kill", "term")) -> bool:
        return any(o.engine == engine and o.kind in kinds and o.overlaps(start, end) for o in self._outages)

    def _engines_out(self, seen: Seen) -> set[int]:
        return {o.engine for o in self._outages if o.kind != "freeze" and o.overlaps(seen.began, seen.ended_at)}

    def _full(self, engine: int, seen: Seen) -> bool:
        """Whether a replica was at its cap, or within a tenth of it: requests on their way are in no journal."""
        if self._cap is None:
            return False
        work = [e for each in self._exchanges.values() for e in each if e.engine == engine]
        first, last = seen.began, seen.ended_at
        died = [o.began for o in self._outages if o.engine == engine and o.kind != "freeze" and o.began < first]
        open_then = sum(
            e.at <= last and (e.end_at >= first if e.end_at is not None else not any(e.at <= at for at in died))
            for e in work
        )
        return open_then >= 0.9 * self._cap

    def _unreachable(self, engine: int, seen: Seen) -> str | None:
        """Why a replica may not have been asked, or None."""
        name = f"e{engine}"
        if self._out(engine, seen.began, seen.ended_at):
            return f"{name} was out"
        if any(down.replica == name and down.overlaps(seen.began, seen.ended_at) for down in self._downs):
            return f"{name} was held for unhealthy"
        if any(r.replica == name and r.asked < seen.ended_at and _later(r.back, seen.began) for r in self._removals):
            return f"{name} was out of the configuration"
        return None


_ANY = frozenset(
    {
        "ok", "client_closed", "client_error", "engine_error", "connect_error", "protocol_error", "timeout", "rejected",
    }
)  # fmt: skip
_OWN = {
    502: frozenset({"protocol_error"}),
    503: frozenset({"connect_error", "rejected"}),
    504: frozenset({"timeout"}),
}


def _later(moment: float | None, than: float) -> bool:
    # A replica that was put back must first be looked at.
    return moment is None or moment + 3 > than


def _plan(seen: Seen) -> Plan:
    plan = seen.case.plan
    assert plan is not None
    return plan


def _outcome(status: int) -> str:
    if status in (429, 503):
        return "rejected"
    if status >= 500:
        return "engine_error"
    return "client_error" if status >= 400 else "ok"

"""One tick of the live page: what it is told of this process, in sections.

The rows are made one by one, and the event loop goes on after every half a millisecond of that: a large fleet's tick
would else hold up the requests of this process. A section that changes seldom is made only when what it rests on is
another object than before.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

from adaptive_gamma._version import __version__
from adaptive_gamma.fleet.learned_page import learned_page
from adaptive_gamma.fleet.live import curves_page, gains_row, live_row, observed_row, policy_page, setting_key
from adaptive_gamma.page.event_stream import event
from adaptive_gamma.routing import PriceBook

if TYPE_CHECKING:
    from adaptive_gamma.fleet.choice import ServedPolicy
    from adaptive_gamma.proxy.data_plane import DataPlane

__all__ = ["DECISIONS_SHOWN", "LiveState"]

DECISIONS_SHOWN = 24
_IN_ONE_GO_S = 0.0005
"""Seconds of work after which the event loop gets its turn."""


class _Turns:
    """Hands over to the event loop where enough has been done in one go."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def may_pass(self) -> None:
        if time.perf_counter() - self._since >= _IN_ONE_GO_S:
            await asyncio.sleep(0)
            self._since = time.perf_counter()


class LiveState:
    """Makes the sections ``state``, ``policy``, ``curves``, ``learned`` and ``decisions`` out of a plane.

    The fleet's clock must be the plane's.
    """

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self._prices = PriceBook()
        self._policy: ServedPolicy | None = None
        self._policy_event = b""
        self._curves_for: tuple[ServedPolicy, frozenset[str | None]] | None = None
        self._curves_event = b""

    async def sections(self) -> dict[str, bytes]:
        """The sections as events, in the order in which a page needs them."""
        plane = self._plane
        policy = plane.policy
        if policy is not self._policy:
            self._policy_event = _event("policy", {"source": plane.settings.policy, **policy_page(policy)})
            self._policy = policy
        settings = frozenset(setting_key(state.speculative, state.gamma) for state in plane.fleet.states)
        if self._curves_for is None or self._curves_for[0] is not policy or self._curves_for[1] != settings:
            page = curves_page(plane.fleet.states, policy, policy.max_batch)
            self._curves_event, self._curves_for = _event("curves", page), (policy, settings)
        turns = _Turns()
        rows = []
        for replica in (*plane.fleet.replicas, *plane.fleet.leaving):
            rows.append(_json(live_row(replica, policy, self._prices, plane.clock())))
            await turns.may_pass()
        state = _json(self._process(policy))[:-1] + b',"replicas":[%b]}' % b",".join(rows)
        await turns.may_pass()
        learned = _event("learned", {"learned": learned_page(plane.learning)})
        decisions = []
        for row in plane.decisions.rows(DECISIONS_SHOWN):
            decisions.append(_decision(row))
            await turns.may_pass()
        return {
            "policy": self._policy_event,
            "curves": self._curves_event,
            "learned": learned,
            "decisions": _event("decisions", {"decisions": decisions}),
            "state": event("state", state),
        }

    def _process(self, policy: ServedPolicy) -> dict[str, Any]:
        plane = self._plane
        return {
            "time": round(time.time(), 1),
            "version": __version__,
            "mode": plane.chooser.mode,
            "ready": plane.not_ready_because is None,
            "not_ready_because": plane.not_ready_because,
            "draining": plane.draining,
            "queued": len(plane.waiting),
            "flag_above": plane.settings.cost_check.flag_above,
            "kv_usage_limit": plane.settings.decision.kv_usage_limit,
            "gains": gains_row(plane.fleet.replicas, policy, plane.clock()),
            "observed": observed_row(plane.fleet.replicas),
            "observations": plane.observations.summary() if plane.chooser.mode == "observe" else None,
            "decisions": plane.metrics.decision_counts(),
            "outcomes": plane.metrics.outcome_counts(),
            "discovery": [
                {key: row[key] for key in ("name", "kind", "source", "ready", "age_s", "error")}
                for row in plane.discovery()
            ],
        }


def _decision(row: dict[str, Any]) -> dict[str, Any]:
    """What the page shows of a row of ``/decisions``."""
    decision = row["decision"]
    chosen, runners_up = decision["chosen"], decision["runners_up"]
    return {
        "time": row["time"],
        "id": row["request_id"],
        "class": decision["class"],
        "decided": decision["replica"],
        "sent_to": row["sent_to"],
        "pool": decision["pool"],
        "gamma": decision["gamma"],
        "reason": decision["reason"],
        "load": chosen["load"],
        "cost_s": round(chosen["cost_s"], 6),
        "tpot_s": round(chosen["tpot_s"], 6),
        "cached_tokens": chosen["cached_tokens"],
        "next": [
            {
                "replica": each["replica"],
                "gamma": each["gamma"],
                "load": each["load"],
                "cost_s": round(each["cost_s"], 6),
            }
            for each in runners_up[:3]
        ],
        "excluded": len(decision["excluded"]),
        "outcome": row["outcome"],
        "status": row["status"],
    }


def _event(name: str, page: dict[str, Any]) -> bytes:
    return event(name, _json(page))


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")

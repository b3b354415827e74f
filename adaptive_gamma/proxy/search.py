"""Requests for an object that one replica keeps and nobody knows which."""

from __future__ import annotations

from adaptive_gamma.proxy.exchange import Exchange
from adaptive_gamma.proxy.headers import Pairs
from adaptive_gamma.proxy.stored_responses import response_id_of

__all__ = ["SearchExchange"]


class SearchExchange(Exchange):
    """Asks the replicas in turn until one answers other than 404: the one that is known to have the object first, then
    the healthy ones.

    The last 404 is passed on.
    """

    __slots__ = ("_names",)

    def begin(self) -> None:
        states, response_id = self._plane.fleet.states, response_id_of(self._request.path)
        holder = self._plane.stored.holder(response_id)
        ranked = sorted(states, key=lambda state: (state.name != holder, not state.healthy))
        self._names = [state.name for state in ranked][::-1]
        super().begin()

    def _advance(self) -> None:
        while self._names:
            name = self._names.pop()
            if name in self._plane.upstreams:  # else a reload has taken it away
                self._send_to(name, self._plane.fleet.by_name(name).state.pool)
                return
        self._give_up(None)

    def on_head(self, status: int, headers: Pairs, *, more: bool) -> None:
        response_id = response_id_of(self._request.path)
        if status == 200 and response_id is not None:
            self._plane.stored.put(response_id, self._replica)
        super().on_head(status, headers, more=more)

    def _wants_another(self, status: int) -> str | None:
        return "not_found" if status == 404 else None

    def _may_retry(self) -> bool:
        return True

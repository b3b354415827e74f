"""Requests for an object that one replica keeps and nobody knows which."""

from __future__ import annotations

from adaptive_gamma.proxy.exchange import Exchange

__all__ = ["SearchExchange"]


class SearchExchange(Exchange):
    """Asks the replicas in turn, healthy ones first, until one answers other than 404.

    The last 404 is passed on.
    """

    __slots__ = ("_names",)

    def begin(self) -> None:
        states = self._plane.fleet.states
        self._names = [state.name for state in sorted(states, key=lambda state: not state.healthy)][::-1]
        super().begin()

    def _advance(self) -> None:
        while self._names:
            name = self._names.pop()
            if name in self._plane.upstreams:  # else a reload has taken it away
                self._send_to(name, self._plane.fleet.by_name(name).state.pool)
                return
        self._give_up(None)

    def _wants_another(self, status: int) -> str | None:
        return "not_found" if status == 404 else None

    def _may_retry(self) -> bool:
        return True

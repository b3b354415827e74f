"""Exchanges that keep an account of themselves. Where nothing is to be told, the ones without are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adaptive_gamma.proxy.exchange import Exchange
from adaptive_gamma.proxy.metrics import NO_REPLICA
from adaptive_gamma.proxy.search import SearchExchange

if TYPE_CHECKING:
    from adaptive_gamma.proxy.account import RequestAccount
    from adaptive_gamma.proxy.answers import ErrorAnswer
    from adaptive_gamma.routing import Pool

__all__ = ["ToldExchange", "ToldSearch"]


class _Told(Exchange):
    __slots__ = ()

    @property
    def _account(self) -> RequestAccount:
        account = self._request.account
        assert account is not None, "this kind is made of requests with one"
        return account

    def _send_to(self, name: str, pool: Pool) -> None:
        self._account.sent()
        super()._send_to(name, pool)

    def on_body(self, pieces: list[bytes], *, more: bool) -> None:
        self._account.heard(pieces)
        super().on_body(pieces, more=more)

    def on_end(self) -> None:
        account, tap = self._account, self._tap
        account.ending = True
        try:
            super().on_end()
        finally:
            if tap is not None:
                account.acceptance = tap.acceptance
            self._tell(account)

    def _refuse(self, error: ErrorAnswer) -> None:
        self._account.code = error.code
        super()._refuse(error)

    def _end(self) -> None:
        super()._end()
        if not self._account.ending:
            self._tell(self._account)

    def _tell(self, account: RequestAccount) -> None:
        account.model = self._needs.model
        account.request_class = self._request_class
        if self._replica != NO_REPLICA:
            choice = self._choice
            account.replica, account.pool = self._replica, self._pool
            account.gamma, account.reason = (None, "search") if choice is None else (choice.gamma, choice.reason)
        account.ended(self._outcome, self._status)


class ToldExchange(_Told):
    """An exchange that tells how it went."""

    __slots__ = ()


class ToldSearch(_Told, SearchExchange):
    """A search that tells how it went."""

    __slots__ = ()

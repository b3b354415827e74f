"""A dialect whose engine tells nothing of single requests, to be made out of by those of little else than a page."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from adaptive_gamma.engines.reading import EngineReading, RequestAcceptance, StreamAsk

__all__ = ["PlainDialect"]


class PlainDialect(ABC):
    """What an engine with one metrics page is like; a subclass has its ``name`` and reads the page."""

    name: str
    metrics_paths: tuple[str, ...] = ("/metrics",)
    refused_parameters: frozenset[str] = frozenset()
    acceptance_mark = b"\0"
    """In no JSON text."""
    stream_ask: StreamAsk | None = None

    @abstractmethod
    def read(self, pages: Mapping[str, str]) -> EngineReading:
        """As in ``Dialect``."""

    def gamma_from_response(self, body: Mapping[str, object]) -> int | None:
        """None: answers tell nothing."""
        return None

    def acceptance_from_response(self, body: Mapping[str, object]) -> RequestAcceptance | None:
        """None: answers tell nothing."""
        return None

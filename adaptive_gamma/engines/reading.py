"""What one look at an engine gave, in the field's words and without any engine's metric names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Dialect", "EngineReading", "LatencySum", "SpeculationCounters"]


@dataclass(frozen=True, slots=True)
class SpeculationCounters:
    """Totals since the engine started, summed over its data-parallel ranks.

    ``accepted_per_position[i]`` counts drafts whose first i+1 tokens were all accepted, so it never rises with i;
    it is empty when the engine has no such series (yet).
    """

    drafts: float | None
    """Verify steps that had at least one draft token, over all sequences; None on engines that do not say."""
    draft_tokens: float
    accepted_tokens: float
    """Accepted draft tokens, the bonus token not counted."""
    accepted_per_position: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LatencySum:
    """Sum (seconds) and count of a latency histogram since the engine started."""

    seconds: float
    count: float


@dataclass(frozen=True, slots=True)
class EngineReading:
    """One scrape. A value the pages did not hold is None, never 0."""

    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    """Share of the KV cache in use, 0..1."""
    speculative: bool | None = None
    """Whether a drafter is configured; None where the pages cannot tell."""
    gamma: int | None = None
    """Configured draft tokens per step where the pages tell it (number of position labels)."""
    speculation: SpeculationCounters | None = None
    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    inter_token_latency: LatencySum | None = None
    """On a speculating engine one sample per step, not per token."""
    awake: bool | None = None
    """False while the engine sleeps and cannot serve."""


class Dialect(Protocol):
    """One engine's names. The only thing outside ``engines/`` that knows an engine is the string ``name``."""

    name: str
    metrics_paths: tuple[str, ...]
    """Pages a scrape fetches; the first one must answer, the others may fail."""
    refused_parameters: frozenset[str]
    """Request parameters a replica of this engine refuses while it speculates."""

    def read(self, pages: Mapping[str, str]) -> EngineReading:
        """Turn fetched pages (path -> text) into a reading.

        Raises:
            ScrapeError: the first page is not a metrics page of this engine (``reason``: ``not_metrics``,
                ``empty``, ``truncated``, ``no_series``).
        """

    def gamma_from_response(self, body: Mapping[str, object]) -> int | None:
        """Gamma as a response's own fields tell it (an upper bound where the engine reports only totals)."""

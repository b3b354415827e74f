"""What one look at an engine gave, in the field's words and without any engine's metric names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

__all__ = ["Dialect", "EngineReading", "LatencySum", "RequestAcceptance", "SpeculationCounters", "StreamAsk"]


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
    drafted_per_position: tuple[float, ...] = ()
    """Drafts that had a token at each position, so it never rises; as long as ``accepted_per_position``, or empty on
    engines that do not count them."""


@dataclass(frozen=True, slots=True)
class LatencySum:
    """Sum (seconds) and count of a latency histogram since the engine started."""

    seconds: float
    count: float
    at_end: bool = False
    """The totals move when a request ends, by all of its steps at once; else as the steps are done."""


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
    scheduled_gamma: int | None = None
    """Draft tokens each sequence was given in the last step, where the engine says so."""
    first_tokens: float | None = None
    """Requests that were given a first token."""
    engine_steps: float | None = None
    """Steps of the engine, those that only fill in prompts included."""
    kv_tokens: int | None = None
    """Tokens that the KV cache holds; of several ranks, that of the smallest."""
    started_at: float | None = None
    """When the engine's counters began, in Unix seconds."""


@dataclass(frozen=True, slots=True)
class RequestAcceptance:
    """How the drafts of one request fared, as the engine's answer to it says. Made only of numbers that agree.

    A histogram tells acceptance by position only where every draft had the same length: of a step that accepted all
    of a short draft nobody knows what a longer one would have brought. ``position_counts`` minds that.
    """

    drafts: int | None
    """Verify steps that had at least one draft token; None on engines that do not say."""
    draft_tokens: int
    """At least 1: a request without drafts tells nothing about acceptance."""
    accepted_tokens: int
    """Accepted draft tokens, the bonus token not counted; at most ``draft_tokens``."""
    histogram: tuple[int, ...] | None
    """Steps that accepted exactly j = 0..gamma draft tokens; they add up to ``drafts``."""
    gamma: int | None
    """The engine's configured draft length, where the answer tells it."""
    most_drafts: int | None = None
    """Where ``drafts`` is None: the target's passes, the prompt's among them; it had no more drafts, unless accepted
    tokens were cut away where the answer stops."""
    trials: tuple[tuple[int, int], ...] | None = None
    """For each position (accepted, tried), all positions before it having been accepted, where the engine reports
    every step by itself; exact for any mix of draft lengths."""

    def position_counts(self) -> tuple[tuple[int, int], ...] | None:
        """For each position (accepted, tried), all before it accepted; None where the report cannot tell it unbiased.

        Known where the engine reports steps one by one, and from a histogram where all drafts had ``gamma`` tokens.
        """
        if self.trials is not None:
            return self.trials
        histogram = self.histogram
        if histogram is None or self.gamma is None or self.draft_tokens != self.gamma * (self.drafts or 0):
            return None
        tried = sum(histogram)
        counts = []
        for refused in histogram[:-1]:
            counts.append((tried - refused, tried))
            tried -= refused
        return tuple(counts)

    def without_positions(self) -> RequestAcceptance:
        """The totals alone, where the draft length behind the rest is not believed."""
        return replace(self, histogram=None, gamma=None, trials=None)


@dataclass(frozen=True, slots=True)
class StreamAsk:
    """What a request for a stream must hold for its stream to tell of the drafts, on engines that tell only who asks.

    The engine then sends one event more, near the stream's end, and the others as before.
    """

    paths: frozenset[str]
    """Where it is understood."""
    member: str
    """Top-level member of the request's JSON object."""
    option: str | None
    """The switch inside that member's object; None where the member is the switch itself."""
    not_beside: frozenset[str]
    """Options in the same object that would change other events too, were they switched on by this one."""
    mark: bytes
    """Bytes that the JSON text of the event added holds."""
    is_added: Callable[[Mapping[str, object]], bool]
    """Whether the JSON object of an event is the one that was added."""


class Dialect(Protocol):
    """One engine's names. The only thing outside ``engines/`` that knows an engine is the string ``name``."""

    name: str
    metrics_paths: tuple[str, ...]
    """Pages a scrape fetches; the first one must answer, the others may fail."""
    refused_parameters: frozenset[str]
    """Request parameters a replica of this engine refuses while it speculates."""
    acceptance_mark: bytes
    """Bytes that the JSON text of every answer with a report on its drafts holds."""
    stream_ask: StreamAsk | None
    """How a stream is made to report; None where it reports unasked, or never."""

    def read(self, pages: Mapping[str, str]) -> EngineReading:
        """Turn fetched pages (path -> text) into a reading.

        Raises:
            ScrapeError: the first page is not a metrics page of this engine (``reason``: ``not_metrics``,
                ``empty``, ``truncated``, ``no_series``).
        """

    def gamma_from_response(self, body: Mapping[str, object]) -> int | None:
        """Gamma as a response's own fields tell it (an upper bound where the engine reports only totals)."""

    def acceptance_from_response(self, body: Mapping[str, object]) -> RequestAcceptance | None:
        """How the drafts of a request fared, out of the JSON object of its answer or of one of its stream's events.

        None where the answer does not say, where nothing was drafted, and where what it says does not add up.
        """

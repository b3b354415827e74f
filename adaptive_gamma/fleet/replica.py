"""One replica as it is watched: what was read, what follows from it, what it is doing for us now."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from adaptive_gamma.config.settings import ReplicaSettings
from adaptive_gamma.engines import Dialect, EngineReading, dialect_for
from adaptive_gamma.errors import ScrapeError
from adaptive_gamma.fleet.accepted import AcceptancePrior, acceptance_ratio, routing_ratio
from adaptive_gamma.fleet.control_view import GammaControlView
from adaptive_gamma.fleet.cost_check import CostCheck
from adaptive_gamma.fleet.gamma import EngineEvidence, GammaFinding, GammaMismatch, configured_gamma, find_gamma
from adaptive_gamma.fleet.health import HealthMonitor
from adaptive_gamma.fleet.models import ModelList
from adaptive_gamma.fleet.open_requests import OpenRequests
from adaptive_gamma.fleet.options import FleetOptions
from adaptive_gamma.fleet.status import replica_status
from adaptive_gamma.fleet.window import AcceptanceWindow, DraftCounts, PositionRate
from adaptive_gamma.routing.capability import STRUCTURED_OUTPUT
from adaptive_gamma.routing.replica import GammaSetting, ReplicaState

__all__ = ["AcceptancePrior", "FleetReplica"]

_log = logging.getLogger("adaptive_gamma.fleet")


class FleetReplica:
    """A replica's live state. Its fleet calls the ``took_`` and ``missed_`` methods; others read.

    Args:
        settings: the replica as configured.
        options: what holds for all replicas alike.
        clock: monotonic seconds.
        cache_lost: called with the replica's name when its engine's KV cache can no longer be counted on.
    """

    def __init__(
        self,
        settings: ReplicaSettings,
        options: FleetOptions,
        *,
        clock: Callable[[], float],
        cache_lost: Callable[[str], None],
    ) -> None:
        self.name = settings.name
        self.url = settings.url
        self.engine = settings.engine
        self.dialect: Dialect = dialect_for(settings.engine)
        self.state = ReplicaState(name=settings.name)
        self.health = HealthMonitor()
        self.reading: EngineReading | None = None
        self.scraped_at: float | None = None
        """Monotonic seconds at which the scrape behind ``reading`` started."""
        self.scrape_error: ScrapeError | None = None
        """Why the last scrape failed; None when it did not."""
        self.scrape_failures: Counter[str] = Counter()
        """Failed scrapes by reason, since the start."""
        self.seen = False
        """Whether the engine has ever given a good answer, to whatever was asked."""
        self.awake: bool | None = None
        """False while the engine sleeps; None when it does not say, or has not said lately."""
        self.restarts = 0
        """Restarts of the engine seen in its counters."""
        self.model_entries: list[dict[str, Any]] | None = None
        """What the engine's model list holds (restricted to the configured model); None until known."""
        self.models_asked = False
        """Whether the engine has been asked for its model list once, whatever it said."""
        self.leaving = False
        """Whether it was removed and only waits for its last requests to end."""
        self.on_drafts: Callable[[FleetReplica, DraftCounts, float], None] | None = None
        """Called with what a scrape counted since the one before and its time, where anything was drafted."""
        self._clock = clock
        self._cache_lost = cache_lost
        self._seen = EngineEvidence()
        self._window = AcceptanceWindow()
        self._drafted_at = clock()
        self.cost = CostCheck(options.cost_check, options.scrape.half_life_s)
        """Whether its steps take the time the policy predicts."""
        self.open_requests = OpenRequests(self.state, clock)
        """Our requests that are open on it."""
        self._mismatch: GammaMismatch | None = None
        self.own_gamma: int | None = None
        """What the engine drafts when it is not told otherwise; None where that is a schedule or not known."""
        self.commanded_gamma: GammaSetting | None = None
        """What it is known to draft in place of that, by whoever it was told."""
        self.control: GammaControlView | None = None
        """Who sets its gamma, where that is done."""
        self.ratio_of_answers: float | None = None
        """Accepted tokens that answers told of over those expected, where gamma goes with each request."""
        self.counted_ratio: float | None = None
        """The same out of the engine's counters."""
        self.model_missing = False
        """The engine does not list the configured model."""
        self._models_dropped = False
        self.settings = settings
        self._configure(settings, options)
        self._take_models(settings.model)
        self._take_finding(find_gamma(self.configured_gamma, self._seen), announce=False)

    @property
    def acceptance(self) -> tuple[float, ...] | None:
        """Acceptance by position given the position before, over the decayed window.

        None without data, and where drafts vary in length on an engine that does not count them by position.
        """
        return self._window.conditional

    def position_acceptance(self) -> tuple[PositionRate, ...] | None:
        """:attr:`acceptance` with the decayed number of drafts that reached each position."""
        return self._window.position_rates()

    @property
    def accepted_per_draft(self) -> float | None:
        """Mean accepted tokens of a draft over the decayed window, the bonus token not counted."""
        return self._window.accepted_per_draft

    @property
    def variable_draft_length(self) -> bool | None:
        """Whether drafts were shorter than the configured gamma lately; None when not known."""
        return self._window.variable_draft_length

    @property
    def drafted_by_position(self) -> bool:
        """Whether the engine counts drafts by position too, so that their length biases nothing."""
        return self._window.drafted_by_position

    @property
    def gamma_mismatch(self) -> GammaMismatch | None:
        """Where the configured gamma is not what the engine shows."""
        return self._mismatch

    @property
    def in_flight_by_class(self) -> dict[str, int]:
        """Our open requests now, by class."""
        return self.open_requests.by_class

    def reconfigure(self, settings: ReplicaSettings, options: FleetOptions) -> None:
        """Go on with other settings of the same replica. What was read and is open stays."""
        before, self.settings = self.settings, settings
        self._configure(settings, options)
        if settings.model != before.model:
            self._take_models(settings.model)
        if settings.gamma != before.gamma:
            self._take_finding(find_gamma(self.configured_gamma, self._seen))

    def join(self) -> None:
        """The replica is (again) one of a fleet that serves already: it starts slowly."""
        self.leaving = self.state.draining = False
        self.open_requests.on_idle = None
        self._ramp()

    def leave(self, vanish: Callable[[FleetReplica], None]) -> None:
        """The replica was removed: ``vanish`` is called when the last of its open requests has ended."""
        self.leaving = self.state.draining = True
        self.open_requests.on_idle = lambda: vanish(self)

    def took_reading(
        self, reading: EngineReading, *, started_at: float, in_flight_at_start: int, prior: AcceptancePrior | None
    ) -> None:
        """A scrape gave a reading.

        Args:
            reading: what it gave.
            started_at: monotonic seconds when the scrape started; the reading ages from then.
            in_flight_at_start: our open requests at that moment. The engine counted some time after it, so a request
                opened in between may be in both its gauges and the difference that the decision adds to them: for one
                interval the replica looks a little fuller than it is. Taken at the end of the scrape instead, a
                request that reached the engine after it had counted would be in neither, and a burst would be
                invisible until the next scrape.
            prior: the policy's acceptance by class, where there is one.
        """
        previous, self.reading = self.reading, reading
        shares = self.open_requests.seconds_by_class()
        update = self._window.update(
            reading.speculation,
            started_at,
            shares,
            restarted=previous is not None and _output_fell(previous, reading),
        )
        if update.drafts > 0:
            self.open_requests.forget_seconds()
            self._drafted_at = started_at
        if update.restarted:
            self.restarts += 1
            self._seen.restarted()
            self.cost.forget()
            _log.warning("replica %s: the engine restarted, its counters began anew", self.name)
            self._began_anew()
        if update.changed:
            _log.debug("replica %s: acceptance changed, the window before is dropped", self.name)
        self._seen.page(reading.speculative, reading.gamma)
        self._take_finding(find_gamma(self.configured_gamma, self._seen))
        if update.counts is not None and self.on_drafts is not None:
            self.on_drafts(self, update.counts, started_at)
        ratio = self._acceptance_ratio(prior, started_at)
        was_flagged = self.cost.flagged
        self.cost.look(
            reading,
            started_at,
            prior,
            speculative=self.state.speculative,
            gamma=self.state.gamma,
            class_shares=shares,
            acceptance_ratio=ratio,
        )
        # what can meet a fault lies above: a reading is believed whole or not at all
        if self.scrape_error is not None:
            _log.info("replica %s: metrics are read again", self.name)
            self.scrape_error = None
        self.scraped_at = started_at
        self.seen = True
        state = self.state
        state.running, state.waiting, state.kv_usage = reading.running, reading.waiting, reading.kv_usage
        state.fresh_until = started_at + self._stale_after_s
        state.in_flight_at_scrape = in_flight_at_start
        state.acceptance_ratio = ratio
        state.step_time_ratio = self.cost.correction
        if self.cost.flagged != was_flagged:
            if was_flagged:
                _log.info("replica %s: steps take the predicted time again", self.name)
            else:
                _log.warning("replica %s: %s", self.name, self.cost.words)
        if (self.awake is False) != (reading.awake is False):
            _log.info("replica %s: the engine %s", self.name, "sleeps" if reading.awake is False else "is awake")
        self.awake = reading.awake
        self._refresh_health()

    def reprice(self, prior: AcceptancePrior | None) -> None:
        """Another policy is in force: what was accepted lately is held against that one from now on."""
        self.state.acceptance_ratio = self._acceptance_ratio(prior, self._clock())

    def missed_reading(self, error: ScrapeError, now: float) -> None:
        """A scrape failed. What was read before is believed until it is stale."""
        self.scrape_failures[error.reason] += 1
        if self.scrape_error is None or self.scrape_error.reason != error.reason:
            _log.warning("replica %s: metrics cannot be read: %s", self.name, error)
        self.scrape_error = error
        if now > self.state.fresh_until:
            self.awake = None
        self._refresh_health()

    def took_response(self, body: Mapping[str, object]) -> None:
        """Learn gamma from a response's own fields, on engines whose pages do not tell it."""
        gamma = self.dialect.gamma_from_response(body)
        if gamma is not None:
            self._seen.answer(gamma)
            self._take_finding(find_gamma(self.configured_gamma, self._seen))

    def took_probe(self, error: ScrapeError | None) -> None:
        """A health probe came back, failed or not."""
        self.seen = self.seen or error is None
        if self.health.probed(error is None):
            if error is None:
                _log.info("replica %s is up", self.name)
            else:
                _log.warning("replica %s is down: %s", self.name, error)
        self._refresh_health()

    def connect_failed(self) -> None:
        """A request could not connect to the replica."""
        if self.health.connect_failed():
            _log.warning("replica %s is down: requests cannot connect", self.name)
        self._refresh_health()

    def request_failed(self) -> None:
        """A request got an answer that speaks against the replica, or half of one."""
        if self.health.answer_failed():
            _log.warning("replica %s is down: its answers fail", self.name)
        self._refresh_health()

    def answered(self) -> None:
        """A request got an answer from the replica."""
        self.seen = True
        self.health.answered()

    def took_models(self, listed: ModelList) -> None:
        """The engine listed its models. A list of which nothing could be read leaves what was known."""
        if listed.dropped and not self._models_dropped:
            _log.warning(
                "replica %s: %d entries of its model list cannot be read and are left out", self.name, listed.dropped
            )
            self._models_dropped = True
        entries, only = listed.entries, self.settings.model
        if entries is None:
            return
        self.model_entries = [entry for entry in entries if only is None or entry.get("id") == only]
        if only is None:
            self.state.models = frozenset(str(entry["id"]) for entry in entries)
            return
        missing = not self.model_entries
        if missing and not self.model_missing:
            _log.warning("replica %s: the engine does not list the configured model %s", self.name, only)
        self.model_missing = missing

    def command_gamma(self, gamma: GammaSetting | None) -> None:
        """What is in force from now on in place of the engine's own gamma; None: the engine's own."""
        if gamma != self.commanded_gamma:
            self.commanded_gamma = gamma
            self._take_finding(find_gamma(self.configured_gamma, self._seen))

    def _take_finding(self, finding: GammaFinding, *, announce: bool = True) -> None:
        state = self.state
        if announce and finding.mismatch != self._mismatch:
            if finding.mismatch is None:
                _log.info("replica %s: gamma is as configured again", self.name)
            else:
                _log.warning(
                    "replica %s: configured gamma %s, the engine shows %s",
                    self.name,
                    finding.mismatch.configured,
                    "another" if finding.mismatch.engine is None else finding.mismatch.engine,
                )
        gamma = self.commanded_gamma if finding.speculative and self.commanded_gamma is not None else finding.gamma
        if announce and (gamma, finding.speculative) != (state.gamma, state.speculative):
            before = "" if state.gamma is None else f", was {state.gamma}"
            _log.info("replica %s: %s%s", self.name, _gamma_words(finding.speculative, gamma), before)
        self._mismatch = finding.mismatch
        self.own_gamma = finding.gamma if finding.speculative and isinstance(finding.gamma, int) else None
        state.speculative, state.gamma = finding.speculative, gamma
        self._take_capability()

    def _configure(self, settings: ReplicaSettings, options: FleetOptions) -> None:
        self.configured_gamma = configured_gamma(settings.gamma)
        self._stale_after_s = options.scrape.stale_after_s
        self._ramp_s = options.health.ramp_s
        self._window.half_life_s = self.cost.half_life_s = options.scrape.half_life_s
        self.cost.settings = options.cost_check
        self.health.set_limits(down_after=options.health.down_after, up_after=options.health.up_after)
        capability, drafter = options.capability, settings.drafter_context
        self._refused = frozenset({STRUCTURED_OUTPUT}) if capability.structured_output == "plain" else frozenset[str]()
        self._context_limit = None if drafter is None else int(drafter * (1.0 - capability.context_margin))
        self._take_capability()
        own = settings.max_in_flight
        self.state.max_in_flight = options.load.max_in_flight if own is None else own

    def _take_capability(self) -> None:
        """What the engine cannot do while it speculates."""
        state, speculative = self.state, self.state.speculative
        state.refused_parameters = self._refused | self.dialect.refused_parameters if speculative else frozenset()
        state.context_limit = self._context_limit if speculative else None

    def _take_models(self, only: str | None) -> None:
        """Until the engine's next list: the configured model, or nothing known."""
        self.state.models = None if only is None else frozenset({only})
        self.model_entries, self.model_missing = None, False

    def _refresh_health(self) -> None:
        before, self.state.healthy = self.state.healthy, self.health.up and self.awake is not False
        if self.state.healthy and not before:
            self._began_anew()

    def _began_anew(self) -> None:
        """The engine is back: its cache is cold, and a burst of all that waited for it would hit it at once."""
        self._ramp()
        self._cache_lost(self.name)

    def _ramp(self) -> None:
        if self._ramp_s > 0:
            self.state.ramp_until, self.state.ramp_s = self._clock() + self._ramp_s, self._ramp_s

    def _acceptance_ratio(self, prior: AcceptancePrior | None, now: float) -> float | None:
        """What the decision multiplies expected acceptance by: what answers told, else what was counted."""
        self.counted_ratio = acceptance_ratio(self._window, prior, self.state.gamma)
        ratio = self.counted_ratio if self.ratio_of_answers is None else self.ratio_of_answers
        return routing_ratio(ratio, now - self._drafted_at)

    def as_dict(self, now: float) -> dict[str, Any]:
        """The replica in ``/status``."""
        return replica_status(self, now)


def _output_fell(previous: EngineReading, reading: EngineReading) -> bool:
    """Whether the token totals show a restart, for engines that have not drafted and those that never do."""
    pairs = (
        (previous.generation_tokens, reading.generation_tokens),
        (previous.prompt_tokens, reading.prompt_tokens),
    )
    return any(old is not None and new is not None and new < old for old, new in pairs)


def _gamma_words(speculative: bool | None, gamma: GammaSetting | None) -> str:
    """Of which pool it is, and its gamma."""
    if speculative is None:
        return "whether it speculates is not known"
    pool = "speculative" if speculative else "plain"
    return f"{pool}, gamma {'not known' if gamma is None else gamma}"

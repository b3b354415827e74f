"""Which replica a request goes to: the one where its tokens come cheapest, its neighbours' delay included.

    cost(r) = tau_r(n+1) + n (tau_r(n+1) - tau_r(n)),        tau_r(n) = t_step(n, gamma_r) / E_r(class, gamma_r)

``n`` is the number of requests already on replica r, ``tau`` a request's time per output token there in seconds. The
first term is what the request itself pays, the second what it takes from the n others. ``E_r`` is the policy's
expected tokens per step, its accepted part scaled by the acceptance seen on that replica lately.

Reasons (``Decision.reason``):

``low_load``
    A speculative replica, and every class of the policy would have gone to one at these loads.
``class``
    The request's class tipped it: a speculative replica although another class would now go to a plain one, or a
    plain one because this class loses on a drafter even when nothing else runs.
``high_load``
    A plain replica, although this class would speculate on an idle fleet.
``capability``
    The cheapest replica refuses a parameter of the request.
``balance``
    Replicas of one pool only; the least loaded of equals.
``only_replica``
    There was nothing to choose from.
``fallback``
    No replica is healthy; one is tried all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from adaptive_gamma.errors import NoReplica
from adaptive_gamma.routing.decision import Candidate, Decision, RequestNeeds
from adaptive_gamma.routing.replica import GammaSchedule, GammaSetting, ReplicaState

__all__ = ["DecisionLimits", "PolicyPrices", "decide", "least_loaded", "load_of"]

_RUNNERS_UP = 3

# A replica that misses a soft requirement is used only when nothing better is left; the bits add up to a rank.
_OVER_LIMIT = 1
_UNHEALTHY = 2
_REFUSES = 4

_Weighed: TypeAlias = tuple[float, int, int]
"""Marginal cost in seconds, index into the states, load found."""


class PolicyPrices(Protocol):
    """What the decision asks of a policy; ``adaptive_gamma.policy.Policy`` answers it."""

    @property
    def classes(self) -> tuple[str, ...]: ...

    def class_for(self, name: str) -> str: ...

    def expected_tokens(self, request_class: str, gamma: int) -> float: ...

    def step_seconds(
        self, batch: int, gamma: int, context_tokens: float | None = None, speculative: bool = True
    ) -> float: ...

    def marginal_row(
        self, gamma: int, context_tokens: float | None = None, speculative: bool = True
    ) -> list[float]: ...


@dataclass(frozen=True, slots=True)
class DecisionLimits:
    """Soft limits: a replica over one is used only when every other is over one too."""

    kv_usage: float = 0.95
    """Share of the KV cache above which a replica takes no further request."""
    slo_tpot_s: float | None = None
    """Time per output token a request may be given, in seconds; None sets no limit."""
    tie_margin: float = 0.01
    """Costs this close (relative) are equal; the less loaded of two drawn at random wins."""


_NO_LIMITS = DecisionLimits()


def load_of(state: ReplicaState, now: float) -> int | None:
    """Requests on a replica: our own open ones now, plus those of others at the last scrape; None when not known.

    What the engine counted beyond our own requests at that moment came from elsewhere and is assumed still there. Our
    own are counted as they are now, so that a gauge up to an interval old cannot draw a herd.
    """
    if state.running is None or state.fresh_until < now:
        return None
    return state.in_flight + max(0, state.running + (state.waiting or 0) - state.in_flight_at_scrape)


def decide(
    needs: RequestNeeds,
    states: Sequence[ReplicaState],
    policy: PolicyPrices,
    *,
    now: float,
    tie_break: float,
    limits: DecisionLimits = _NO_LIMITS,
    exclude: Collection[str] = (),
) -> Decision:
    """Choose a replica for a request.

    Args:
        needs: the request's class, prompt length, model and delicate parameters.
        states: the fleet as it is known now; only read.
        policy: prices of steps and expected tokens.
        now: seconds on the clock that ``ReplicaState.fresh_until`` uses.
        tie_break: a number in [0, 1) that settles ties; random in service, fixed in a replay.
        limits: soft limits on KV use and time per output token.
        exclude: names already tried for this request.

    Raises:
        NoReplica: every replica is excluded, draining, or does not have the model.
    """
    request_class = policy.class_for(needs.request_class)
    context, model, parameters = needs.prompt_tokens, needs.model, needs.parameters
    kv_limit, slo = limits.kv_usage, limits.slo_tpot_s
    foreign_of_unread: int | None = None
    prices: dict[GammaSetting | None, tuple[list[float], float]] = {}
    excluded: list[tuple[str, str]] = []
    weighed: list[_Weighed] = []
    demoted: dict[int, list[_Weighed]] = {}

    for index, state in enumerate(states):
        if state.draining:
            excluded.append((state.name, "draining"))
            continue
        if model is not None and state.models is not None and model not in state.models:
            excluded.append((state.name, "model"))
            continue
        if exclude and state.name in exclude:
            excluded.append((state.name, "already tried"))
            continue

        rank = 0 if state.healthy else _UNHEALTHY
        load = state.in_flight
        if state.running is not None and state.fresh_until >= now:
            foreign = state.running + (state.waiting or 0) - state.in_flight_at_scrape
            if foreign > 0:
                load += foreign
            kv_usage = state.kv_usage
            if kv_usage is not None and kv_usage >= kv_limit:
                rank |= _OVER_LIMIT
        else:
            if foreign_of_unread is None:
                foreign_of_unread = _typical_foreign_load(states, now)
            load += foreign_of_unread
        if parameters and not parameters.isdisjoint(state.refused_parameters):
            rank |= _REFUSES

        gamma = state.gamma if state.speculative else None
        found = prices.get(gamma)
        if found is None and not isinstance(gamma, GammaSchedule):
            found = prices[gamma] = _prices(policy, request_class, gamma, context)
        if found is None:
            cost = _schedule_cost(state, request_class, policy, context, load)
        else:
            row, accepted = found
            try:
                cost = row[load]
            except IndexError:
                cost = _marginal_beyond(policy, load, gamma, context)
            ratio = state.acceptance_ratio
            cost /= 1.0 + (accepted if ratio is None else accepted * ratio)
        if slo is not None and _tpot(state, request_class, policy, context, load + 1) > slo:
            rank |= _OVER_LIMIT
        if rank:
            demoted.setdefault(rank, []).append((cost, index, load))
        else:
            weighed.append((cost, index, load))

    rank = 0
    if not weighed:
        if not demoted:
            raise _no_replica(needs, states, excluded)
        rank = min(demoted)
        weighed = demoted.pop(rank)
    weighed.sort()
    best = _settle_tie(weighed, limits.tie_margin, tie_break)
    for other_rank, entries in demoted.items():
        excluded += [(states[i].name, _why(other_rank, states[i], limits)) for _, i, _ in entries]

    def candidate(entry: _Weighed) -> Candidate:
        cost, index, load = entry
        state = states[index]
        gamma, _ = _gamma_at(state, load + 1)
        known = state.gamma is not None or state.speculative is False
        tpot = _tpot(state, request_class, policy, context, load + 1)
        return Candidate(state.name, state.pool, gamma if known else None, load, cost, tpot)

    chosen = candidate(best)
    return Decision(
        request_class=request_class,
        replica=chosen.replica,
        pool=chosen.pool,
        gamma=chosen.gamma,
        reason=_reason(best, rank, weighed, demoted, states, request_class, policy, context),
        chosen=chosen,
        runners_up=tuple([candidate(e) for e in weighed[: _RUNNERS_UP + 1] if e is not best][:_RUNNERS_UP]),
        excluded=tuple(excluded),
    )


def least_loaded(
    needs: RequestNeeds,
    states: Sequence[ReplicaState],
    *,
    now: float,
    tie_break: float,
    exclude: Collection[str] = (),
) -> ReplicaState:
    """The rule that knows nothing of speculation: fewest requests, healthy first. Used while only observing.

    Raises:
        NoReplica: as in ``decide``.
    """
    unread = _typical_foreign_load(states, now)
    ranked: dict[int, list[_Weighed]] = {}
    excluded: list[tuple[str, str]] = []
    for index, state in enumerate(states):
        if state.draining:
            excluded.append((state.name, "draining"))
        elif needs.model is not None and state.models is not None and needs.model not in state.models:
            excluded.append((state.name, "model"))
        elif state.name in exclude:
            excluded.append((state.name, "already tried"))
        else:
            load = load_of(state, now)
            load = state.in_flight + unread if load is None else load
            refuses = not needs.parameters.isdisjoint(state.refused_parameters)
            rank = (0 if state.healthy else _UNHEALTHY) | (_REFUSES if refuses else 0)
            ranked.setdefault(rank, []).append((float(load), index, load))
    if not ranked:
        raise _no_replica(needs, states, excluded)
    return states[_settle_tie(sorted(ranked[min(ranked)]), 0.0, tie_break)[1]]


def _typical_foreign_load(states: Sequence[ReplicaState], now: float) -> int:
    """What an unread replica is assumed to carry for others: as much as its read peers do on average, rounded up."""
    known = [
        max(0, s.running + (s.waiting or 0) - s.in_flight_at_scrape)
        for s in states
        if s.running is not None and s.fresh_until >= now
    ]
    return -(-sum(known) // len(known)) if known else 0


def _settle_tie(weighed: list[_Weighed], margin: float, tie_break: float) -> _Weighed:
    """The less loaded of two drawn at random among those whose cost is within the margin of the cheapest.

    ``weighed`` is sorted by cost.
    """
    highest = weighed[0][0] * (1.0 + margin)
    tied = 1
    while tied < len(weighed) and weighed[tied][0] <= highest:
        tied += 1
    if tied == 1:
        return weighed[0]
    pairs = tied * (tied - 1)
    first, second = divmod(min(int(tie_break * pairs), pairs - 1), tied - 1)
    if second >= first:
        second += 1
    one, other = weighed[first], weighed[second]
    return one if one[2] <= other[2] else other


def _gamma_at(state: ReplicaState, batch: int) -> tuple[int, bool]:
    """(gamma, speculative) that price a replica at a batch; an unknown gamma is priced as plain."""
    if not state.speculative or state.gamma is None:
        return 0, False
    if isinstance(state.gamma, GammaSchedule):
        return state.gamma.at(batch), True
    return state.gamma, True


def _tpot(state: ReplicaState, request_class: str, policy: PolicyPrices, context: float | None, batch: int) -> float:
    """tau: seconds per output token of one request among ``batch``."""
    gamma, speculative = _gamma_at(state, batch)
    accepted = policy.expected_tokens(request_class, gamma) - 1.0
    if state.acceptance_ratio is not None:
        accepted *= state.acceptance_ratio
    return policy.step_seconds(batch, gamma, context, speculative) / (1.0 + accepted)


def _schedule_cost(
    state: ReplicaState, request_class: str, policy: PolicyPrices, context: float | None, load: int
) -> float:
    """The marginal cost where gamma itself may change as the request joins."""
    after = _tpot(state, request_class, policy, context, load + 1)
    if load == 0:
        return after
    return after + load * (after - _tpot(state, request_class, policy, context, load))


def _prices(
    policy: PolicyPrices, request_class: str, gamma: int | None, context: float | None
) -> tuple[list[float], float]:
    """(marginal step cost by load, accepted draft tokens per step); gamma None stands for plain."""
    if gamma is None:
        return policy.marginal_row(0, context, False), 0.0
    return policy.marginal_row(gamma, context, True), policy.expected_tokens(request_class, gamma) - 1.0


def _marginal_beyond(policy: PolicyPrices, load: int, gamma: GammaSetting | None, context: float | None) -> float:
    drafted = gamma if isinstance(gamma, int) else 0
    after = policy.step_seconds(load + 1, drafted, context, gamma is not None)
    return after + load * (after - policy.step_seconds(load, drafted, context, gamma is not None))


def _why(rank: int, state: ReplicaState, limits: DecisionLimits) -> str:
    if rank & _REFUSES:
        return "refuses a parameter"
    if rank & _UNHEALTHY:
        return "unhealthy"
    if state.kv_usage is not None and state.kv_usage >= limits.kv_usage:
        return "kv cache full"
    return "over the TPOT objective"


def _reason(
    best: _Weighed,
    rank: int,
    weighed: list[_Weighed],
    demoted: dict[int, list[_Weighed]],
    states: Sequence[ReplicaState],
    request_class: str,
    policy: PolicyPrices,
    context: float | None,
) -> str:
    if rank & _UNHEALTHY:
        return "fallback"
    if any(refusing[0] < best[0] for refusing in demoted.get(rank | _REFUSES, ())):
        return "capability"
    if len(weighed) == 1:
        return "only_replica"
    speculative = next((entry for entry in weighed if states[entry[1]].speculative), None)
    plain = next((entry for entry in weighed if not states[entry[1]].speculative), None)
    if speculative is None or plain is None:
        return "balance"
    spec_state, plain_state = states[speculative[1]], states[plain[1]]
    if not states[best[1]].speculative:
        idle_speculative = _tpot(spec_state, request_class, policy, context, 1)
        return "high_load" if idle_speculative < _tpot(plain_state, request_class, policy, context, 1) else "class"
    own = _tokens_per_step(spec_state, request_class, policy, speculative[2])
    for other in policy.classes:
        if speculative[0] * own > plain[0] * _tokens_per_step(spec_state, other, policy, speculative[2]):
            return "class"
    return "low_load"


def _tokens_per_step(state: ReplicaState, request_class: str, policy: PolicyPrices, load: int) -> float:
    accepted = policy.expected_tokens(request_class, _gamma_at(state, load + 1)[0]) - 1.0
    return 1.0 + (accepted if state.acceptance_ratio is None else accepted * state.acceptance_ratio)


def _no_replica(needs: RequestNeeds, states: Sequence[ReplicaState], excluded: list[tuple[str, str]]) -> NoReplica:
    if needs.model is not None and states and all(s.models is not None and needs.model not in s.models for s in states):
        return NoReplica(f"no replica has the model {needs.model!r}", model_unknown=True)
    detail = ", ".join(f"{name}: {why}" for name, why in excluded)
    return NoReplica(f"no replica can take the request ({detail or 'the fleet is empty'})")

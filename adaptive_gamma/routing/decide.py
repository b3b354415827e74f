"""Which replica a request goes to: the one where its tokens come cheapest, its neighbours' delay included.

    cost(r)  = tau_r(n+1) + n (tau_r(n+1) - tau_r(n)) + n P / L
    tau_r(n) = t_step(n, gamma_r) / E_r(class, gamma_r)

``n`` is the number of requests already on replica r, ``tau`` a request's time per output token there in seconds. The
first term is what the request itself pays, the second what its decoding takes from the n others. The third is what its
prompt takes from them: while it is computed, P seconds, each of them stalls; L is the number of output tokens the
request is expected to bring. ``E_r`` is the policy's expected tokens per step, its accepted part scaled by the
acceptance seen on that replica lately.

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
    Replicas of one pool only, or none whose gamma is known yet; the least loaded of equals.
``only_replica``
    There was nothing to choose from.
``fallback``
    No replica is healthy; one is tried all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from adaptive_gamma.errors import NoReplica
from adaptive_gamma.routing.decision import Candidate, Decision, RequestNeeds
from adaptive_gamma.routing.pricing import PolicyPrices, Pricing, gamma_at
from adaptive_gamma.routing.replica import GammaSchedule, ReplicaState

__all__ = ["DecisionLimits", "decide", "least_loaded", "load_of"]

_RUNNERS_UP = 2

# A replica that misses a soft requirement is used only when nothing better is left; the bits add up to a rank.
_OVER_LIMIT = 1
_UNHEALTHY = 2
_REFUSES = 4

_Weighed: TypeAlias = tuple[float, int, int]
"""Marginal cost in seconds, index into the states, load found."""


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
    pricing = Pricing(policy, needs)
    rows, stall, model, parameters = pricing.rows, pricing.stall_seconds, needs.model, needs.parameters
    kv_limit, slo = limits.kv_usage, limits.slo_tpot_s
    max_load = len(pricing.price(None).marginal)  # the rows of all gammas are equally long
    foreign_of_unread: int | None = None
    excluded: list[tuple[str, str]] = []
    weighed: list[_Weighed] = []
    demoted: dict[int, list[_Weighed]] = {}

    for index, state in enumerate(states):
        if state.draining:
            excluded.append((state.name, "draining"))
            continue
        models = state.models
        if models is not None and model is not None and model not in models:
            excluded.append((state.name, "model"))
            continue
        if exclude and state.name in exclude:
            excluded.append((state.name, "already tried"))
            continue

        rank = 0 if state.healthy else _UNHEALTHY
        load = state.in_flight
        running = state.running
        if running is not None and state.fresh_until >= now:
            foreign = running + (state.waiting or 0) - state.in_flight_at_scrape
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
        price = rows.get(gamma)
        if price is None and not isinstance(gamma, GammaSchedule):
            price = pricing.price(gamma)
        if price is not None and load < max_load:
            # One look-up gives what marginal_cost works out, as long as gamma is fixed.
            marginal, _, accepted = price
            if accepted:
                ratio = state.acceptance_ratio
                cost = marginal[load] / (1.0 + (accepted if ratio is None else accepted * ratio)) + load * stall
            else:
                cost = marginal[load] + load * stall
        else:
            cost = pricing.marginal_cost(state, load)
        if slo is not None and pricing.tpot(state, load + 1) > slo:
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

    chosen = _candidate(pricing, states, best)
    return Decision(
        pricing.request_class,
        chosen.replica,
        chosen.pool,
        chosen.gamma,
        _reason(pricing, policy.classes, states, best, rank, weighed, demoted),
        chosen,
        tuple([_candidate(pricing, states, e) for e in weighed[: _RUNNERS_UP + 1] if e is not best][:_RUNNERS_UP]),
        tuple(excluded),
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


def _candidate(pricing: Pricing, states: Sequence[ReplicaState], entry: _Weighed) -> Candidate:
    cost, index, load = entry
    state = states[index]
    gamma = gamma_at(state, load + 1)
    if gamma is None and state.speculative is False:
        gamma = 0
    return Candidate(state.name, state.pool, gamma, load, cost, pricing.tpot(state, load + 1))


def _why(rank: int, state: ReplicaState, limits: DecisionLimits) -> str:
    if rank & _REFUSES:
        return "refuses a parameter"
    if rank & _UNHEALTHY:
        return "unhealthy"
    if state.kv_usage is not None and state.kv_usage >= limits.kv_usage:
        return "kv cache full"
    return "over the TPOT objective"


def _reason(
    pricing: Pricing,
    classes: Sequence[str],
    states: Sequence[ReplicaState],
    best: _Weighed,
    rank: int,
    weighed: list[_Weighed],
    demoted: dict[int, list[_Weighed]],
) -> str:
    if rank & _UNHEALTHY:
        return "fallback"
    if demoted and any(refusing[0] < best[0] for refusing in demoted.get(rank | _REFUSES, ())):
        return "capability"
    if len(weighed) == 1:
        return "only_replica"
    speculative = plain = None
    for entry in weighed:
        if gamma_at(states[entry[1]], 1) is not None:
            speculative = speculative or entry
        else:
            plain = plain or entry
        if speculative and plain:
            break
    if speculative is None or plain is None:
        return "balance"
    spec_state, plain_state = states[speculative[1]], states[plain[1]]
    if gamma_at(states[best[1]], 1) is None:
        return "high_load" if pricing.tpot(spec_state, 1) < pricing.tpot(plain_state, 1) else "class"
    load = speculative[2]
    stall = load * pricing.stall_seconds
    step_cost = (speculative[0] - stall) * pricing.tokens_per_step(spec_state, load + 1)
    for other in classes:
        if step_cost / pricing.tokens_per_step(spec_state, load + 1, other) + stall > plain[0]:
            return "class"
    return "low_load"


def _no_replica(needs: RequestNeeds, states: Sequence[ReplicaState], excluded: list[tuple[str, str]]) -> NoReplica:
    if needs.model is not None and states and all(s.models is not None and needs.model not in s.models for s in states):
        return NoReplica(f"no replica has the model {needs.model!r}", model_unknown=True)
    detail = ", ".join(f"{name}: {why}" for name, why in excluded)
    return NoReplica(f"no replica can take the request ({detail or 'the fleet is empty'})")

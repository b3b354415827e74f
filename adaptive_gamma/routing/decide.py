"""Which replica a request goes to: the one where its tokens come cheapest, its neighbours' delay included.

    cost(r)  = tau_r(n+1) + n (tau_r(n+1) - tau_r(n)) + n P_r / L + (P_r - P_0) / L
    tau_r(n) = t_step(n, gamma_r) / E_r(class, gamma_r)

``n`` is the number of requests already on replica r, ``tau`` a request's time per output token there in seconds. The
first term is what the request itself pays, the second what its decoding takes from the n others. The third is what its
prompt takes from them: while it is computed, P_r seconds, each of them stalls; L is the number of output tokens the
request is expected to bring. ``E_r`` is the policy's expected tokens per step, its accepted part scaled by the
acceptance seen on that replica lately. On a replica whose steps have been found to take longer or shorter than the
policy says, all these seconds are multiplied by a bounded factor.

P_r leaves out the part of the prompt that replica r is believed to have in its cache, so a cache saves the neighbours'
stall and, in the last term, the request's own wait, measured against P_0, the least P of all: what every replica would
charge is left out, so that costs stay positive, those of a prompt cached nowhere are what they are without this, and
the margin for ties is relative to what differs. A replica that would carry more than 1.25 times the mean load with the
request (rounded up) gets no credit for its cache. Among equals, one with credit wins.

A replica that ramps up is priced as if it carried its load over the share of the ramp that has passed. One at its cap
of open requests takes no more; where only replicas that are down or refuse a parameter are left beside it, the request
is not sent to those: it waits.

Reasons (``Decision.reason``):

``low_load``
    A speculative replica, and every class of the policy would have gone to one at these loads.
``class``
    The request's class tipped it: a speculative replica although another class would now go to a plain one, or a
    plain one because this class loses on a drafter even when nothing else runs.
``high_load``
    A plain replica, although this class would speculate on an idle fleet.
``cached``
    The part of the prompt in the replica's cache tipped it: without that another one would have been chosen.
``capability``
    The cheapest replica cannot serve the request (``routing.capability``), or the request goes on from a response that
    only the chosen one stores.
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

from adaptive_gamma.routing.cache_credit import NO_CREDITS, cache_credits
from adaptive_gamma.routing.capability import is_capable, is_demanding
from adaptive_gamma.routing.decision import Decision, RequestNeeds
from adaptive_gamma.routing.load import load_of, ramped_load, typical_foreign_load
from adaptive_gamma.routing.pricing import USUAL_OUTPUT_TOKENS, PolicyPrices, PriceBook, Pricing
from adaptive_gamma.routing.reasons import pool_reason
from adaptive_gamma.routing.refusals import (
    AT_CAP,
    OVER_LIMIT,
    REFUSES,
    UNHEALTHY,
    no_replica,
    waits_for_a_better,
    why_demoted,
)
from adaptive_gamma.routing.replica import ReplicaState
from adaptive_gamma.routing.verdict import Numbers, Verdict
from adaptive_gamma.routing.weighing import Weighed, cost_of, settle_tie

__all__ = ["DecisionLimits", "decide", "least_loaded", "weigh"]

_RUNNERS_UP = 2


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


def decide(
    needs: RequestNeeds,
    states: Sequence[ReplicaState],
    policy: PolicyPrices,
    *,
    now: float,
    tie_break: float,
    limits: DecisionLimits = _NO_LIMITS,
    exclude: Collection[str] = (),
    prices: PriceBook | None = None,
) -> Decision:
    """Choose a replica for a request.

    Args:
        needs: the request's class, prompt length, model, delicate parameters and where its prompt is cached.
        states: the fleet as it is known now; only read.
        policy: prices of steps and expected tokens.
        now: seconds on the clock that ``ReplicaState.fresh_until`` uses.
        tie_break: a number in [0, 1) that settles ties; random in service, fixed in a replay.
        limits: soft limits on KV use and time per output token.
        exclude: names already tried for this request.
        prices: keeps prices between decisions; changes nothing but the time taken.

    Raises:
        NoReplica: every replica is excluded, draining, at its cap, or does not have the model.
    """
    return weigh(
        needs, states, policy, now=now, tie_break=tie_break, limits=limits, exclude=exclude, prices=prices
    ).decision()


def weigh(
    needs: RequestNeeds,
    states: Sequence[ReplicaState],
    policy: PolicyPrices,
    *,
    now: float,
    tie_break: float,
    limits: DecisionLimits = _NO_LIMITS,
    exclude: Collection[str] = (),
    prices: PriceBook | None = None,
    ranked: list[Weighed] | None = None,
) -> Verdict:
    """``decide``, before its result is put into words: for whoever sends the request first and looks later.

    ``ranked`` is given all that came into question, cheapest first: their costs, and their places in ``states``.
    """
    request_class, prompt, model, _, output, cached, pinned = needs
    demanding = is_demanding(needs)
    pricing = (
        Pricing(policy, request_class, prompt) if prices is None else prices.pricing(policy, request_class, prompt)
    )
    stall = policy.prefill_seconds(prompt) / min(output or USUAL_OUTPUT_TOKENS, USUAL_OUTPUT_TOKENS) if prompt else 0.0
    rows = pricing.rows
    kv_limit, slo = limits.kv_usage, limits.slo_tpot_s
    max_load = pricing.max_load
    foreign_of_unread: int | None = None
    excluded: list[tuple[str, str]] = []
    weighed: list[Weighed] = []
    demoted: dict[int, list[Weighed]] = {}
    ramping: dict[int, int] = {}

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
        load = state.in_flight
        cap = state.max_in_flight
        if cap is not None and load >= cap:
            excluded.append((state.name, AT_CAP))
            continue

        rank = 0 if state.healthy else UNHEALTHY
        running = state.running
        if running is not None and state.fresh_until >= now:
            foreign = running + (state.waiting or 0) - state.in_flight_at_scrape
            if foreign > 0:
                load += foreign
            kv_usage = state.kv_usage
            if kv_usage is not None and kv_usage >= kv_limit:
                rank |= OVER_LIMIT
        else:
            if foreign_of_unread is None:
                foreign_of_unread = typical_foreign_load(states, now)
            load += foreign_of_unread
        if (demanding or state.context_limit is not None) and not is_capable(needs, state):
            rank |= REFUSES
        if slo is not None and pricing.tpot(state, load + 1) > slo:
            rank |= OVER_LIMIT
        if state.ramp_until > now:
            ramping[index] = load
            load = ramped_load(state, load, now)

        gamma = state.gamma if state.speculative else None
        if load >= max_load or (price := rows.get(gamma) or pricing.price_if_fixed(gamma)) is None:
            cost = pricing.marginal_cost(state, load, stall)
        else:
            # One look-up gives what marginal_cost works out, as long as gamma is fixed.
            marginal, _, accepted, _ = price
            if accepted:
                ratio = state.acceptance_ratio
                cost = marginal[load] / (1.0 + (accepted if ratio is None else accepted * ratio)) + load * stall
            else:
                cost = marginal[load] + load * stall
            if state.step_time_ratio is not None:
                cost *= state.step_time_ratio
        if rank:
            demoted.setdefault(rank, []).append((cost, index, load))
        else:
            weighed.append((cost, index, load))

    rank = 0
    if not weighed:
        if not demoted or waits_for_a_better(rank := min(demoted), needs, states, excluded):
            raise no_replica(needs, states, excluded)
        weighed = demoted.pop(rank)
    refusing = demoted.get(rank | REFUSES, []) if demoted else []
    uncredited, credits = weighed, NO_CREDITS
    if cached and prompt and stall:
        credits = cache_credits(cached, prompt, stall, policy, states, weighed, refusing, ramping)
        if credits.tokens:
            weighed, refusing = credits.applied(weighed), credits.applied(refusing)
    weighed.sort(key=cost_of)
    if ranked is not None:
        ranked += weighed
    best = settle_tie(weighed, limits.tie_margin, tie_break, credits.tokens)
    for other_rank, entries in demoted.items():
        excluded += [(states[i].name, why_demoted(other_rank, needs, states[i], kv_limit)) for _, i, _ in entries]

    if rank & UNHEALTHY:
        reason = "fallback"
    elif states[best[1]].name == pinned or (refusing and min(refusing)[0] < best[0]):
        reason = "capability"
    elif len(weighed) == 1:
        reason = "only_replica"
    elif (
        best[1] in credits.tokens
        and settle_tie(sorted(uncredited, key=cost_of), limits.tie_margin, tie_break)[1] != best[1]
    ):
        reason = "cached"
    else:
        reason = pool_reason(pricing, states, best, weighed, stall, credits)

    shown = weighed[: _RUNNERS_UP + 1]
    if shown[0] is not best:
        shown = [best, *[entry for entry in shown if entry is not best][:_RUNNERS_UP]]
    credited = credits.tokens
    numbers: list[Numbers] = []
    for cost, index, load in shown:
        state = states[index]
        if ramping:
            load = ramping.get(index, load)
        numbers.append(
            (
                state.name,
                state.speculative,
                state.gamma,
                state.acceptance_ratio,
                state.step_time_ratio,
                load,
                cost,
                credited.get(index, 0) if credited else 0,
            )
        )
    return Verdict(pricing, reason, numbers, excluded)


def least_loaded(
    needs: RequestNeeds,
    states: Sequence[ReplicaState],
    *,
    now: float,
    tie_break: float,
    exclude: Collection[str] = (),
) -> ReplicaState:
    """The rule that knows nothing of speculation: fewest requests, healthy first. Used while only observing.

    Caps and ramps hold as in ``decide``; of equals, the one that has most of the prompt cached wins.

    Raises:
        NoReplica: as in ``decide``.
    """
    foreign_of_unread: int | None = None
    ranked: dict[int, list[Weighed]] = {}
    excluded: list[tuple[str, str]] = []
    for index, state in enumerate(states):
        if state.draining:
            excluded.append((state.name, "draining"))
        elif needs.model is not None and state.models is not None and needs.model not in state.models:
            excluded.append((state.name, "model"))
        elif state.name in exclude:
            excluded.append((state.name, "already tried"))
        elif state.max_in_flight is not None and state.in_flight >= state.max_in_flight:
            excluded.append((state.name, AT_CAP))
        else:
            load = load_of(state, now)
            if load is None:
                if foreign_of_unread is None:
                    foreign_of_unread = typical_foreign_load(states, now)
                load = state.in_flight + foreign_of_unread
            load = ramped_load(state, load, now)
            rank = (0 if state.healthy else UNHEALTHY) | (0 if is_capable(needs, state) else REFUSES)
            ranked.setdefault(rank, []).append((float(load), index, load))
    if not ranked or waits_for_a_better(rank := min(ranked), needs, states, excluded):
        raise no_replica(needs, states, excluded)
    equals = sorted(ranked[rank], key=cost_of)
    cached = needs.cached or {}
    holders = [i for _, i, load in equals if load == equals[0][2] and cached.get(states[i].name, 0) > 0]
    if holders:
        return states[max(holders, key=lambda i: cached[states[i].name])]
    return states[settle_tie(equals, 0.0, tie_break)[1]]

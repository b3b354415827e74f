"""The decision without caps, ramps and caches, with every price asked of the policy anew."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeAlias

from adaptive_gamma.errors import NoReplica
from adaptive_gamma.routing import (
    Candidate,
    Decision,
    DecisionLimits,
    GammaSchedule,
    GammaSetting,
    PolicyPrices,
    ReplicaState,
    RequestNeeds,
)

USUAL_OUTPUT_TOKENS = 200
_RUNNERS_UP = 2
_OVER_LIMIT = 1
_UNHEALTHY = 2
_REFUSES = 4

_Weighed: TypeAlias = tuple[float, int, int]
_NO_LIMITS = DecisionLimits()


def reference_decide(
    needs: RequestNeeds,
    states: Sequence[ReplicaState],
    policy: PolicyPrices,
    *,
    now: float,
    tie_break: float,
    limits: DecisionLimits = _NO_LIMITS,
    exclude: Collection[str] = (),
) -> Decision:
    pricing = Pricing(policy, needs)
    rows, stall, model = pricing.rows, pricing.stall_seconds, needs.model
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
        if _incapable(needs, state):
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
            if state.step_time_ratio is not None:
                cost *= state.step_time_ratio
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
        excluded += [(states[i].name, _why(other_rank, needs, states[i], limits)) for _, i, _ in entries]

    chosen = _candidate(pricing, states, best)
    return Decision(
        pricing.request_class,
        chosen.replica,
        chosen.pool,
        chosen.gamma,
        _reason(pricing, policy.classes, states, best, rank, weighed, demoted, needs.pinned),
        chosen,
        tuple([_candidate(pricing, states, e) for e in weighed[: _RUNNERS_UP + 1] if e is not best][:_RUNNERS_UP]),
        tuple(excluded),
    )


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


def _incapable(needs: RequestNeeds, state: ReplicaState) -> str | None:
    """Why the replica cannot serve the request."""
    if needs.parameters & state.refused_parameters:
        return "refuses a parameter"
    if needs.pinned not in (None, state.name):
        return "does not have the response it goes on from"
    if state.context_limit is not None and needs.prompt_tokens is not None:
        output = min(needs.max_output_tokens or USUAL_OUTPUT_TOKENS, USUAL_OUTPUT_TOKENS)
        if needs.prompt_tokens + output >= state.context_limit:
            return "near the drafter's context limit"
    return None


def _why(rank: int, needs: RequestNeeds, state: ReplicaState, limits: DecisionLimits) -> str:
    if rank & _REFUSES:
        return _incapable(needs, state) or ""
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
    pinned: str | None,
) -> str:
    if rank & _UNHEALTHY:
        return "fallback"
    if states[best[1]].name == pinned:
        return "capability"
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
    if spec_state.step_time_ratio is not None:
        stall *= spec_state.step_time_ratio
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


class GammaPrice(NamedTuple):
    """Prices of one gamma at one context, for one class."""

    marginal: list[float]
    """By load n: t(n+1) + n (t(n+1) - t(n)), seconds per step."""
    steps: list[float]
    """By batch: seconds per step."""
    accepted: float
    """Expected accepted draft tokens per step."""


class Pricing:
    """Prices for one request: its class and context are fixed, replicas and loads vary.

    A gamma of None stands for plain; gamma 0 on a speculative replica has a price of its own.
    """

    __slots__ = ("_context", "_policy", "request_class", "rows", "stall_seconds")

    def __init__(self, policy: PolicyPrices, needs: RequestNeeds) -> None:
        self._policy = policy
        self._context = needs.prompt_tokens
        self.request_class = policy.class_for(needs.request_class)
        prompt, output = (
            needs.prompt_tokens or 0,
            min(needs.max_output_tokens or USUAL_OUTPUT_TOKENS, USUAL_OUTPUT_TOKENS),
        )
        self.stall_seconds = policy.prefill_seconds(prompt) / output if prompt else 0.0
        """P / L: what the request's prompt takes from each neighbour, per output token it brings."""
        self.rows: dict[GammaSetting | None, GammaPrice] = {}
        """Prices looked up so far."""

    def price(self, gamma: int | None) -> GammaPrice:
        """Prices of a gamma."""
        found = self.rows.get(gamma)
        if found is None:
            policy, context = self._policy, self._context
            drafted, speculative = (0, False) if gamma is None else (gamma, True)
            found = self.rows[gamma] = GammaPrice(
                policy.marginal_row(drafted, context, speculative),
                policy.step_row(drafted, context, speculative),
                policy.expected_tokens(self.request_class, gamma) - 1.0 if gamma else 0.0,
            )
        return found

    def step_seconds(self, gamma: int | None, batch: int) -> float:
        steps = self.price(gamma).steps
        if batch < len(steps):
            return steps[batch]
        return self._policy.step_seconds(batch, gamma or 0, self._context, gamma is not None)

    def tokens_per_step(self, state: ReplicaState, batch: int, request_class: str | None = None) -> float:
        """E: the policy's expected tokens of a class (of the request by default), moved by what the replica accepts."""
        gamma = gamma_at(state, batch)
        if not gamma:
            return 1.0
        if request_class is None:
            accepted = self.price(gamma).accepted
        else:
            accepted = self._policy.expected_tokens(request_class, gamma) - 1.0
        return 1.0 + (accepted if state.acceptance_ratio is None else accepted * state.acceptance_ratio)

    def tpot(self, state: ReplicaState, batch: int) -> float:
        """tau: seconds per output token of one request among ``batch``."""
        tpot = self.step_seconds(gamma_at(state, batch), batch) / self.tokens_per_step(state, batch)
        return tpot if state.step_time_ratio is None else tpot * state.step_time_ratio

    def marginal_cost(self, state: ReplicaState, load: int) -> float:
        """tau(n+1) + n (tau(n+1) - tau(n)) + n P / L, n = load; right also where gamma changes as the request joins."""
        after = self.tpot(state, load + 1)
        stall = self.stall_seconds
        if state.step_time_ratio is not None:
            stall *= state.step_time_ratio
        return after + load * (after - self.tpot(state, load) + stall) if load else after


def gamma_at(state: ReplicaState, batch: int) -> int | None:
    """The gamma that prices a replica at a batch; None where it is plain, or not known and priced as plain."""
    gamma = state.gamma
    if gamma is None or not state.speculative:
        return None
    return gamma.at(batch) if isinstance(gamma, GammaSchedule) else gamma

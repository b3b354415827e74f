"""The simulated engine without clock or socket: continuous batching, step by step.

The caller owns time. ``begin_step`` decides what the step computes and how long it takes; the caller lets that time
pass (really or not) and calls ``finish_step``, which gives the tokens. Requests may arrive and leave in between.

Scheduling follows vLLM's V1 engine: running sequences first, then the waiting queue in order of arrival while there
are sequence slots, token budget and KV blocks; long prompts are computed in chunks; when blocks run out the sequence
that was admitted last gives up its blocks and starts over. Gamma is chosen by the number of sequences scheduled in a
step and takes effect on the drafts that the next step verifies.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from adaptive_gamma.routing import GammaSchedule
from adaptive_gamma.simulation.engine.acceptance import ScriptedAcceptance
from adaptive_gamma.simulation.engine.step_clock import StepClock
from adaptive_gamma.simulation.engine.steps import (
    CoreLimits,
    EngineRequest,
    FinishedRequest,
    StepOutcome,
    StepPlan,
    TokenEvent,
)

__all__ = ["EngineCore", "drain"]


@dataclass(slots=True, eq=False)
class _Sequence:
    request: EngineRequest
    arrived_at: float
    rng: random.Random
    limit: int
    limit_reason: str
    computed: int = 0
    generated: int = 0
    drafted: int = 0
    blocks: int = 0
    gone: bool = False
    prefilled: bool = False
    preemptions: int = 0
    scheduled_at: float | None = None
    first_token_at: float | None = None
    last_token_at: float | None = None
    per_step_drafted: list[int] = field(default_factory=list)
    per_step_accepted: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        return self.request.prompt_tokens + self.generated

    @property
    def decoding(self) -> bool:
        return self.generated > 0 and self.length - self.computed == 1

    def account(self, reason: str, now: float) -> FinishedRequest:
        return FinishedRequest(
            request=self.request,
            reason=reason,
            generated=self.generated,
            arrived_at=self.arrived_at,
            scheduled_at=self.scheduled_at,
            first_token_at=self.first_token_at,
            last_token_at=self.last_token_at,
            finished_at=now,
            preemptions=self.preemptions,
            per_step_drafted=tuple(self.per_step_drafted),
            per_step_accepted=tuple(self.per_step_accepted),
        )


class EngineCore:
    """One engine (one data-parallel rank).

    Args:
        limits: sizes.
        clock: prices steps.
        acceptance: scripted acceptance; may be exchanged at any time through the attribute.
        gamma: draft tokens per step, or their schedule by batch; None is a plain engine without a drafter.
    """

    def __init__(
        self,
        limits: CoreLimits,
        clock: StepClock,
        acceptance: ScriptedAcceptance,
        gamma: int | GammaSchedule | None = None,
    ) -> None:
        if isinstance(gamma, int) and gamma < 0:
            raise ValueError("gamma must not be negative")
        self.limits = limits
        self.acceptance = acceptance
        self._clock = clock
        self._gamma = gamma
        self._running: list[_Sequence] = []
        self._waiting: deque[_Sequence] = deque()
        self._sequences: dict[str, _Sequence] = {}
        self._free_blocks = limits.kv_blocks
        self._plan: StepPlan | None = None
        self._scheduled: list[tuple[_Sequence, int, bool]] = []
        self.preemptions = 0
        """Times a running sequence had to give up its blocks, since the start."""

    @property
    def speculative(self) -> bool:
        """Whether a drafter is loaded."""
        return self._gamma is not None

    @property
    def max_gamma(self) -> int:
        """The largest gamma this engine can use; 0 on a plain engine."""
        if isinstance(self._gamma, GammaSchedule):
            return self._gamma.largest
        return self._gamma or 0

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._running or self._waiting)

    @property
    def kv_usage(self) -> float:
        """Share of KV blocks in use, 0..1."""
        return 1.0 - self._free_blocks / self.limits.kv_blocks

    def submit(self, request: EngineRequest, now: float) -> None:
        """Put a request at the end of the queue.

        Raises:
            ValueError: the id is in use, or prompt and answer do not fit in ``max_model_len``.
        """
        if request.request_id in self._sequences:
            raise ValueError(f"request {request.request_id!r} is already here")
        if request.prompt_tokens + request.max_tokens > self.limits.max_model_len:
            raise ValueError("prompt_tokens + max_tokens exceed max_model_len")
        stops = request.stop_after is not None and request.stop_after < request.max_tokens
        limit = request.stop_after if stops and request.stop_after is not None else request.max_tokens
        sequence = _Sequence(
            request,
            now,
            random.Random(request.seed),  # nosec B311  # a seed that the client gives
            limit=limit,
            limit_reason="stop" if stops else "length",
        )
        self._sequences[request.request_id] = sequence
        self._waiting.append(sequence)

    def abort(self, request_id: str, now: float) -> FinishedRequest | None:
        """Drop a request and free what it holds at once, also in the middle of a step; None when it is not here."""
        sequence = self._sequences.get(request_id)
        if sequence is None:
            return None
        self._remove(sequence)
        return sequence.account("abort", now)

    def begin_step(self, now: float) -> StepPlan | None:
        """Decide what the next step computes; None when there is nothing to do.

        Raises:
            RuntimeError: a step is already under way.
        """
        if self._plan is not None:
            raise RuntimeError("finish the step under way first")
        self._schedule(now)
        if not self._scheduled:
            return None
        batch = len(self._scheduled)
        decoding = [(sequence, tokens) for sequence, tokens, prefill in self._scheduled if not prefill]
        verified = [tokens - 1 for _, tokens in decoding]
        prefill_tokens = sum(tokens for _, tokens, prefill in self._scheduled if prefill)
        context = sum(sequence.length for sequence, _ in decoding) / len(decoding) if decoding else 0.0
        self._plan = StepPlan(
            started_at=now,
            seconds=self._clock.seconds(len(decoding), max(verified, default=0), context, prefill_tokens),
            batch=batch,
            decoding=len(decoding),
            gamma=self._gamma_at(batch),
            prefill_tokens=prefill_tokens,
            verify_tokens=sum(verified),
        )
        return self._plan

    def finish_step(self, now: float) -> StepOutcome:
        """The result of the step under way. Requests aborted since it began give nothing.

        Raises:
            RuntimeError: no step is under way.
        """
        plan, self._plan = self._plan, None
        if plan is None:
            raise RuntimeError("begin a step first")
        scheduled, self._scheduled = self._scheduled, []
        tally = _Tally(self.max_gamma)
        for sequence, tokens, prefill in scheduled:
            if sequence.gone:
                continue
            if prefill:
                self._finish_prefill(sequence, tokens, tally, now)
            else:
                drafted = tokens - 1
                accepted = self.acceptance.accepted(sequence.rng, sequence.request.request_class, drafted)
                if drafted:
                    sequence.per_step_drafted.append(drafted)
                    sequence.per_step_accepted.append(accepted)
                    tally.verified(drafted, accepted)
                self._emit(sequence, accepted + 1, tally, now)
            if not sequence.gone:
                sequence.drafted = plan.gamma if sequence.decoding else 0
        return tally.outcome(plan, now)

    def _gamma_at(self, batch: int) -> int:
        if isinstance(self._gamma, GammaSchedule):
            return self._gamma.at(batch)
        return self._gamma or 0

    def _schedule(self, now: float) -> None:
        budget = self.limits.max_num_batched_tokens
        preempted = False
        index = 0
        while index < len(self._running) and budget > 0:
            sequence = self._running[index]
            tokens = self._wanted(sequence, budget)
            while not self._reserve(sequence, sequence.computed + tokens):
                victim = self._running.pop()
                self._preempt(victim)
                preempted = True
                if victim is sequence:
                    break
            else:
                budget -= tokens
                self._scheduled.append((sequence, tokens, not sequence.decoding))
                index += 1
        while not preempted and self._waiting and budget > 0 and len(self._running) < self.limits.max_num_seqs:
            sequence = self._waiting[0]
            tokens = self._wanted(sequence, budget)
            if not self._reserve(sequence, sequence.computed + tokens):
                break
            self._waiting.popleft()
            if sequence.scheduled_at is None:
                sequence.scheduled_at = now
            self._running.append(sequence)
            self._scheduled.append((sequence, tokens, True))
            budget -= tokens

    def _wanted(self, sequence: _Sequence, budget: int) -> int:
        missing = sequence.length - sequence.computed
        if sequence.decoding:
            room = self.limits.max_model_len - sequence.length
            missing += min(sequence.drafted, room)
        return min(missing, budget)

    def _reserve(self, sequence: _Sequence, tokens: int) -> bool:
        needed = -(-tokens // self.limits.block_tokens) - sequence.blocks
        if needed > self._free_blocks:
            return False
        if needed > 0:
            sequence.blocks += needed
            self._free_blocks -= needed
        return True

    def _release(self, sequence: _Sequence) -> None:
        self._free_blocks += sequence.blocks
        sequence.blocks = 0

    def _preempt(self, sequence: _Sequence) -> None:
        self._release(sequence)
        sequence.computed = 0
        sequence.drafted = 0
        sequence.preemptions += 1
        self.preemptions += 1
        self._waiting.appendleft(sequence)

    def _remove(self, sequence: _Sequence) -> None:
        sequence.gone = True
        self._release(sequence)
        del self._sequences[sequence.request.request_id]
        if sequence in self._running:
            self._running.remove(sequence)
        else:
            self._waiting.remove(sequence)

    def _finish_prefill(self, sequence: _Sequence, tokens: int, tally: _Tally, now: float) -> None:
        sequence.computed += tokens
        tally.prefilled += tokens
        if sequence.computed == sequence.length:
            if not sequence.prefilled:
                sequence.prefilled = True
                tally.prompt_tokens += sequence.request.prompt_tokens
            self._emit(sequence, 1, tally, now)

    def _emit(self, sequence: _Sequence, tokens: int, tally: _Tally, now: float) -> None:
        given = min(tokens, sequence.limit - sequence.generated)
        sequence.generated += given
        sequence.computed = sequence.length - 1
        tally.generation_tokens += given
        if sequence.first_token_at is None or sequence.last_token_at is None:
            sequence.first_token_at = now
            tally.first_token_latencies.append(now - sequence.arrived_at)
        else:
            tally.inter_token_latencies.append(now - sequence.last_token_at)
        sequence.last_token_at = now
        finished = None
        if sequence.generated == sequence.limit:
            self._remove(sequence)
            finished = sequence.account(sequence.limit_reason, now)
        tally.events.append(TokenEvent(sequence.request.request_id, given, finished))


class _Tally:
    """Sums of one step under way."""

    def __init__(self, positions: int) -> None:
        self.events: list[TokenEvent] = []
        self.generation_tokens = 0
        self.prompt_tokens = 0
        self.prefilled = 0
        self.first_token_latencies: list[float] = []
        self.inter_token_latencies: list[float] = []
        self._drafts = 0
        self._draft_tokens = 0
        self._accepted_tokens = 0
        self._per_position = [0] * positions

    def verified(self, drafted: int, accepted: int) -> None:
        self._drafts += 1
        self._draft_tokens += drafted
        self._accepted_tokens += accepted
        for position in range(accepted):
            self._per_position[position] += 1

    def outcome(self, plan: StepPlan, now: float) -> StepOutcome:
        return StepOutcome(
            plan=plan,
            finished_at=now,
            events=tuple(self.events),
            generation_tokens=self.generation_tokens,
            prompt_tokens=self.prompt_tokens,
            drafts=self._drafts,
            draft_tokens=self._draft_tokens,
            accepted_tokens=self._accepted_tokens,
            accepted_per_position=tuple(self._per_position),
            first_token_latencies=tuple(self.first_token_latencies),
            inter_token_latencies=tuple(self.inter_token_latencies),
        )


def drain(core: EngineCore, now: float, arrivals: Iterable[tuple[float, EngineRequest]] = ()) -> Iterator[StepOutcome]:
    """Run steps back to back until nothing is left, submitting each arrival when its time has come.

    ``arrivals`` are (seconds, request), earliest first. Time jumps over idle gaps.
    """
    pending = deque(arrivals)
    while pending or core.has_work:
        if not core.has_work:
            now = max(now, pending[0][0])
        while pending and pending[0][0] <= now:
            at, request = pending.popleft()
            core.submit(request, at)
        plan = core.begin_step(now)
        if plan is None:
            raise RuntimeError("the engine has work and schedules none of it")
        now += plan.seconds
        yield core.finish_step(now)

"""One engine, step by step: continuous batching, a first-come queue, chunked prefill and drawn acceptance.

What a step is
    Decoding sequences and up to a budget of prompt tokens run together. A step lasts what the policy says for the
    number of decoding sequences, their gamma and mean context, plus the price of its prompt tokens; one without
    decoding sequences lasts as a batch of 1 does, plus its prompt tokens.
    Requests enter at a step's start, in the order of arrival, while fewer than ``max_num_seqs`` are inside. Prompts
    are read in that order, too. The step that ends a prompt gives the first output token; each later step gives 1 token
    and those draft tokens that are accepted, never more than the request asked for.
    A sequence's context is taken as its prompt and half its output, the mean over its life.

How it is fast
    While nobody enters or leaves, all steps are alike, so they are taken in one go. With gamma known, the step at
    which each sequence ends is known when it begins (``AcceptanceDraws.steps``); a heap holds these. Only a change
    of gamma makes them move. The cost is by request, not by token.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from adaptive_gamma.routing import PolicyPrices
from adaptive_gamma.simulation.replay.accounts import DraftRun, ReplicaTotals, Report, RunLog, StepRecord
from adaptive_gamma.simulation.replay.gamma_choice import GammaChoice, HeldGamma, WatchingChoice
from adaptive_gamma.simulation.replay.pricing import StepPrices
from adaptive_gamma.simulation.replay.workload import AcceptanceDraws, PrefixTable, Workload

__all__ = ["DraftRun", "Replica", "ReplicaTotals", "Report", "RunLog", "StepRecord"]


class Replica:
    """One replica; time moves by ``advance``, requests enter by ``enqueue``.

    Args:
        name: of the replica.
        choice: its gamma.
        max_num_seqs: most requests inside at a time.
        workload, draws: the requests.
        prices: of steps.
        policy: its expectation of acceptance, for ``ReplicaTotals.predicted_accepted``.
        log: where the times go.
        report: told how the drafts of each finished request fared, as an engine's answer may say.
        record: told of every stretch of equal steps, as it has been done.
    """

    def __init__(
        self,
        name: str,
        choice: GammaChoice,
        max_num_seqs: int,
        workload: Workload,
        draws: AcceptanceDraws,
        prices: StepPrices,
        policy: PolicyPrices,
        log: RunLog,
        report: Report | None = None,
        record: StepRecord | None = None,
    ) -> None:
        self.name = name
        self.totals = ReplicaTotals()
        self.counts_by_length = isinstance(choice, HeldGamma)
        """Whether it counts how many drafts had a token at each position, as the plugin for vLLM does."""
        self._choice = choice
        self._max_num_seqs = max_num_seqs
        self._workload = workload
        self._draws = draws
        self._prices = prices
        self._policy = policy
        self._log = log
        self._report = report
        self._record = record
        self._watching = choice if isinstance(choice, WatchingChoice) else None
        self._review = False
        self._clock = 0.0
        self._step = 0
        self._waiting: deque[int] = deque()
        self._prefilling: deque[int] = deque()
        self._prompt_left: deque[int] = deque()
        self._decoding: list[tuple[int, int]] = []
        """A heap of (step at whose end the request is done, request)."""
        self._key = choice.at(1, [0] * len(workload.classes), None)
        self._step_s = 0.0
        self._context: float | None = None
        # Prompt tokens of the step under way and when it ends; None when that has not been worked out.
        self._prompt_step: tuple[int, float] | None = None
        self._counts = [0] * len(workload.classes)
        """Decoding sequences by class."""
        self._open_by_class = [0] * len(workload.classes)
        self._context_sum = 0
        self._predicted_per_step = 0.0
        # Where a request's draws, tokens and steps stood when its gamma last changed.
        self._segments: dict[int, _Segment] = {}
        self._accepted_settled = 0

    @property
    def running(self) -> int:
        """Requests inside, prompts being read among them: what an engine's gauge shows."""
        return len(self._decoding) + len(self._prefilling)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def open(self) -> int:
        """Requests sent here that are not finished."""
        return len(self._decoding) + len(self._prefilling) + len(self._waiting)

    @property
    def open_by_class(self) -> Sequence[int]:
        """Requests sent here that are not finished, by class: what whoever sent them knows."""
        return self._open_by_class

    def review(self) -> None:
        """Ask for the gamma anew when the step under way ends, whether or not the batch changes then."""
        self._review = True

    def expect(self, policy: PolicyPrices) -> None:
        """Take the expected acceptance from another policy from now on."""
        self._policy = policy
        self._expect()

    def enqueue(self, request: int, now: float) -> None:
        """Send a request here; ``advance(now)`` must have been called."""
        if not self.open:
            self._clock = max(self._clock, now)
        self._waiting.append(request)
        self._open_by_class[self._workload.class_of[request]] += 1
        self.totals.requests += 1

    def advance(self, now: float) -> None:
        """Run every step that ends by ``now`` (infinity runs until the replica is empty)."""
        waiting, prefilling, decoding = self._waiting, self._prefilling, self._decoding
        arrival = self._workload.arrival_s
        while True:
            while waiting and arrival[waiting[0]] <= self._clock and self.running < self._max_num_seqs:
                request = waiting.popleft()
                prefilling.append(request)
                self._prompt_left.append(max(self._workload.prompt_tokens[request], 1))
                self._prompt_step = None
            if prefilling:
                if not self._prefill_step(now):
                    return
            elif decoding:
                steps = decoding[0][0] - self._step
                if self._review or (waiting and len(decoding) < self._max_num_seqs):
                    steps = 1  # gamma is asked for at its end, or somebody enters who arrived during it
                elif self._watching is not None:
                    steps = min(steps, self._watching.patience)
                end = self._clock + steps * self._step_s
                if end > now:
                    steps = int((now - self._clock) / self._step_s)
                    while steps and self._clock + steps * self._step_s > now:
                        steps -= 1
                    if steps:
                        self._take(steps, self._clock + steps * self._step_s)
                    return
                self._take(steps, end)
                if self._finish_due() or self._review:
                    self._rebatch()
            else:
                return

    def accepted(self) -> int:
        """Draft tokens accepted so far, those of unfinished requests among them."""
        total = self._accepted_settled
        if self._key > 0 and self._decoding:
            prefix = self._draws.prefix(self._key)
            segments = [self._segments[request] for _, request in self._decoding]
            begin = np.fromiter((s.position for s in segments), dtype=np.int64, count=len(segments))
            done = np.fromiter((self._step - s.step for s in segments), dtype=np.int64, count=len(segments))
            total += int((prefix[begin + done] - prefix[begin] - done).sum())
        return total

    def unfinished_runs(self) -> list[tuple[DraftRun, ...]]:
        """Of each unfinished request its steps that drafted so far, where somebody is told of finished ones."""
        return [self._segments[request].runs_until(self._step, self._key) for _, request in self._decoding]

    def output_tokens(self) -> int:
        """Output tokens given so far, those of unfinished requests among them."""
        unfinished = len(self._decoding)
        prefix = self._draws.prefix(max(self._key, 0))
        for _, request in self._decoding:
            segment = self._segments[request]
            given = int(prefix[segment.position + self._step - segment.step]) - int(prefix[segment.position])
            unfinished += self._draws.needed[request] - segment.tokens_left + given
        return self.totals.output_tokens + unfinished

    def _take(self, steps: int, end: float) -> None:
        batch = len(self._decoding)
        totals = self.totals
        totals.busy_s += end - self._clock
        totals.steps += steps
        totals.sequence_steps += steps * batch
        totals.sequence_s += (end - self._clock) * batch
        if self._record is not None:
            self._record(self._clock, end, batch, max(self._key, 0))
        if self._watching is not None and batch:
            self._review |= self._watching.saw(self._mean_accepted(steps))
        if self._key > 0:
            totals.drafted += steps * batch * self._key
            totals.predicted_accepted += steps * self._predicted_per_step
        self._step += steps
        self._clock = end

    def _prefill_step(self, now: float) -> bool:
        """Take one step with prompt tokens if it ends by ``now``."""
        if self._prompt_step is None:
            tokens = min(sum(self._prompt_left), self._prices.prefill_budget)
            batch, key, context, seconds = len(self._decoding), self._key, self._context, self._step_s
            if not batch:
                batch, key, context = 1, min(self._key, 0), None
                seconds = self._prices.seconds(key, batch, context)
            seconds += self._prices.prefill_seconds(key, batch, context, tokens)
            self._prompt_step = tokens, self._clock + seconds
        tokens, end = self._prompt_step
        if end > now:
            return False
        self._prompt_step = None
        self._take(1, end)
        changed = self._finish_due()
        while tokens:
            part = min(tokens, self._prompt_left[0])
            tokens -= part
            if part < self._prompt_left[0]:
                self._prompt_left[0] -= part
                break
            self._prompt_left.popleft()
            changed |= self._begin_decode(self._prefilling.popleft())
        if changed or self._review:
            self._rebatch()
        return True

    def _begin_decode(self, request: int) -> bool:
        """The prompt has been read: give the first token; False when that was the last."""
        self._log.first_token_s[request] = self._clock
        self.totals.prompt_tokens += self._workload.prompt_tokens[request]
        needed = self._draws.needed[request]
        if not needed:
            self._finish(request)
            return False
        heapq.heappush(self._decoding, (self._step + self._draws.steps(max(self._key, 0))[request], request))
        self._segments[request] = _Segment(self._draws.start[request], needed, self._step, self._step)
        self._counts[self._workload.class_of[request]] += 1
        self._context_sum += self._context_of(request)
        return True

    def _finish_due(self) -> bool:
        """Let go of the sequences whose last step this was; whether there were any."""
        decoding, found = self._decoding, False
        while decoding and decoding[0][0] == self._step:
            _, request = heapq.heappop(decoding)
            segment = self._segments.pop(request)
            if self._key > 0:
                self._accepted_settled += segment.accepted(self._step, self._draws.prefix(self._key))
            if self._report is not None:
                self._report(request, segment.runs_until(self._step, self._key), self._clock)
            self._log.decode_steps[request] = self._step - segment.began
            self._counts[self._workload.class_of[request]] -= 1
            self._context_sum -= self._context_of(request)
            self._finish(request)
            found = True
        return found

    def _finish(self, request: int) -> None:
        self._log.finished_s[request] = self._clock
        self._open_by_class[self._workload.class_of[request]] -= 1
        self.totals.output_tokens += self._workload.output_tokens[request]

    def _context_of(self, request: int) -> int:
        return self._workload.prompt_tokens[request] + self._workload.output_tokens[request] // 2

    def _rebatch(self) -> None:
        """The batch has changed, or gamma is due: choose it and price the step."""
        self._review = False
        batch = len(self._decoding)
        if not batch:
            return
        context = self._context = self._context_sum / batch if self._prices.by_context else None
        key = self._choice.at(batch, self._counts, context)
        if key != self._key:
            self._change_gamma(key)
        self._step_s = self._prices.seconds(key, batch, context)
        self._expect()

    def _expect(self) -> None:
        if self._key > 0:
            expected, key = self._policy.expected_tokens, self._key
            mix = zip(self._open_by_class, self._workload.classes, strict=True)
            accepted = sum(n * (expected(name, key) - 1.0) for n, name in mix if n)
            self._predicted_per_step = accepted * len(self._decoding) / max(self.open, 1)

    def _mean_accepted(self, steps: int) -> npt.NDArray[np.float64]:
        """Accepted tokens of a sequence in each of the next steps, mean over the batch."""
        if self._key <= 0:
            return np.zeros(steps)
        segments = [self._segments[request] for _, request in self._decoding]
        begin = np.fromiter((s.position - s.step for s in segments), dtype=np.int64, count=len(segments)) + self._step
        runs = self._draws.runs[begin[:, None] + np.arange(steps)]
        mean: npt.NDArray[np.float64] = np.minimum(runs, self._key).mean(axis=0, dtype=np.float64)
        return mean

    def _change_gamma(self, key: int) -> None:
        """Find anew when each sequence ends, from what it has left."""
        before, after = self._draws.prefix(max(self._key, 0)), self._draws.prefix(max(key, 0))
        requests = [request for _, request in self._decoding]
        segments = [self._segments[request] for request in requests]
        begin = np.fromiter((s.position for s in segments), dtype=np.int64, count=len(segments))
        position = begin + np.fromiter((self._step - s.step for s in segments), dtype=np.int64, count=len(segments))
        given = before[position] - before[begin]
        left = np.fromiter((s.tokens_left for s in segments), dtype=np.int64, count=len(segments)) - given
        if self._key > 0:
            self._accepted_settled += int((given - (position - begin)).sum())
        wanted = (after[position] + left).astype(after.dtype)
        ends = np.searchsorted(after, wanted, side="left") - position + self._step
        for segment, at, tokens in zip(segments, position.tolist(), left.tolist(), strict=True):
            if self._report is not None:
                segment.runs = segment.runs_until(self._step, self._key)
            segment.position, segment.tokens_left, segment.step = at, tokens, self._step
        self._decoding[:] = zip(ends.tolist(), requests, strict=True)
        heapq.heapify(self._decoding)
        self._key = key


@dataclass(slots=True)
class _Segment:
    """A sequence since its gamma last changed."""

    position: int
    """Its next draw then."""
    tokens_left: int
    step: int
    """The replica's step count then."""
    began: int
    """The replica's step count at its first token."""
    runs: tuple[DraftRun, ...] = ()
    """Its steps that drafted before then; kept only where somebody is told."""

    def runs_until(self, step: int, gamma: int) -> tuple[DraftRun, ...]:
        """Its steps that drafted, those with the gamma in force now among them."""
        if gamma <= 0 or step == self.step:
            return self.runs
        return (*self.runs, DraftRun(gamma, self.position, step - self.step))

    def accepted(self, step: int, prefix: PrefixTable) -> int:
        done = step - self.step
        return int(prefix[self.position + done]) - int(prefix[self.position]) - done

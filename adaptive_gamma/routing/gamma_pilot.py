"""One replica's gamma over time: the load it has had, and what came of the changes made. Time is an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from adaptive_gamma.routing.gamma_candidates import GammaPrices
from adaptive_gamma.routing.set_gamma import GammaDecision, GammaInputs, GammaMemory, GammaRules, choose_gamma

__all__ = ["GammaPilot", "LoadTrack"]


class LoadTrack:
    """Mean and highest load of late.

    Args:
        window_s: how far back the highest load counts; a quarter of it is the half-life of the mean.
    """

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._mean: float | None = None
        self._at = 0.0
        self._falling: deque[tuple[float, int]] = deque()
        """(time, load): the loads that no later one has reached, the highest first."""

    def saw(self, load: int, at: float) -> None:
        """The load at a moment. One seen at an earlier moment than the last counts as seen with it."""
        if self._mean is None:
            self._mean, self._at = float(load), at
        elif at > self._at:
            self._mean += (load - self._mean) * (1.0 - 0.5 ** ((at - self._at) * 4.0 / self.window_s))
            self._at = at
        falling = self._falling
        while falling and falling[-1][1] <= load:
            falling.pop()
        falling.append((self._at, load))
        self._forget(self._at)

    def mean(self, now: float) -> float | None:
        """None when nothing was seen within the window."""
        return self._mean if self._mean is not None and now - self._at <= self.window_s else None

    def peak(self, now: float) -> int | None:
        """The highest in the window; None when nothing was seen within it."""
        self._forget(now)
        return self._falling[0][1] if self._falling else None

    def _forget(self, now: float) -> None:
        while self._falling and self._falling[0][0] < now - self.window_s:
            self._falling.popleft()


class GammaPilot:
    """Applies ``choose_gamma`` to one replica. The one who acts on its decisions tells it what came of them.

    The first change is not made before one dwell has passed, so that there is a load to speak of.

    Args:
        replica: its name.
        rules: when gamma may be changed; may be replaced.
        start: monotonic seconds now.
    """

    def __init__(self, replica: str, rules: GammaRules, start: float) -> None:
        self.replica = replica
        self.rules = rules
        self.loads = LoadTrack(rules.dwell_s)
        self.memory = GammaMemory(changed_at=start)
        self.last: GammaDecision | None = None
        """The last decision."""
        self._ratio: float | None = None
        self._ratio_of: GammaPrices | None = None

    def decide(
        self,
        now: float,
        policy: GammaPrices,
        *,
        gamma: int | None,
        largest: int | None,
        smallest: int = 1,
        batch: int | None = None,
        mix: Mapping[str, float] | None = None,
        context_tokens: float | None = None,
        acceptance_ratio: float | None = None,
        step_time_ratio: float | None = None,
        noise: float | None = None,
        slo_tpot_s: float | None = None,
    ) -> GammaDecision:
        """What the gamma should be now; the arguments are those of ``GammaInputs``.

        ``batch`` is the number of sequences in the engine now, None when it is not known. An ``acceptance_ratio`` is
        kept for when the replica drafts nothing and none can be seen; another policy makes it void.
        """
        self.loads.window_s = self.rules.dwell_s
        if batch is not None:
            self.loads.saw(batch, now)
        if policy is not self._ratio_of:
            self._ratio, self._ratio_of = None, policy
        if acceptance_ratio is not None:
            self._ratio = acceptance_ratio
        decision = choose_gamma(
            GammaInputs(
                replica=self.replica,
                now=now,
                gamma=gamma,
                largest=largest,
                smallest=smallest,
                load=self.loads.mean(now),
                peak=self.loads.peak(now),
                policy=policy,
                mix=mix or {},
                context_tokens=context_tokens,
                acceptance_ratio=self._ratio,
                step_time_ratio=step_time_ratio,
                noise=noise,
                slo_tpot_s=slo_tpot_s,
                memory=self.memory,
                rules=self.rules,
            )
        )
        self.memory, self.last = decision.memory, decision
        return decision

    def asked(self, decision: GammaDecision, at: float) -> None:
        """The engine has been asked for what the decision wants; nothing else is wanted until its outcome is told."""
        self.memory = decision.asked(at)

    def applied(self, at: float) -> None:
        """The change asked for is in force. Raises ValueError when none was."""
        self.memory = self.memory.applied(at)

    def failed(self, at: float) -> None:
        """The change asked for was not made, and gamma is what it was. Raises ValueError when none was."""
        self.memory = self.memory.failed(at, self.rules)

    def forget(self, at: float) -> None:
        """The engine began anew with a gamma of its own: what its past changes taught does not hold."""
        self.memory = GammaMemory(changed_at=at)
        self.loads = LoadTrack(self.rules.dwell_s)
        self._ratio = None

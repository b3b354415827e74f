"""``set_gamma: per_request``: gamma goes with each request, as llama.cpp's ``speculative.n_max``.

Builds up to b9101 honour the field, for draft models (not for n-gram drafting), and so do later ones with a patch.
Builds from b9113 on ignore it without a word, so nothing is believed before it has been seen: the answers' ``timings``
tell how many tokens were drafted in how many passes.

1. The first answers, to requests without the field, show what the engine drafts by itself.
2. The first change sends a gamma clearly below that, be it lower than the one wanted, until three answers have drafted
   no more. Then the engine is believed, and the gamma wanted is in force. Three answers in a row that drafted more
   prove the opposite: their number of passes is an upper bound, so one alone proves it for its request.
3. Every later answer is looked at in the same way: an engine that stops obeying is found out.

Whoever is found to ignore, to refuse or not to tell gets no field any more. Nothing needs to be undone: each request
stands for itself, and the engine's own gamma holds for one without the field. A new start of the engine, which may be
another build, begins all of this anew.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from adaptive_gamma.engines.actuator import ActuatorState, Drafting, GammaSet
from adaptive_gamma.engines.llamacpp import drafting_of
from adaptive_gamma.errors import ActuatorError

__all__ = ["PerRequestActuator"]

_log = logging.getLogger("adaptive_gamma.engines")

_FIELD = "speculative.n_max"
_PROOFS = 3
"""Answers in a row that settle it, one way or the other."""
_PROOF_STEPS = 32
"""Passes that the obeying ones must have between them."""
_WORTH_STEPS = 4
"""An answer of fewer passes obeys any gamma."""
_OWN_STEPS = 64
"""Passes after which the engine's own drafting is known."""
_CLEARLY_BELOW = 0.75
_BLIND = 8
"""Answers in a row that tell nothing, after which the engine is taken for one that never does."""


class PerRequestActuator:
    """Sends gamma with each request, and sees to it that this has an effect.

    Args:
        replica: the name to log.
    """

    name = "per_request"
    smallest_gamma = 0
    schedules = False
    largest_gamma: int | None = None
    largest_batch: int | None = None
    settable: frozenset[int] | None = None
    paths = frozenset({"/completion", "/v1/chat/completions", "/v1/completions"})
    field_names = frozenset({_FIELD})
    answer_mark = b'"timings"'

    def __init__(self, replica: str) -> None:
        self._replica = replica
        self._forget()

    def _forget(self) -> None:
        self._wanted: int | None = None
        """The gamma asked for, or in force once settled."""
        self._sent: int | None = None
        """What requests carry."""
        self._verified = False
        self._problem: str | None = None
        self._reason = ""
        self._own_steps = self._own_tokens = 0
        """Of answers to requests without the field."""
        self._obeyed = self._obeyed_steps = self._broken = self._blind = self._refused = 0
        """In a row."""

    @property
    def state(self) -> ActuatorState:
        if self._problem is not None:
            return "stopped"
        if self._verified:
            return "verified"
        return "ready" if self._wanted is None else "verifying"

    @property
    def problem(self) -> str | None:
        return self._problem

    @property
    def gamma(self) -> int | None:
        return self._wanted if self._verified and self._problem is None else None

    @property
    def waits_for(self) -> str | None:
        if self._problem is not None or self._verified:
            return None
        if self._own_steps < _OWN_STEPS:
            return f"{self._own_steps} of the {_OWN_STEPS} steps needed have told how much the engine drafts by itself"
        return None if self._own_tokens else "the engine drafts nothing by itself, so that no effect could be seen"

    @property
    def own_drafts_per_step(self) -> float | None:
        """Tokens the engine drafts in a pass when it is not told; None before enough has been seen."""
        return self._own_tokens / self._own_steps if self._own_steps >= _OWN_STEPS else None

    async def look(self) -> None:
        """Answers tell all there is to see."""

    async def change(self, gamma: GammaSet) -> None:
        """Send ``gamma`` with every request from now on, or what proves that the engine would heed it.

        Raises:
            ActuatorError: ``stopped``, with the problem, or ``not_yet``, with what it waits for.
        """
        if self._problem is not None:
            raise ActuatorError("stopped", self._problem)
        if not isinstance(gamma, int) or gamma < 0:
            raise ActuatorError("not_a_gamma", str(gamma))
        if self._verified:
            self._wanted = self._sent = gamma
            return
        if (waits_for := self.waits_for) is not None:
            raise ActuatorError("not_yet", waits_for)
        own = self._own_tokens / self._own_steps
        self._wanted = gamma
        self._sent = gamma if gamma <= own * _CLEARLY_BELOW else int(own / 2.0)
        self._obeyed = self._obeyed_steps = self._broken = self._blind = self._refused = 0

    async def withdraw(self) -> None:
        """Send nothing any more; an engine that was believed still is."""
        self._wanted = self._sent = None

    def settled(self) -> bool:
        """Whether the engine has been seen to heed what it is sent.

        Raises:
            ActuatorError: ``ignored``, ``refused`` or ``not_told``, with the problem. Requests carry nothing any more.
        """
        if self._problem is not None:
            raise ActuatorError(self._reason, self._problem)
        return self._verified or self._sent is None

    def request_field(self) -> tuple[str, int] | None:
        return None if self._sent is None else (_FIELD, self._sent)

    def answered(self, sent: int | None, body: Mapping[str, object]) -> None:
        if self._problem is not None:
            return
        drafting = drafting_of(body)
        if sent is None:
            if drafting is not None and self._sent is None:
                self._own_steps += drafting.steps
                self._own_tokens += drafting.draft_tokens
            return
        self._refused = 0
        if drafting is None:
            self._blind += 1
            if not self._verified and self._blind >= _BLIND:
                self._stop("not_told", f"{_BLIND} answers in a row did not tell how much was drafted for them")
            return
        self._blind = 0
        self._judge(sent, drafting)

    def refused(self, sent: int | None, status: int) -> None:
        if sent is None or self._verified or self._problem is not None:
            return
        self._refused += 1
        if self._refused >= _PROOFS:
            self._stop(
                "refused", f"{_PROOFS} requests in a row that carried {_FIELD} were refused, the last with {status}"
            )

    def restarted(self) -> None:
        if self._sent is not None or self._problem is not None:
            _log.info("replica %s: the engine began anew; %s is tried afresh", self._replica, _FIELD)
        self._forget()

    def details(self) -> Mapping[str, Any]:
        return {}

    async def close(self) -> None:
        """Nothing was opened."""

    def _judge(self, sent: int, drafting: Drafting) -> None:
        # The last pass may add nothing to an answer that is cut, which is why there may be one more.
        if drafting.draft_tokens > sent * (drafting.steps + 1):
            self._obeyed = self._obeyed_steps = 0
            self._broken += 1
            if self._broken >= _PROOFS:
                per_step = drafting.draft_tokens / max(drafting.steps, 1)
                self._stop(
                    "ignored",
                    f"the engine ignores {_FIELD}: {_PROOFS} answers in a row drafted more than they were asked to, "
                    f"the last {per_step:.1f} tokens a step where {sent} were asked for",
                )
            return
        if drafting.steps < _WORTH_STEPS:
            return
        self._broken = 0
        if self._verified or sent != self._sent:
            return
        self._obeyed += 1
        self._obeyed_steps += drafting.steps
        if self._obeyed >= _PROOFS and self._obeyed_steps >= _PROOF_STEPS:
            self._verified = True
            self._sent = self._wanted
            _log.info(
                "replica %s: the engine heeds %s: %.1f drafted tokens a step by itself, %d asked for and no more seen "
                "in %d answers; gamma is %s from now on",
                self._replica,
                _FIELD,
                self._own_tokens / self._own_steps,
                sent,
                self._obeyed,
                self._wanted,
            )

    def _stop(self, reason: str, problem: str) -> None:
        self._reason, self._problem = reason, problem
        self._wanted = self._sent = None
        self._verified = False
        _log.error(
            "replica %s: gamma cannot be set: %s. From here on requests go out as they come, with the engine's gamma",
            self._replica,
            problem,
        )

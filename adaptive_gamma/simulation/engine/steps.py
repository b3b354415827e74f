"""The plain data that goes into the engine's core and comes out of it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CoreLimits", "EngineRequest", "FinishedRequest", "StepOutcome", "StepPlan", "TokenEvent"]


@dataclass(frozen=True, slots=True)
class CoreLimits:
    """The engine's sizes."""

    max_num_seqs: int = 64
    """Sequences in the batch at most."""
    max_num_batched_tokens: int = 8192
    """Tokens computed in a step at most: decode, draft and prompt tokens together."""
    max_model_len: int = 8192
    """Context of one sequence at most, in tokens."""
    kv_blocks: int = 32_768
    block_tokens: int = 16

    def __post_init__(self) -> None:
        if min(self.max_num_seqs, self.max_model_len, self.kv_blocks, self.block_tokens) < 1:
            raise ValueError("every limit must be at least 1")
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError("max_num_batched_tokens must not be below max_num_seqs")
        if self.kv_blocks * self.block_tokens < self.max_model_len:
            raise ValueError("the KV cache must hold at least one sequence of max_model_len tokens")


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One request as the engine sees it."""

    request_id: str
    request_class: str
    prompt_tokens: int
    max_tokens: int
    stop_after: int | None = None
    """The answer ends by itself after this many tokens; None only ends at ``max_tokens``."""
    seed: int = 0
    """Seeds this request's acceptance."""

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.max_tokens < 1:
            raise ValueError("prompt_tokens and max_tokens must be at least 1")
        if self.stop_after is not None and self.stop_after < 1:
            raise ValueError("stop_after must be at least 1")


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """A request's account, in the caller's seconds; a moment that was never reached is None."""

    request: EngineRequest
    reason: str
    """``length``, ``stop`` or ``abort``."""
    generated: int
    arrived_at: float
    scheduled_at: float | None
    first_token_at: float | None
    last_token_at: float | None
    finished_at: float
    preemptions: int
    per_step_drafted: tuple[int, ...]
    """Draft tokens of each verify step that had any."""
    per_step_accepted: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """What one step gave one request: the accepted draft tokens and the target's own."""

    request_id: str
    tokens: int
    finished: FinishedRequest | None


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What a step computes."""

    started_at: float
    seconds: float
    batch: int
    """Sequences scheduled, prefilling ones included."""
    decoding: int
    gamma: int
    """Draft tokens asked of the drafter in this step; the next step verifies them."""
    prefill_tokens: int
    verify_tokens: int
    """Draft tokens verified in this step, over all sequences."""


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a step gave. Counts are of this step alone."""

    plan: StepPlan
    finished_at: float
    events: tuple[TokenEvent, ...]
    generation_tokens: int
    prompt_tokens: int
    """Prompt tokens of requests whose prefill completed in this step."""
    drafts: int
    """Verify steps of a sequence that had at least one draft token."""
    draft_tokens: int
    accepted_tokens: int
    accepted_per_position: tuple[int, ...]
    """Drafts whose first i+1 tokens were all accepted."""
    first_token_latencies: tuple[float, ...]
    inter_token_latencies: tuple[float, ...]
    """One per sequence that gave tokens and had given some before, as vLLM counts."""

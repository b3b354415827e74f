"""The bodies and stream chunks of generation answers, field by field as vLLM writes them."""

from __future__ import annotations

import json
from typing import Any, Literal

from adaptive_gamma.simulation.engine.requests import GenerationRequest
from adaptive_gamma.simulation.engine.steps import FinishedRequest

__all__ = ["FINGERPRINT", "Answer", "request_metrics", "sse"]

FINGERPRINT = "simulated"
"""``system_fingerprint`` of every answer: no real engine gives this."""


def sse(payload: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"


class Answer:
    """Writes one request's answer, whole or in chunks."""

    def __init__(self, request: GenerationRequest, answer_id: str, model: str, created: int) -> None:
        self._request = request
        self._chat = request.kind == "chat"
        self._head: dict[str, Any] = {
            "id": answer_id,
            "object": "chat.completion.chunk" if self._chat else "text_completion",
            "created": created,
            "model": model,
        }

    def usage(self, completion_tokens: int) -> dict[str, int]:
        """The ``usage`` object of a stream."""
        prompt = self._request.prompt_tokens
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + completion_tokens,
            "completion_tokens": completion_tokens,
        }

    def opening(self) -> bytes | None:
        """The role chunk that opens a chat stream; completions have none."""
        if not self._chat:
            return None
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return sse(self._chunk([choice], 0) | {"prompt_token_ids": None, "prompt_text": None})  # nosec B105  # token ids of a model

    def event(self, text: str, completion_tokens: int, finish_reason: str | None) -> bytes:
        """The chunk of one engine step: all tokens the step gave."""
        choice: dict[str, Any] = {"index": 0}
        choice |= {"delta": {"content": text}} if self._chat else {"text": text}
        choice |= {"logprobs": None, "finish_reason": finish_reason}
        if finish_reason is not None or not self._chat:
            choice["stop_reason"] = None
        if not self._chat:
            choice["prompt_token_ids"] = None
        choice["token_ids"] = None
        return sse(self._chunk([choice], completion_tokens))

    def _chunk(self, choices: list[dict[str, Any]], completion_tokens: int) -> dict[str, Any]:
        chunk: dict[str, Any] = self._head | {"choices": choices, "system_fingerprint": FINGERPRINT}
        if self._request.include_usage and self._request.continuous_usage:
            chunk["usage"] = self.usage(completion_tokens)
        return chunk

    def closing(self, completion_tokens: int, metrics: dict[str, Any] | None) -> bytes | None:
        """The usage chunk at a stream's end, where the client asked for it; ``metrics`` ride on it."""
        if not self._request.include_usage:
            return None
        chunk = self._head | {
            "choices": [],
            "usage": self.usage(completion_tokens),
            "system_fingerprint": FINGERPRINT,
        }
        if metrics is not None:
            chunk["metrics"] = metrics
        return sse(chunk)

    def whole(
        self, text: str, completion_tokens: int, finish_reason: str, metrics: dict[str, Any] | None
    ) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        choice: dict[str, Any] = {"index": 0}
        if self._chat:
            choice["message"] = {
                "role": "assistant",
                "content": text,
                "refusal": None,
                "annotations": None,
                "audio": None,
                "function_call": None,
                "reasoning": None,
            }
        else:
            choice["text"] = text
        choice |= {"logprobs": None, "finish_reason": finish_reason, "stop_reason": None, "token_ids": None}  # nosec B105  # token ids of a model
        choice |= {} if self._chat else {"prompt_logprobs": None, "prompt_token_ids": None}  # nosec B105  # token ids of a model
        choice["routed_experts"] = None
        body = self._head | {
            "object": "chat.completion" if self._chat else "text_completion",
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": self.usage(completion_tokens) | {"prompt_tokens_details": None, "completion_tokens_details": None},
        }
        if self._chat:
            body |= {"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None}  # nosec B105  # token ids of a model
        return body | {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": metrics}


def request_metrics(
    finished: FinishedRequest,
    gamma: int | None,
    *,
    timings: bool,
    acceptance: Literal["none", "summary", "detailed"],
) -> dict[str, Any] | None:
    """The ``metrics`` object of an answer; None, as vLLM writes it, where it would hold nothing.

    Args:
        finished: the request.
        gamma: the engine's configured number of draft tokens, None on a plain engine, which reports no acceptance.
        timings: with times in simulated milliseconds, which are null otherwise.
        acceptance: how much is told of the drafts.
    """
    reports = gamma is not None and acceptance != "none"
    if not timings and not reports:
        return None
    metrics: dict[str, Any] = _timings(finished) if timings else dict.fromkeys(_TIMES)
    if gamma is not None and reports:
        metrics["speculative_decoding"] = _speculation(finished, gamma, detailed=acceptance == "detailed")
    return metrics


_TIMES = ("time_to_first_token_ms", "generation_time_ms", "queue_time_ms", "mean_itl_ms", "tokens_per_second")


def _timings(finished: FinishedRequest) -> dict[str, Any]:
    first, last, scheduled = finished.first_token_at, finished.last_token_at, finished.scheduled_at
    decode_s = last - first if first is not None and last is not None else None
    gaps = finished.generated - 1
    values = (
        None if first is None else 1e3 * (first - finished.arrived_at),
        None if decode_s is None else 1e3 * decode_s,
        None if scheduled is None else 1e3 * (scheduled - finished.arrived_at),
        1e3 * decode_s / gaps if decode_s is not None and gaps > 0 else None,
        finished.generated / (last - finished.arrived_at) if last is not None else None,
    )
    return dict(zip(_TIMES, values, strict=True))


def _speculation(finished: FinishedRequest, gamma: int, *, detailed: bool) -> dict[str, Any]:
    drafted, accepted = finished.per_step_drafted, finished.per_step_accepted
    steps, draft_tokens, accepted_tokens = len(drafted), sum(drafted), sum(accepted)
    report: dict[str, Any] = {
        "mean_acceptance_length": 1 + accepted_tokens / steps if steps else None,
        "draft_acceptance_rate": accepted_tokens / draft_tokens if draft_tokens else None,
        "acceptance_histogram": [accepted.count(n) for n in range(gamma + 1)],
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": accepted_tokens,
        "num_draft_tokens": draft_tokens,
        "num_spec_tokens": gamma,
    }
    if detailed:
        report |= {"per_step_accepted": list(accepted), "per_step_drafted": list(drafted)}
    return report

"""What a generation request says, checked as vLLM checks it; and the errors it answers with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from adaptive_gamma.simulation.engine.text import estimate_tokens

__all__ = ["ApiError", "GenerationRequest", "RequestRules", "read_request"]

_CHAT_TOKENS_PER_MESSAGE = 4
_COMPLETION_DEFAULT_TOKENS = 16
_MIN_P_EPSILON = 1e-5


class ApiError(Exception):
    """An answer that is an error object."""

    def __init__(self, status: int, message: str, kind: str, param: str | None = None) -> None:
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        super().__init__(message)

    @property
    def body(self) -> dict[str, Any]:
        """The JSON of the answer."""
        return {
            "error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.status},
        }


def _refused(message: str, param: str | None) -> ApiError:
    return ApiError(400, message, "BadRequestError", param)


def _invalid(field: str, kind: str, problem: str) -> ApiError:
    message = f"1 validation error:\n  {{'type': '{kind}', 'loc': ('body', '{field}'), 'msg': '{problem}'}}"
    return ApiError(400, message, "Bad Request", f"body.{field}")


@dataclass(frozen=True, slots=True)
class RequestRules:
    """What this engine accepts."""

    model: str
    max_model_len: int
    speculative: bool


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request that the engine can serve."""

    kind: Literal["chat", "completion"]
    prompt: str
    """All text of the prompt; empty when it came as token ids."""
    prompt_tokens: int
    max_tokens: int
    stream: bool
    include_usage: bool
    continuous_usage: bool
    ignore_eos: bool


def read_request(kind: Literal["chat", "completion"], raw: bytes, rules: RequestRules) -> GenerationRequest:
    """Read a request's body.

    Raises:
        ApiError: the body is not JSON, lacks what it must have, names another model, or asks for what this engine
            refuses.
    """
    body = _json(raw)
    model = body.get("model")
    if model is not None and model != rules.model:
        raise ApiError(
            404, f"The model `{model}` does not exist. Valid aliases: {rules.model}.", "NotFoundError", "model"
        )
    prompt, prompt_tokens = _messages(body) if kind == "chat" else _prompt(body)
    _check_sampling(body, rules)
    options = body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise _invalid("stream_options", "dict_type", "Input should be a valid dictionary")
    stream = _flag(body, "stream")
    if options and not stream:
        raise _refused("Stream options can only be defined when `stream=True`.", "stream_options")
    options = options or {}
    return GenerationRequest(
        kind=kind,
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        max_tokens=_max_tokens(kind, body, prompt_tokens, rules.max_model_len),
        stream=stream,
        include_usage=_flag(options, "include_usage"),
        continuous_usage=_flag(options, "continuous_usage_stats"),
        ignore_eos=_flag(body, "ignore_eos"),
    )


def _json(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        position = error.pos if isinstance(error, json.JSONDecodeError) else error.start
        reason = error.msg if isinstance(error, json.JSONDecodeError) else error.reason
        message = (
            f"1 validation error:\n  {{'type': 'json_invalid', 'loc': 'body.{position}', 'msg': 'JSON decode error', "
            f"'ctx': {{'error': {reason!r}}}}}"
        )
        raise ApiError(400, message, "Bad Request", f"body.{position}") from error
    if not isinstance(body, dict):
        raise ApiError(400, "1 validation error: the body should be a JSON object", "Bad Request", "body")
    return body


def _messages(body: Mapping[str, Any]) -> tuple[str, int]:
    if "messages" not in body:
        raise _invalid("messages", "missing", "Field required")
    messages = body["messages"]
    if not isinstance(messages, list):
        raise _invalid("messages", "list_type", "Input should be a valid list")
    if not messages:
        raise _refused("messages must not be empty", "messages")
    texts: list[str] = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _invalid("messages", "missing", "Every message needs a role")
        texts.append(_content(message.get("content")))
    prompt = "\n".join(texts)
    return prompt, estimate_tokens(prompt) + _CHAT_TOKENS_PER_MESSAGE * len(messages)


def _content(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    raise _invalid("messages", "string_type", "Content should be a string or a list of parts")


def _prompt(body: Mapping[str, Any]) -> tuple[str, int]:
    if "prompt" not in body:
        raise _invalid("prompt", "missing", "Field required")
    prompt = body["prompt"]
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    if isinstance(prompt, str):
        if not prompt:
            raise _refused("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
        return prompt, estimate_tokens(prompt)
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return "", len(prompt)
    raise _refused("the simulated engine takes one prompt a request: a string or a list of token ids", "prompt")


def _check_sampling(body: Mapping[str, Any], rules: RequestRules) -> None:
    _number(body, "temperature", low=0.0, message="temperature must be non-negative")
    _number(body, "top_p", low=0.0, high=1.0, message="top_p must be in (0, 1]", above_low=True)
    min_p = _number(body, "min_p", low=0.0, high=1.0, message="min_p must be in [0, 1]")
    n = body.get("n")
    if n is not None and n != 1:
        raise _refused(f"the simulated engine answers with n=1 only, got {n!r}", "n")
    if rules.speculative and ((min_p or 0.0) > _MIN_P_EPSILON or body.get("logit_bias")):
        raise _refused(
            "The min_p and logit_bias sampling parameters are not yet supported with speculative decoding.", None
        )


def _number(
    body: Mapping[str, Any], name: str, *, low: float, message: str, high: float = float("inf"), above_low: bool = False
) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _invalid(name, "float_type", "Input should be a valid number")
    if not low <= value <= high or (above_low and value == low):
        raise _refused(f"{message}, got {value}.", name)
    return float(value)


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise _invalid(name, "bool_type", "Input should be a valid boolean")
    return value


def _max_tokens(kind: str, body: Mapping[str, Any], prompt_tokens: int, limit: int) -> int:
    room = limit - prompt_tokens
    if room < 1:
        raise _refused(
            f"This model's maximum context length is {limit} tokens, and the prompt has {prompt_tokens}.",
            "messages" if kind == "chat" else "prompt",
        )
    name = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    asked = body.get(name)
    if asked is None:
        return room if kind == "chat" else min(_COMPLETION_DEFAULT_TOKENS, room)
    if isinstance(asked, bool) or not isinstance(asked, int):
        raise _invalid(name, "int_type", "Input should be a valid integer")
    if asked < 1:
        raise _refused(f"max_tokens must be at least 1, got {asked}. (parameter=max_tokens, value={asked})", name)
    if asked > limit:
        raise _refused(
            f"max_tokens={asked} cannot be greater than max_model_len={limit}. Please request fewer output tokens. "
            f"(parameter=max_tokens, value={asked})",
            name,
        )
    if asked > room:
        raise _refused(
            f"This model's maximum context length is {limit} tokens: {prompt_tokens} of the prompt and {asked} of the "
            "answer do not fit.",
            name,
        )
    return asked

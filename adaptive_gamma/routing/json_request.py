"""What routing needs of a JSON body, which is parsed once.

The parsed form is looked at and dropped; the client's own bytes go to the engine.
"""

from __future__ import annotations

import gc
import json
from typing import Any

from pydantic_core import from_json

from adaptive_gamma.routing import BLOCK_CHARACTERS, LARGEST_PREFIX, STRUCTURED_OUTPUT
from adaptive_gamma.routing.error_answer import ErrorAnswer
from adaptive_gamma.routing.prompt_members import ITEMS_AT_EACH_END, PROMPT_MEMBERS, SAMPLING_MEMBERS
from adaptive_gamma.routing.score_rules import WINDOW
from adaptive_gamma.routing.structured_output import STRUCTURE_FIELDS, asks_for_structure

__all__ = ["JsonRequest", "parse_json"]

_LONG = 256 * 1024
_MOST_CONTAINERS = 400_000
_MOST_VALUES = 2_000_000
"""In a long body, brackets and commas in its texts included: each value costs time in which no stream moves. A prompt
of a million token ids passes."""
_BESIDE_MESSAGES = frozenset(PROMPT_MEMBERS) - {"messages"}
_DELICATE = SAMPLING_MEMBERS | STRUCTURE_FIELDS
_NONE: frozenset[str] = frozenset()
_ONE = (None, 1)
_OUTPUT_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens", "n_predict")


class JsonRequest:
    """What routing needs of a JSON body."""

    __slots__ = ("_fields", "_size", "_text", "model", "user")

    def __init__(self, fields: dict[str, Any], size: int) -> None:
        self._fields = fields
        model, user = fields.get("model"), fields.get("user")
        self.model: str | None = model if isinstance(model, str) and model else None
        self.user: str | None = user if isinstance(user, str) else None
        self._size = size
        self._text: str | None = None

    @property
    def prompt_tokens(self) -> int:
        """An estimate: four characters of text to a token; of a long body, or one without text, four bytes."""
        if self._size <= WINDOW:
            text = self.prompt_text()
            if text:
                return max(1, len(text) // 4)
        return self._size // 4

    @property
    def max_output_tokens(self) -> int | None:
        """The most output tokens the client allows, by any of the names the APIs have for it."""
        fields = self._fields
        for name in _OUTPUT_LIMITS:
            if name in fields:
                value = fields[name]
                if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                    return value
        return None

    @property
    def parameters(self) -> frozenset[str]:
        """Those parameters in effect that a speculating engine may refuse, structured output as one of them."""
        fields = self._fields
        if _DELICATE.isdisjoint(fields):
            return _NONE
        found = set()
        min_p = fields.get("min_p")
        if isinstance(min_p, int | float) and min_p > 0:
            found.add("min_p")
        if fields.get("logit_bias"):
            found.add("logit_bias")
        if asks_for_structure(fields):
            found.add(STRUCTURED_OUTPUT)
        return frozenset(found)

    @property
    def streams(self) -> bool:
        """Whether the answer is to be a stream."""
        return self._fields.get("stream") is True

    def one_choice(self) -> bool:
        """Whether one answer is asked for, so that what an engine reports of a request is of one sequence."""
        fields = self._fields
        if fields.get("n") not in _ONE or fields.get("best_of") not in _ONE:
            return False
        prompt = fields.get("prompt")
        return not isinstance(prompt, list) or len(prompt) < 2 or isinstance(prompt[0], int)

    def has_member(self, name: str) -> bool:
        """Whether the body has this member, were it null."""
        return name in self._fields

    def member(self, name: str) -> object:
        """A member of the body; None where it is null or absent."""
        return self._fields.get(name)

    def prompt_text(self) -> str:
        """The first and last 4096 characters of the prompt, or all of one that is shorter.

        Concatenates message contents and text parts, ``prompt``, ``input``, ``system`` and ``instructions``. Token
        ids, images and audio give no text. Time is bounded: of long lists only both ends are looked at.
        """
        if self._text is None:
            self._text = self._both_ends()
        return self._text

    def prefix_text(self) -> str:
        """The text a prompt begins with, headed by what keeps caches apart: the model and a ``cache_salt``.

        Two requests whose texts begin alike can share that part of an engine's cache. At most ``LARGEST_PREFIX``
        characters; "" for a prompt under ``BLOCK_CHARACTERS``, which no one remembers, and for one of token ids.
        """
        if self._size < BLOCK_CHARACTERS:  # a character takes a byte at least
            return ""
        text = self.prompt_text() if self._size <= WINDOW else "\n".join(_gather(self._sources(), LARGEST_PREFIX)[0])
        if len(text) < BLOCK_CHARACTERS:
            return ""
        salt = self._fields.get("cache_salt")
        return f"{self.model or ''}\n{salt if isinstance(salt, str) else ''}\n{text[:LARGEST_PREFIX]}"[:LARGEST_PREFIX]

    def _sources(self) -> list[Any]:
        fields = self._fields
        if "messages" in fields and _BESIDE_MESSAGES.isdisjoint(fields):
            return [fields["messages"]]
        return [value for name in PROMPT_MEMBERS if (value := fields.get(name)) is not None]

    def _both_ends(self) -> str:
        sources = self._sources()
        first, left = _gather(sources, WINDOW)
        if left > 0:
            return "\n".join(first)
        head = "\n".join(first)[:WINDOW]
        last, _ = _gather(sources, WINDOW, backwards=True)
        tail = "\n".join(reversed(last))[-WINDOW:]
        if len(first) == len(last) == 1 and first[0] == last[0]:
            text = first[0]
            return text if len(text) <= 2 * WINDOW else text[:WINDOW] + "\n" + text[-WINDOW:]
        return head + "\n" + tail


def _gather(sources: list[Any], enough: int, *, backwards: bool = False) -> tuple[list[str], int]:
    """The texts in a prompt, from one end, until they are long enough, and how many characters they lack."""
    texts: list[str] = []
    if len(sources) == 1:
        left = _collect(sources[0], texts, enough, backwards, 1)
    else:
        left = _collect(sources, texts, enough, backwards, 0)
    return texts, left


def _collect(value: Any, texts: list[str], left: int, backwards: bool, depth: int) -> int:
    """Adds to ``texts`` and returns how many characters are still wanted, 0 or less when it is enough."""
    if isinstance(value, list):
        if depth >= 4 or not value:
            return left
        ends = value[-ITEMS_AT_EACH_END:][::-1] if backwards else value[:ITEMS_AT_EACH_END]
        if isinstance(ends[0], int):
            return left
        for item in ends:
            # What nearly every message is, without a call.
            if isinstance(item, dict) and "text" not in item and isinstance(text := item.get("content"), str):
                if text:
                    texts.append(text)
                    left -= len(text)
            else:
                left = _collect(item, texts, left, backwards, depth + 1)
            if left <= 0:
                break
    elif isinstance(value, str):
        if value:
            texts.append(value)
            left -= len(value)
    elif isinstance(value, dict):
        text = value.get("text")
        if isinstance(text, str):
            texts.append(text)
            left -= len(text)
        elif (content := value.get("content")) is not None:
            left = _collect(content, texts, left, backwards, depth + 1)
    return left


def parse_json(body: bytes, content_encoding: bytes | None) -> JsonRequest:
    """Look into a JSON body. Raises ErrorAnswer (400, 415) for what is not a JSON object."""
    if content_encoding not in (None, b"", b"identity"):
        raise ErrorAnswer(
            415, "a compressed request body is not accepted", "unsupported_encoding", outcome="client_error"
        )
    long = len(body) > _LONG
    if long and (body.count(b"[") + body.count(b"{") > _MOST_CONTAINERS or body.count(b",") > _MOST_VALUES):
        raise ErrorAnswer(
            400, "the request body has too many values to be looked into", "body_too_complex", outcome="client_error"
        )
    # The collector would walk all of what is made here, again and again, and finds nothing.
    collecting = long and gc.isenabled()
    if collecting:
        gc.disable()
    try:
        fields = from_json(body)
    except ValueError as error:
        fields = _lenient(body)
        if fields is None:
            raise ErrorAnswer(
                400, f"the request body is not valid JSON: {error}", "invalid_json", outcome="client_error"
            ) from error
    finally:
        if collecting:
            gc.enable()
    if not isinstance(fields, dict):
        raise ErrorAnswer(400, "the request body is not a JSON object", "invalid_json", outcome="client_error")
    return JsonRequest(fields, len(body))


def _lenient(body: bytes) -> Any:
    """What engines in Python take all the same: half of a surrogate pair, as clients send that cut a text in an emoji.

    None where they would not either.
    """
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if isinstance(fields, dict) and isinstance(fields.get("model"), str):
        fields["model"] = fields["model"].encode("utf-8", "replace").decode("utf-8")
    return fields

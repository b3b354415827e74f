"""What routing needs of a JSON body, which is parsed once.

The parsed form is looked at and dropped; the client's own bytes go to the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic_core import from_json

from adaptive_gamma.proxy.answers import ErrorAnswer
from adaptive_gamma.routing import BLOCK_CHARACTERS, LARGEST_PREFIX

__all__ = ["JsonRequest", "parse_json"]

WINDOW = 4096
"""Characters kept of each end of a prompt."""

_ITEMS_AT_EACH_END = 64
_DELICATE = ("min_p", "logit_bias")
_OUTPUT_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens", "n_predict")


class JsonRequest:
    """What routing needs of a JSON body."""

    __slots__ = ("_fields", "_size", "_text", "model", "user")

    def __init__(self, fields: dict[str, Any], size: int) -> None:
        self._fields = fields
        model = fields.get("model")
        self.model: str | None = model if isinstance(model, str) and model else None
        user = fields.get("user")
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
        for name in _OUTPUT_LIMITS:
            value = self._fields.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
        return None

    @property
    def parameters(self) -> frozenset[str]:
        """Those parameters in effect that a speculating engine may refuse."""
        fields = self._fields
        if not any(name in fields for name in _DELICATE):
            return frozenset()
        found = set()
        min_p = fields.get("min_p")
        if isinstance(min_p, int | float) and min_p > 0:
            found.add("min_p")
        if fields.get("logit_bias"):
            found.add("logit_bias")
        return frozenset(found)

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
        if self._size <= WINDOW:
            text = self.prompt_text()
        else:
            text = "\n".join(_gather(_texts(self._sources(), backwards=False), LARGEST_PREFIX))
        if len(text) < BLOCK_CHARACTERS:
            return ""
        salt = self._fields.get("cache_salt")
        return f"{self.model or ''}\n{salt if isinstance(salt, str) else ''}\n{text}"[:LARGEST_PREFIX]

    def _sources(self) -> list[Any]:
        fields = self._fields
        return [fields.get(name) for name in ("system", "instructions", "messages", "prompt", "input")]

    def _both_ends(self) -> str:
        sources = self._sources()
        first = _gather(_texts(sources, backwards=False))
        if sum(map(len, first)) < WINDOW:
            return "\n".join(first)
        head = "\n".join(first)[:WINDOW]
        last = _gather(_texts(sources, backwards=True))
        tail = "\n".join(reversed(last))[-WINDOW:]
        if len(first) == len(last) == 1 and first[0] == last[0]:
            text = first[0]
            return text if len(text) <= 2 * WINDOW else text[:WINDOW] + "\n" + text[-WINDOW:]
        return head + "\n" + tail


def _gather(texts: Iterator[str], enough: int = WINDOW) -> list[str]:
    gathered: list[str] = []
    size = 0
    for text in texts:
        gathered.append(text)
        size += len(text)
        if size >= enough:
            break
    return gathered


def _texts(value: Any, *, backwards: bool, depth: int = 0) -> Iterator[str]:
    """The texts in a prompt, from one end."""
    if isinstance(value, str):
        if value:
            yield value
    elif isinstance(value, dict):
        if isinstance(text := value.get("text"), str):
            yield text
        elif (content := value.get("content")) is not None:
            yield from _texts(content, backwards=backwards, depth=depth + 1)
    elif isinstance(value, list) and depth < 4:
        ends = value[-_ITEMS_AT_EACH_END:][::-1] if backwards else value[:_ITEMS_AT_EACH_END]
        if ends and isinstance(ends[0], int):
            return
        for item in ends:
            yield from _texts(item, backwards=backwards, depth=depth + 1)


def parse_json(body: bytes, content_encoding: bytes | None) -> JsonRequest:
    """Look into a JSON body. Raises ErrorAnswer (400, 415) for what is not a JSON object."""
    if content_encoding not in (None, b"", b"identity"):
        raise ErrorAnswer(
            415, "a compressed request body is not accepted", "unsupported_encoding", outcome="client_error"
        )
    try:
        fields = from_json(body)
    except ValueError as error:
        raise ErrorAnswer(
            400, f"the request body is not valid JSON: {error}", "invalid_json", outcome="client_error"
        ) from error
    if not isinstance(fields, dict):
        raise ErrorAnswer(400, "the request body is not a JSON object", "invalid_json", outcome="client_error")
    return JsonRequest(fields, len(body))

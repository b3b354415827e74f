"""What the picker needs of a request's headers, and the endpoints that a gateway allows it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from adaptive_gamma.envoy.picker.answers import DESTINATION, OWN_PREFIX

__all__ = ["SUBSET_KEY", "SUBSET_NAMESPACE", "TEST_SELECTION", "RequestHead", "subset_of"]

SUBSET_NAMESPACE = "envoy.lb.subset_hint"
SUBSET_KEY = "x-gateway-destination-endpoint-subset"
TEST_SELECTION = "test-epp-endpoint-selection"
"""The header by which conformance tests say what is to be picked."""
_READ = frozenset({":path", ":method", "content-length", "x-session-id", "content-encoding", TEST_SELECTION})
_SERVED = "x-gateway-destination-endpoint-served"


class RequestHead:
    """A request's headers.

    Args:
        fields: ``HeaderValue`` messages, names in lower case as HTTP/2 has them.
        class_header: the header a client may name the class in, lower case; None trusts none.
    """

    __slots__ = (
        "content_encoding", "content_length", "method", "path", "removed", "request_class", "session", "test_selection",
    )  # fmt: skip

    def __init__(self, fields: Iterable[Any], class_header: str | None) -> None:
        self.method = "GET"
        self.path = "/"
        self.session: str | None = None
        self.request_class: str | None = None
        self.content_encoding: bytes | None = None
        self.content_length: int | None = None
        self.test_selection: str | None = None
        removed: list[str] = []
        for field in fields:
            name = field.key
            if name == class_header:
                self.request_class = _text(field)
                removed.append(name)
            elif name in _READ:
                self._read(name, _text(field))
            elif name.startswith(OWN_PREFIX) or name == _SERVED:
                removed.append(name)
        self.removed = tuple(dict.fromkeys(removed))
        """Headers that no engine gets to see; ``DESTINATION`` is not among them, it is always overwritten."""
        assert DESTINATION not in self.removed

    def _read(self, name: str, text: str) -> None:
        if name == ":path":
            path = text.partition("?")[0]
            self.path = unquote(path, errors="replace") if "%" in path else path
        elif name == ":method":
            self.method = text
        elif name == "content-length":
            self.content_length = int(text) if text.isascii() and text.isdigit() else None
        elif name == "x-session-id":
            self.session = text
        elif name == "content-encoding":
            self.content_encoding = text.strip().lower().encode("latin-1", "replace")
        else:
            self.test_selection = text


def _text(field: Any) -> str:
    value: bytes = field.raw_value or field.value
    return value.decode("latin-1")


def subset_of(message: Any) -> frozenset[str] | None:
    """The endpoints that a gateway allows for a request; None where it does not say, empty where it allows none.

    They come as a list of strings, or as one string with commas.
    """
    if not message.HasField("metadata_context"):
        return None
    namespaces = message.metadata_context.filter_metadata
    if SUBSET_NAMESPACE not in namespaces:  # asking for it would make it
        return None
    fields = namespaces[SUBSET_NAMESPACE].fields
    if SUBSET_KEY not in fields:
        return None
    hint = fields[SUBSET_KEY]
    texts = [value.string_value for value in hint.list_value.values] or [hint.string_value]
    return frozenset(part for text in texts for each in text.split(",") if (part := each.strip()))

"""Which paths the data port serves. Everything else is 404, unless the configuration allows it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

__all__ = ["Endpoint", "EndpointTable", "Handling"]


class Handling(Enum):
    """How a request of an endpoint finds its replica."""

    DECIDE = "decide"
    """By the decision."""
    MODELS = "models"
    """Answered from what the replicas list, where that is known."""
    SEARCH = "search"
    """Each healthy replica is asked in turn until one knows the object."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One path, or one shape of paths."""

    methods: frozenset[bytes]
    json: bool = True
    """The body is a JSON object with ``model``; otherwise it passes unparsed."""
    generates: bool = False
    """The engine decodes tokens for it, so that its class and prompt matter to the decision."""
    handling: Handling = Handling.DECIDE
    stores: bool = False
    """The engine may store the answer, for later requests to go on from."""

    @property
    def allow(self) -> bytes:
        """The Allow header."""
        return b", ".join(sorted({*self.methods, b"OPTIONS"}))


_POST = frozenset({b"POST"})
_GET = frozenset({b"GET", b"HEAD"})

_GENERATE = Endpoint(_POST, generates=True)
_RESPOND = Endpoint(_POST, generates=True, stores=True)
_COMPUTE = Endpoint(_POST)
_UPLOAD = Endpoint(_POST, json=False, generates=True)

_MODELS = Endpoint(_GET, json=False, handling=Handling.MODELS)

_TABLE: dict[str, Endpoint] = {
    "/completion": _GENERATE,
    "/inference/v1/generate": _GENERATE,
    "/v1/chat/completions": _GENERATE,
    "/v1/chat/completions/batch": _GENERATE,
    "/v1/completions": _GENERATE,
    "/v1/messages": _GENERATE,
    "/v1/responses": _RESPOND,
    "/v1/audio/transcriptions": _UPLOAD,
    "/v1/audio/translations": _UPLOAD,
    "/classify": _COMPUTE,
    "/detokenize": _COMPUTE,
    "/pooling": _COMPUTE,
    "/rerank": _COMPUTE,
    "/score": _COMPUTE,
    "/tokenize": _COMPUTE,
    "/v1/embeddings": _COMPUTE,
    "/v1/messages/count_tokens": _COMPUTE,
    "/v1/rerank": _COMPUTE,
    "/v1/score": _COMPUTE,
    "/v2/embed": _COMPUTE,
    "/v2/rerank": _COMPUTE,
    "/v1/models": _MODELS,
}

# Names of models have slashes in them; no part of one is a step up.
_ONE_MODEL = re.compile(r"/v1/models/(?!(?:.*/)?\.{1,2}(?:/|$))[^/?#\x00-\x1f][^?#\x00-\x1f]{0,255}", re.DOTALL)
_STORED_RESPONSE = re.compile(r"/v1/responses/(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]{1,256}(/cancel)?")
_STORED_READ = Endpoint(_GET, json=False, handling=Handling.SEARCH)
_STORED_CANCEL = Endpoint(_POST, json=False, handling=Handling.SEARCH)
_ALLOWED = Endpoint(_POST | _GET, json=False)


class EndpointTable:
    """The built-in paths and those the configuration adds."""

    def __init__(self, allow_paths: Iterable[str] = ()) -> None:
        self._table = dict.fromkeys(allow_paths, _ALLOWED) | _TABLE

    def fixed(self) -> Iterable[tuple[str, Endpoint]]:
        """The paths that are written out, with their endpoints; :meth:`find` knows shapes of paths beside them."""
        return self._table.items()

    def find(self, path: str) -> Endpoint | None:
        """The endpoint of a path, or None."""
        endpoint = self._table.get(path)
        if endpoint is None and (stored := _STORED_RESPONSE.fullmatch(path)) is not None:
            return _STORED_CANCEL if stored[1] else _STORED_READ
        if endpoint is None and _ONE_MODEL.fullmatch(path) is not None:
            return _MODELS
        return endpoint

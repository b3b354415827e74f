"""The files of the page, as they lie in the package."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import NamedTuple

__all__ = ["ASSET_NAMES", "PAGE_HEADERS", "Asset", "asset", "live_page"]

_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_FOLDER = files("adaptive_gamma.page").joinpath("assets")
_PAGE = "live.html"

ASSET_NAMES = frozenset(
    entry.name for entry in _FOLDER.iterdir() if entry.name.rpartition(".")[2] in ("css", "js", "svg")
)
"""What the page may ask for beside itself."""

PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""Of the page and its files: nothing but they themselves is loaded, and no text can become markup or a script."""


class Asset(NamedTuple):
    """A file as it is sent."""

    body: bytes
    media_type: str
    tag: str
    """Changes with the body: the value of ``ETag``."""


@cache
def asset(name: str) -> Asset:
    """One of ``ASSET_NAMES``. Raises KeyError for any other name."""
    if name not in ASSET_NAMES:
        raise KeyError(name)
    return _read(name)


@cache
def live_page() -> Asset:
    """The page itself. It asks for its files below ``ui/``, from wherever it was found."""
    return _read(_PAGE)


def _read(name: str) -> Asset:
    body = _FOLDER.joinpath(name).read_bytes()
    return Asset(body, _TYPES[name.rpartition(".")[2]], f'"{hashlib.sha256(body).hexdigest()[:20]}"')

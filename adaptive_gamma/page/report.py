"""A report as one file that needs nothing else: styles, scripts and data inside.

The scripts are the live page's own modules, put one after the other. For that they keep to a form: an import is one
line that names what it takes from a module beside it, an export is a declaration, and no two modules declare the same
name.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from typing import Any

from adaptive_gamma.page.assets import asset

__all__ = ["json_block", "one_script", "report_page"]

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z_]+\.js)";$', re.M)
_EXPORT = re.compile(r"^export (?=(?:async )?function |const |class )", re.M)
_UNHANDLED = re.compile(r"^(?:import|export)\b.*$", re.M)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:image/svg+xml;base64,{icon}">
<style>{style}</style>
</head>
<body>
<noscript>This report draws its plots with a script inside of this file; scripts are off.</noscript>
<div id="app"></div>
<script type="application/json" id="data">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def json_block(data: Mapping[str, Any]) -> str:
    """JSON that can stand inside of a ``script`` element whatever its strings hold.

    ``<``, ``>`` and ``&`` are written as escapes, so that no string ends the element or opens a comment in it, and so
    are the two line ends that are none in JSON. Raises ValueError for a number that is not finite.
    """
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    # What is no character by itself could not be written as UTF-8.
    return re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)


@cache
def one_script(entry: str) -> str:
    """A module and all that it imports, as one. Raises ValueError where a module does not keep to the form."""
    order: list[str] = []
    _collect(entry, order, ())
    parts = []
    for name in order:
        text = _EXPORT.sub("", _IMPORT.sub("", _source(name)))
        if (left := _UNHANDLED.search(text)) is not None:
            raise ValueError(f"{name}: cannot be put into one script: {left[0]}")
        parts.append(f"// {name}\n{text.strip()}\n")
    script = "\n".join(parts)
    if "</script" in script.lower() or "<!--" in script:
        raise ValueError(f"{entry}: would end the element it stands in")
    return script


def report_page(title: str, entry: str, data: Mapping[str, Any]) -> str:
    """The report as an HTML document.

    Args:
        title: of the document.
        entry: the module that draws it; it finds ``data`` in the element with the id ``data``.
        data: what is drawn. Raises ValueError for a number that is not finite.
    """
    script, style = f"\n{one_script(entry)}", f"\n{asset('page.css').body.decode()}"
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=policy,
        title=escape(title),
        icon=base64.b64encode(asset("icon.svg").body).decode(),
        style=style,
        data=json_block(data),
        script=script,
    )


def _source(name: str) -> str:
    return asset(name).body.decode()


def _collect(name: str, order: list[str], above: tuple[str, ...]) -> None:
    if name in above:
        raise ValueError(f"{name} imports itself by way of {', '.join(above)}")
    if name in order:
        return
    for needed in _IMPORT.findall(_source(name)):
        _collect(needed, order, (*above, name))
    order.append(name)


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"

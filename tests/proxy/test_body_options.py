from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.proxy.body_options import with_option

values = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=12)
spaces = st.sampled_from(["", " ", "\n\t", "  "])


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, Any]:
    """A body with ``stream_options``, written with any white space, and that member."""
    plain = st.dictionaries(
        st.sampled_from(["chunk_include_usage", "include_obfuscation", "é", ""]), values, max_size=3
    )
    options = draw(st.none() | plain)
    if options is not None and draw(st.booleans()):
        options["include_usage"] = draw(st.sampled_from([False, None]))
    names = st.text(max_size=6).filter(lambda name: name != "stream_options")
    others = st.dictionaries(names, values | st.lists(values, max_size=2) | st.dictionaries(names, values, max_size=2))
    fields = list(draw(others).items())
    fields.insert(draw(st.integers(0, len(fields))), ("stream_options", options))
    separators = (draw(spaces) + "," + draw(spaces), draw(spaces) + ":" + draw(spaces))
    text = json.dumps(dict(fields), separators=separators, ensure_ascii=draw(st.booleans()), indent=None)
    return (draw(spaces) + text + draw(spaces)).encode("utf-8", "surrogatepass"), options


@given(bodies())
def test_the_option_is_on_and_all_else_is_as_before(body: tuple[bytes, Any]) -> None:
    raw, options = body
    found = with_option(raw, "stream_options", "include_usage", options or {})
    if found is None:
        # Escapes in the member, or its name once more in a string of the body.
        assert b"\\" in raw or raw.count(b"stream_options") > 1
        return
    before, after = json.loads(raw), json.loads(found)
    assert after == {**before, "stream_options": {**(options or {}), "include_usage": True}}
    assert list(after) == list(before)
    start = next(i for i, (a, b) in enumerate(zip(raw, found, strict=False)) if a != b)
    end = next(i for i, (a, b) in enumerate(zip(raw[::-1], found[::-1], strict=False)) if a != b)
    touched = raw[start : len(raw) - end]
    assert touched in (b"null", b"fals", b"nul", b"") or touched.strip(b"{}") == b"", touched


@pytest.mark.parametrize(
    ("body", "after"),
    [
        ('{"stream_options":null}', '{"stream_options":{"include_usage":true}}'),
        ('{"stream_options" : {} }', '{"stream_options" : {"include_usage":true} }'),
        ('{"stream_options":{ "x": 1 }}', '{"stream_options":{"include_usage":true, "x": 1 }}'),
        ('{"stream_options":{"include_usage" : false}}', '{"stream_options":{"include_usage" : true}}'),
        ('{"stream_options":{"include_usage":null,"x":"a}b"}}', '{"stream_options":{"include_usage":true,"x":"a}b"}}'),
        (
            r'{"a":"\"stream_options\":null","stream_options":null}',
            r'{"a":"\"stream_options\":null","stream_options":{"include_usage":true}}',
        ),
        ('{"a":{"stream_options":null},"stream_options":null}', None),
        ('{"stream_options":null,"stream_options":null}', None),
        ('{"stream\\u005foptions":null}', None),
        ('{"stream_options":{"x":{}}}', None),
        ('{"stream_options":{"x":[1]}}', None),
        ('{"stream_options":{"x":"\\n"}}', None),
        (
            '{"stream_options":{"include_usage":false,"x":"include_usage"}}',
            '{"stream_options":{"include_usage":true,"x":"include_usage"}}',
        ),
        ('{"stream_options":{"include_usage":"no"}}', None),
        ('{"stream_options":7}', None),
    ],
)  # fmt: skip
def test_places(body: str, after: str | None) -> None:
    options = json.loads(body).get("stream_options")
    found = with_option(body.encode(), "stream_options", "include_usage", options if isinstance(options, dict) else {})
    assert found == (None if after is None else after.encode())

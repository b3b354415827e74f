"""Fields put into a body as bytes: what the client wrote stays, the lengths are of bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json

from adaptive_gamma.proxy.body_fields import encoded_members, insert_members

GAMMA = {"speculative.n_max": 3}
MEMBERS = encoded_members(GAMMA)

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(st.text(), values, max_size=6)
spaces = st.text(alphabet=" \t\r\n", max_size=100)


@given(objects, spaces, spaces, spaces, st.booleans(), st.sampled_from([None, 1]))
def test_an_object_gains_the_fields_and_keeps_its_bytes(
    fields: dict[str, Any], before: str, inside: str, after: str, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(fields, ensure_ascii=ascii_only, indent=indent)
    body = f"{before}{{{inside}{text[1:]}{after}".encode("utf-8", "surrogatepass")
    found = insert_members(body, MEMBERS)
    assert found is not None
    assert json.loads(found) == {**GAMMA, **fields}
    assert found.replace(MEMBERS + (b"," if fields else b""), b"", 1) == body
    assert len(found) == len(body) + len(MEMBERS) + (1 if fields else 0)


def test_what_the_client_set_itself_holds() -> None:
    for own in (b'{"speculative.n_max": 0}', b'{"a":1,"speculative\\u002en_max":0}'):
        body = insert_members(own, MEMBERS)
        assert body is not None
        assert from_json(body)["speculative.n_max"] == json.loads(body)["speculative.n_max"] == 0


def test_the_length_counts_bytes_not_characters() -> None:
    body = json.dumps({"prompt": "Grüße, 世界 🙂"}, ensure_ascii=False).encode()
    found = insert_members(body, MEMBERS)
    assert found is not None
    assert len(found) == len(body) + len(b'"speculative.n_max":3,')
    assert len(found) == len(found.decode()) + 9


@pytest.mark.parametrize(
    "body",
    [
        b"", b"  ", b"[1]", b"null", b'"{"', b"{", b'\xef\xbb\xbf{"a":1}',
        '{"a":1}'.encode("utf-16-le"), '{"a":1}'.encode("utf-16-be"), '{"a":1}'.encode("utf-16"),
        '{"a":1}'.encode("utf-32-le"), '{"a":1}'.encode("utf-32-be"),
    ],
)  # fmt: skip
def test_what_is_no_object_in_utf_8_is_left_alone(body: bytes) -> None:
    assert insert_members(body, MEMBERS) is None


def test_fields_are_checked_when_they_are_made() -> None:
    with pytest.raises(ValueError, match="no fields"):
        encoded_members({})
    with pytest.raises(ValueError, match="JSON"):
        encoded_members({"a": float("nan")})
    assert encoded_members({"stream_options": {"include_usage": True}}) == b'"stream_options":{"include_usage":true}'

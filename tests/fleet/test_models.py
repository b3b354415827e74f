from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.fleet.models import ModelList, read_model_list

STRINGS = st.text(st.characters(exclude_categories=()), max_size=4)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), STRINGS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(STRINGS, inner, max_size=3)),
    max_leaves=6,
)
ENTRIES = st.one_of(
    VALUES, st.builds(lambda name, more: {**more, "id": name}, STRINGS, st.dictionaries(STRINGS, VALUES))
)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (b'{"data": []}', ModelList([], 0)),
        (b'{"data": [{"id": "a"}]}', ModelList([{"id": "a"}], 0)),
        (b'{"data": [{"id": "a"}, {"id": 5}]}', ModelList([{"id": "a"}], 1)),
        (b'{"data": [{"id": 5}, {"id": null}, [], "x"]}', ModelList(None, 4)),
        (b'{"data": [{"id": "\\ud800"}, {"id": "\\ud83d\\ude00"}]}', ModelList([{"id": "\U0001f600"}], 1)),
        (b'{"data": [{"id": "a", "root": "\\udfff"}]}', ModelList(None, 1)),
        (b'{"data": [{"id": "a", "\\udfff": 1}]}', ModelList(None, 1)),
        (b'{"data": [{"id": "' + b"x" * 257 + b'"}]}', ModelList(None, 1)),
        (b'{"data": [{"id": "' + b"x" * 256 + b'"}]}', ModelList([{"id": "x" * 256}], 0)),
        (b'{"data": [{"id": "a", "n": 1e999}, {"id": "b"}]}', ModelList([{"id": "b"}], 1)),
        (b'{"data": [{"id": "a", "n": NaN}, {"id": "b"}]}', None),
        (b'{"data": [{"id": "a", "n": -Infinity}]}', None),
        (b'{"more": Infinity, "data": []}', None),
        (b'{"data": {}}', None),
        (b"[]", None),
        (b"\xff\xfe\xfa", None),
        (b"not json", None),
        (b"[" * 200_000, None),
        (b'{"data": [' + b"9" * 5000 + b"]}", None),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, bytes) else "",
)
def test_pages(page: bytes, expected: ModelList | None) -> None:
    assert read_model_list(page) == expected


@given(st.lists(ENTRIES, max_size=5))
def test_what_is_kept_is_strict_json_in_utf_8(listed: list[Any]) -> None:
    found = read_model_list(json.dumps({"data": listed}).encode())
    if found is None:
        return
    kept = found.entries or []
    assert json.loads(json.dumps(kept, ensure_ascii=False, allow_nan=False).encode()) == kept
    assert len(kept) + found.dropped == len(listed)
    assert (found.entries is None) == (bool(listed) and not kept)

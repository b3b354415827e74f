"""Bodies come back as they came, in however many parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.proxy.body_buffer import BodyBuffer


@given(st.lists(st.binary(max_size=50)), st.booleans(), st.integers(0, 3))
def test_the_parts_make_the_whole(parts: list[bytes], announced: bool, long: int) -> None:
    parts = [*parts, *[b"x" * 200_000] * long]
    whole = b"".join(parts)
    buffer = BodyBuffer(len(whole) if announced else None)
    for part in parts:
        buffer.add(part)
    assert buffer.size == len(whole)
    assert buffer.take() == whole
    assert buffer.take() == b""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.proxy.headers import usual_name

USUAL = ["content-type", "Content-Type", "authorization", "X-Api-Key", "Host", "date", "Date"]


@given(st.sampled_from(USUAL).map(str.encode) | st.binary(max_size=40))
def test_a_usual_name_is_the_lower_case_of_what_it_was(name: bytes) -> None:
    assert usual_name(name) in (None, name.lower())


def test_usual_names_are_known_in_both_cases_they_come_in() -> None:
    assert [usual_name(name.encode()) for name in USUAL] == [name.lower().encode() for name in USUAL]

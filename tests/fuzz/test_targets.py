"""Every fuzz target holds for a few examples, the same in every run; `make fuzz` runs them for long."""

from __future__ import annotations

import pytest

from tests.fuzz.target import bounded
from tests.fuzz.targets import ALL


@pytest.mark.parametrize("name", sorted(ALL))
def test_target_holds(name: str) -> None:
    with bounded(60):
        ALL[name].property(30, derandomize=True)()

"""What fuzzing found beside YAML and the terminal, each with the right answer."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from adaptive_gamma.errors import PolicyError
from adaptive_gamma.policy import Policy, shipped_policies


def _article() -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(shipped_policies()["article-h100-27b"].read_text())
    return data


@pytest.mark.parametrize("number", [10**400, -(10**400), 10**30, 2**63], ids=["huge", "negative", "long", "64 bits"])
def test_a_table_with_a_number_that_no_float_holds_is_refused_with_words(number: int) -> None:
    """``plain_wins_from`` of hundreds of digits ended in an OverflowError while it was being told."""
    data = _article()
    (first, *_) = data["table"]["classes"]
    (context, *_) = data["table"]["classes"][first]
    data["table"]["classes"][first][context]["plain_wins_from"] = number
    with pytest.raises(PolicyError, match=rf"plain_wins_from: is {number}, but the inputs give "):
        Policy.from_mapping(data, "p.yaml")

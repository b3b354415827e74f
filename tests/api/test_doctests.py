"""The examples in docstrings of the library print what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

from adaptive_gamma import roofline

MODULES = [
    "adaptive_gamma",
    *(f"{roofline.__name__}.{found.name}" for found in pkgutil.iter_modules(roofline.__path__)),
]
WITH_EXAMPLES = {"adaptive_gamma", *(f"{roofline.__name__}.{name}" for name in (
    "acceptance", "capture", "kv_cache", "moe", "speculation",
))}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
    assert (result.attempted > 0) or name not in WITH_EXAMPLES

"""The strings that stand below the attributes of a class, which Python itself does not keep."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import cache
from itertools import pairwise

__all__ = ["attribute_words"]


@cache
def attribute_words(owner: type) -> dict[str, str]:
    """What is said of each attribute in the class or, failing that, in the classes it is made of."""
    words: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.startswith("adaptive_gamma"):
            words |= _of_one(base)
    return words


def _of_one(owner: type) -> dict[str, str]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    except (OSError, TypeError):  # a class made at run time
        return {}
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    words = {}
    for attribute, said in pairwise(body):
        if (
            isinstance(attribute, ast.AnnAssign)
            and isinstance(attribute.target, ast.Name)
            and isinstance(said, ast.Expr)
            and isinstance(said.value, ast.Constant)
            and isinstance(said.value.value, str)
        ):
            words[attribute.target.id] = inspect.cleandoc(said.value.value)
    return words

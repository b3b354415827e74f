"""YAML that people write: safe, one meaning a text, and bounded in what a few lines may stand for."""

from __future__ import annotations

import errno
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from adaptive_gamma.errors import ConfigurationError, shortened

__all__ = ["MOST_BYTES", "MOST_VALUES", "parse_yaml", "read_text"]

MOST_BYTES = 1 << 24
"""Of a file: nobody writes more of it, and a device has no end."""
MOST_VALUES = 1_000_000
"""Values that a text with aliases may stand for: ten lines of aliases upon aliases could mean more than memory has."""
_MOST_DIGITS = 3500
"""Python writes no number of more than 4,300, and what is wrong must be told."""
_MERGE = "tag:yaml.org,2002:merge"
_EXPONENT = re.compile(r"^[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+$")


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """A file's text, of ``MOST_BYTES`` at most.

    Raises OSError, also for a longer one, and ValueError for what is no text.
    """
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"is larger than {MOST_BYTES >> 20} MiB", str(path))
    return data.decode(encoding)


def parse_yaml(
    text: str, source: str, *, text_keys: bool = False, error: type[ConfigurationError] = ConfigurationError
) -> Any:
    """The value of a YAML text.

    Plain data only, with these differences from YAML 1.1: ``3.35e12`` is a number as in YAML 1.2, a key may stand only
    once, no value may hold itself, and aliases may not multiply to more than ``MOST_VALUES``.

    Args:
        text: the file's.
        source: names it in errors.
        text_keys: refuse keys that are not text.
        error: what is raised.

    Raises ``error`` with the line where there is one.
    """
    try:
        return (_TextKeys if text_keys else _Loader)(text).get_single_data()
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        raise error(source, "", f"{where}{_shown(problem.problem or 'not valid YAML')}") from None
    except yaml.YAMLError as problem:
        raise error(source, "", f"not valid YAML: {_shown(str(problem))}") from None
    except RecursionError:
        raise error(source, "", "is nested too deeply") from None
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as problem:
        # The library's own reading of what only looks like a date, a number or a tagged value.
        raise error(source, "", f"not valid YAML: {_shown(str(problem))}") from None


def _shown(problem: str) -> str:
    """On one line, without all of a text that the library quotes: the name of an alias, say, has no end."""
    return shortened(" ".join(problem.split()))


class _Loader(yaml.SafeLoader):
    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._count = 0
        self._sizes: dict[int, int] = {}
        self._has_aliases = "*" in text

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if not self._has_aliases:
            return super().compose_node(parent, index)
        if self.check_event(yaml.AliasEvent):
            mark = self.current_event.start_mark
            node = super().compose_node(parent, index)
            size = self._sizes.get(id(node))
            if size is None:
                raise yaml.composer.ComposerError(None, None, "the value holds itself", mark)
            self._count += size
            if self._count > MOST_VALUES:
                raise yaml.composer.ComposerError(None, None, f"aliases stand for over {MOST_VALUES} values", mark)
            return node
        before = self._count
        node = super().compose_node(parent, index)
        self._count += 1
        self._sizes[id(node)] = self._count - before
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value[:80]!r} is given twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if len(str(node.value)) > _MOST_DIGITS:
            raise yaml.constructor.ConstructorError(None, None, "a number of too many digits", node.start_mark)
        return super().construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+.0123456789"))


class _TextKeys(_Loader):
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        for key, _ in node.value:
            if key.tag == _MERGE:
                continue
            name = self.construct_object(key, deep=True)
            if not isinstance(name, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {repr(name)[:80]} is not a text", key.start_mark
                )
        return super().construct_mapping(node, deep)

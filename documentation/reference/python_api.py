"""The Python interface: what the packages of the physics, the policy and the decision name as public."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from adaptive_gamma.cli.attribute_words import attribute_words
from documentation.reference.markdown import page, prose, table

__all__ = ["MODULES", "public_names", "python_api_page"]

MODULES = ("adaptive_gamma", "adaptive_gamma.roofline", "adaptive_gamma.policy", "adaptive_gamma.routing")
_SECTION = re.compile(r"^(Args|Raises|Returns|Example|Examples|Attributes):\s*$")


def public_names(module: ModuleType) -> list[str]:
    """``__all__``, in its order, dunders last."""
    names: list[str] = list(module.__all__)
    return [name for name in names if not name.startswith("__")]


def python_api_page() -> str:
    """The page."""
    parts = [
        "What may be imported and is meant to stay. The package is typed (`py.typed`). Everything here is pure: no "
        "clock, no socket, and no file but those named by an argument. Time is in seconds, sizes in bytes, "
        "work in FLOP; "
        "gamma is the number of draft tokens per step.",
    ]
    for name in MODULES:
        module = importlib.import_module(name)
        names = public_names(module)
        if not names:
            continue
        parts += [f"## {name}", *_words(module)]
        again: dict[str, list[str]] = {}
        for each in names:
            value = getattr(module, each)
            owner = next((other for other in MODULES[1:] if each in importlib.import_module(other).__all__), None)
            if name == "adaptive_gamma" and owner is not None:
                again.setdefault(owner, []).append(each)
                continue
            parts += _member(each, value, module)
        for owner, taken in again.items():
            anchor = owner.replace(".", "")
            parts.append(f"From [`{owner}`](#{anchor}): {', '.join(f'`{each}`' for each in taken)}.")
    return page("Python interface", *parts)


def _member(name: str, value: Any, package: ModuleType) -> Iterator[str]:
    yield f"### {name}"
    if inspect.isclass(value):
        yield from _class(name, value)
    elif inspect.isroutine(value):
        yield f"```python\n{name}{_signature(value)}\n```"
        yield from _words(value)
    else:
        yield from _value(name, package)


def _class(name: str, value: type) -> Iterator[str]:
    is_protocol = getattr(value, "_is_protocol", False)
    if not is_protocol and (dataclasses.is_dataclass(value) or "__init__" in value.__dict__):
        yield f"```python\n{name}{_signature(value)}\n```"
    yield from _words(value)
    words = attribute_words(value)
    rows = [(f"`{each}`", prose(said)) for each, said in words.items() if not each.startswith("_")]
    for each, member in vars(value).items():
        if each.startswith("_"):
            continue
        if isinstance(member, property | cached_property):
            rows.append((f"`{each}`", prose(_first(member))))
        elif isinstance(member, classmethod | staticmethod) or inspect.isfunction(member):
            rows.append((f"`{each}{_signature(getattr(value, each))}`", prose(_first(member))))
    if rows:
        yield table(("member", ""), rows)


def _first(member: Any) -> str:
    """The first paragraph of what is said of it."""
    return (inspect.getdoc(member) or "").partition("\n\n")[0]


def _words(value: Any) -> Iterator[str]:
    """The docstring; its sections as lists. A dataclass without one has a signature in its place, which is left out."""
    said = inspect.getdoc(value) or ""
    if inspect.isclass(value) and (value.__doc__ is None or said.startswith(f"{value.__name__}(")):
        return
    blocks: list[str] = []
    for paragraph in re.split(r"\n\s*\n", said):
        lines = paragraph.splitlines()
        found = _SECTION.match(lines[0]) if lines else None
        if found and len(lines) > 1 and found[1] in ("Args", "Raises", "Attributes"):
            items = re.split(r"\n(?=\S)", inspect.cleandoc("\n".join(["", *lines[1:]])))
            blocks.append(f"{found[1]}:\n\n" + "\n".join(f"- {_item(item)}" for item in items))
        elif paragraph.lstrip().startswith(">>>") or (found and found[1].startswith("Example")):
            body = inspect.cleandoc("\n".join(["", *(lines[1:] if found else lines)]))
            blocks.append(f"```pycon\n{body}\n```")
        elif lines and all(line.startswith("    ") for line in lines):
            blocks.append(f"```text\n{inspect.cleandoc(paragraph)}\n```")
        else:
            blocks.append(prose(paragraph))
    yield from blocks


def _item(text: str) -> str:
    name, colon, meaning = prose(text).partition(":")
    return f"`{name}`:{meaning}" if colon and " " not in name else prose(text)


def _signature(value: Any) -> str:
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return "(...)"
    text = re.sub(r"<(?:factory|object object at 0x[0-9a-f]+)>", "...", text)
    return text.replace("'", "").replace("adaptive_gamma.", "") if "'" in text else text


def _value(name: str, package: ModuleType) -> Iterator[str]:
    """A constant or the name of a type, as it stands in the source, with the string below it."""
    source, words = _assigned(Path(package.__file__ or "").parent)[name]
    yield f"```python\n{source if source.count(chr(10)) < 8 else source.partition('=')[0] + '= ...'}\n```"
    if words:
        yield prose(words)


@cache
def _assigned(folder: Path) -> dict[str, tuple[str, str]]:
    """Everything assigned at the top of the modules of a package: its source, and the string below it."""
    found: dict[str, tuple[str, str]] = {}
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        body = ast.parse(text).body
        for statement, following in zip(body, [*body[1:], None], strict=True):
            if not isinstance(statement, ast.Assign | ast.AnnAssign):
                continue
            words = following.value if isinstance(following, ast.Expr) else None
            said = words.value if isinstance(words, ast.Constant) and isinstance(words.value, str) else ""
            for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                if isinstance(target, ast.Name):
                    lines = text.splitlines()[statement.lineno - 1 : statement.end_lineno]
                    found.setdefault(target.id, ("\n".join(lines), said))
    return found

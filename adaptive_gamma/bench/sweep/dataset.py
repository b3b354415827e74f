"""The prompts of a sweep: the set that comes with it, or a file of one's own."""

from __future__ import annotations

import hashlib
import json
import random
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias

from adaptive_gamma.bench.source import Source
from adaptive_gamma.bench.sweep.code_prompts import CODE_PROMPTS
from adaptive_gamma.bench.sweep.prose_prompts import PROSE_PROMPTS
from adaptive_gamma.errors import SweepError, nearest

__all__ = ["BUILTIN", "Endpoint", "Prompt", "PromptSet", "builtin_prompts", "open_dataset", "read_prompt_file"]

BUILTIN = "builtin"
"""The name of the set that comes with the command."""
MOST_BYTES = 256 << 20
"""Of a file of prompts; all of them are held in memory."""
UNCLASSED = "unsure"
"""The class of a prompt whose line names none."""
Endpoint: TypeAlias = Literal["chat", "completions"]

_KEYS = ("prompt", "messages", "class")
_LONGEST_CLASS = 64
_DRAWS = 64


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt: a text, or the messages of a chat."""

    request_class: str
    text: str | None = None
    messages: tuple[Mapping[str, Any], ...] = ()

    def fields(self, endpoint: Endpoint, opening: str) -> dict[str, Any]:
        """What a request's body says of it. ``opening`` is put before the text or the first message of the user."""
        if endpoint == "completions":
            assert self.text is not None, "checked when the set was opened"
            return {"prompt": opening + self.text}
        if self.text is not None:
            return {"messages": [{"role": "user", "content": opening + self.text}]}
        return {"messages": _opened(self.messages, opening)}

    def length(self) -> int:
        """About how long it is, in characters."""
        return len(self.text) if self.text is not None else len(json.dumps(self.messages))

    def key(self) -> str:
        """The prompt as one string, for a digest."""
        return json.dumps([self.request_class, self.text, self.messages], sort_keys=True)


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Prompts by class."""

    name: str
    by_class: Mapping[str, tuple[Prompt, ...]]

    @property
    def digest(self) -> str:
        """Tells whether two sets are the same."""
        keys = [prompt.key() for name in sorted(self.by_class) for prompt in self.by_class[name]]
        return hashlib.sha256("\n".join(keys).encode()).hexdigest()[:16]

    def only(self, classes: Sequence[str]) -> PromptSet:
        """The set with these classes alone; all of them where ``classes`` is empty. Raises SweepError."""
        for name in classes:
            if name not in self.by_class:
                known = ", ".join(self.by_class)
                raise SweepError(self.name, "class", f"no prompt of class {name!r}; there are {known}",
                                 nearest(name, self.by_class))  # fmt: skip
        return PromptSet(self.name, {name: self.by_class[name] for name in classes or self.by_class})

    def draw(self, request_class: str, count: int, salt: str) -> list[Prompt]:
        """``count`` prompts of a class in an order that ``salt`` alone decides; all are used before one is again.

        What remains after whole rounds is drawn by length, one from each of so many groups of neighbours, and of many
        such draws the one is taken whose mean length is nearest that of the whole set: so the runs of a cell have
        prompts of one length, though not the same ones.
        """
        prompts = self.by_class[request_class]
        rng = random.Random(f"{salt}/{request_class}")  # nosec B311  # prompts that come out alike again
        rounds, rest = divmod(count, len(prompts))
        drawn = [prompt for _ in range(rounds) for prompt in rng.sample(prompts, len(prompts))]
        return drawn + (_typical(prompts, rest, rng) if rest else [])


def _typical(prompts: Sequence[Prompt], count: int, rng: random.Random) -> list[Prompt]:
    """So many different prompts whose mean length is about that of all."""
    by_length = sorted(((prompt.length(), place) for place, prompt in enumerate(prompts)))
    edges = [place * len(prompts) // count for place in range(count + 1)]
    wanted = count * sum(length for length, _ in by_length) / len(prompts)
    draws = ([by_length[rng.randrange(low, high)] for low, high in pairwise(edges)] for _ in range(_DRAWS))
    best = min(draws, key=lambda draw: abs(sum(length for length, _ in draw) - wanted))
    rng.shuffle(best)
    return [prompts[place] for _, place in best]


def builtin_prompts() -> PromptSet:
    """Our own requests, as people write them: code and prose."""
    return PromptSet(
        BUILTIN,
        {
            "code": tuple(Prompt("code", text) for text in CODE_PROMPTS),
            "prose": tuple(Prompt("prose", text) for text in PROSE_PROMPTS),
        },
    )


def open_dataset(name: str, endpoint: Endpoint) -> PromptSet:
    """The set called ``builtin``, or the prompts of the file ``name``.

    Raises:
        SweepError: a line that is no prompt, or a set that cannot go to ``endpoint``.
    """
    prompts = builtin_prompts() if name == BUILTIN else read_prompt_file(Path(name))
    if endpoint == "completions":
        for prompt in (prompt for group in prompts.by_class.values() for prompt in group):
            if prompt.text is None:
                raise SweepError(name, "messages", "messages go to --endpoint chat only; completions take a prompt")
    return prompts


def read_prompt_file(path: Path) -> PromptSet:
    """Read JSON lines ``{"prompt": TEXT}`` or ``{"messages": [...]}``, each with a ``"class"`` if it likes.

    Raises:
        SweepError: names the line and the field.
    """
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            # Before it is opened: a pipe that nobody writes to would be waited for.
            raise SweepError(str(path), "", "is no regular file; prompts are read from a file of JSON lines")
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        if len(raw) > MOST_BYTES:
            raise SweepError(
                str(path), "", f"is larger than {MOST_BYTES >> 20} MiB ({about.st_size} bytes); give fewer prompts"
            )
    except OSError as error:
        near = f"; the set that comes with the command is called {BUILTIN!r}" if not path.exists() else ""
        raise SweepError(str(path), "", f"cannot be read: {error.strerror}{near}") from error
    by_class: dict[str, list[Prompt]] = {}
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if line.strip():
            prompt = _prompt(line, Source(str(path), number))
            by_class.setdefault(prompt.request_class, []).append(prompt)
    if not by_class:
        raise SweepError(str(path), "", "holds no prompt")
    return PromptSet(path.name, {name: tuple(group) for name, group in by_class.items()})


def _prompt(line: bytes, source: Source) -> Prompt:
    where = str(source)
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SweepError(where, "", f"is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise SweepError(where, "", f'expected an object such as {{"prompt": "..."}}, got {line[:40]!r}')
    for key in values:
        if key not in _KEYS:
            raise SweepError(where, key, f"is not one of {', '.join(_KEYS)}", nearest(key, _KEYS))
    request_class = values.get("class", UNCLASSED)
    if not isinstance(request_class, str) or not request_class.strip() or len(request_class) > _LONGEST_CLASS:
        raise SweepError(where, "class", f"expected a name of at most {_LONGEST_CLASS} characters")
    if ("prompt" in values) == ("messages" in values):
        raise SweepError(where, "prompt", "expected either a prompt or messages")
    if "prompt" in values:
        text = values["prompt"]
        if not isinstance(text, str) or not text.strip():
            raise SweepError(where, "prompt", "expected a text that is not empty (token ids are not taken)")
        return Prompt(request_class, text=text)
    return Prompt(request_class, messages=_messages(values["messages"], where))


def _messages(value: object, where: str) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(value, list) or not value:
        raise SweepError(where, "messages", "expected a list of messages that is not empty")
    for index, message in enumerate(value):
        key = f"messages[{index}]"
        if not isinstance(message, dict):
            raise SweepError(where, key, "expected an object with role and content")
        if not isinstance(message.get("role"), str) or not message["role"]:
            raise SweepError(where, f"{key}.role", "expected a text")
        if not isinstance(message.get("content"), str | list):
            raise SweepError(where, f"{key}.content", "expected a text or a list of parts")
    if not any(message["role"] == "user" for message in value):
        raise SweepError(where, "messages", "no message is the user's")
    return tuple(value)


def _opened(messages: Sequence[Mapping[str, Any]], opening: str) -> list[dict[str, Any]]:
    """The messages with ``opening`` before what the user says first."""
    opened = [dict(message) for message in messages]
    if opening:
        first = next(message for message in opened if message["role"] == "user")
        content = first["content"]
        first["content"] = (
            opening + content if isinstance(content, str) else [{"type": "text", "text": opening}, *content]
        )
    return opened

"""The class of a request: what it says of itself first, then a bounded look at its prompt.

Order of evidence: the class header (where the configuration trusts it), a rule on path or model, then a score over the
first and last 4 kB of the prompt. The score is a prior, no more: word rules reach F1 .97 on benchmark prompts and about
.6 on real ones (arena-hard v2), so its third answer, ``unsure``, is used freely.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic_core import SchemaValidator, core_schema

from adaptive_gamma.policy import CLASS_ALIASES
from adaptive_gamma.routing.score_rules import (
    CHAT_FROM,
    CODE_LINE_ENDS,
    DENSE,
    DENSER,
    FENCE_SCORE,
    LANGUAGE_SCORE,
    LINES,
    MATH_SCORE,
    MOST_CHAT_WORDS,
    MOST_CODE_LINES,
    MOST_FROM_LANGUAGES,
    MOST_FROM_MATH,
    MOST_FROM_NOUNS,
    NOUN_SCORE,
    PLAIN,
    PLAIN_SCORE,
    STRUCTURED_FROM,
    SYMBOLS,
    VERB_SCORE,
    WINDOW,
    WORD_SIGNS,
)
from adaptive_gamma.routing.vocabulary import (
    CHAT_WORDS,
    CODE_NOUNS,
    CODE_VERBS,
    LANGUAGES,
    LINE_STARTS,
    LINE_WORDS_THAT_ARE_PROSE,
    MATH_WORDS,
)

__all__ = ["CLASSES", "ClassRule", "PromptClass", "RequestClassifier", "canonical_class", "classify_prompt"]

CLASSES = ("structured", "chat", "unsure")
_WORD_BYTES = bytes(c for c in range(256) if c >= 0x80 or chr(c).isalnum() or chr(c) in WORD_SIGNS)
_TO_WORDS = bytes(c if c in _WORD_BYTES else 0x20 for c in range(256)).lower()
_BACKTICK, _RETURN = b"`\r"
"""As numbers: whether bytes hold one is a tenth of the work of whether they hold other bytes."""
_NOT_SYMBOLS = bytes(c for c in range(256) if chr(c) not in SYMBOLS)
_ALL_WORDS = LANGUAGES | CODE_NOUNS | CODE_VERBS | MATH_WORDS | CHAT_WORDS


def _holds(*patterns: str) -> Callable[[str], bool]:
    """A test whether a text holds one of the patterns.

    The regular expressions that come with pydantic run a text through one automaton, however many words there are: a
    tenth of the time that it takes to split the text.
    """
    schema = core_schema.str_schema(pattern="|".join(patterns), strict=True)
    return SchemaValidator(schema).isinstance_python


def _one_of(texts: Iterable[bytes]) -> str:
    """A pattern of these, in any case."""
    return f"(?i-u:{'|'.join(re.escape(text.decode('ascii')) for text in sorted(texts))})"


def _word(words: Iterable[bytes]) -> str:
    """A pattern of these as words of their own."""
    gap = "".join(f"\\x{c:02x}" for c in range(0x80) if c not in _WORD_BYTES)
    return rf"(?:\A|[{gap}]){_one_of(words)}(?:[{gap}]|\z)"


_CODE_OR_MATHS = _word(LANGUAGES | CODE_NOUNS | MATH_WORDS)
_mentions_code_or_maths = _holds(_CODE_OR_MATHS)
_mentions_chat = _holds(_word(CHAT_WORDS))
_hints_at_structure = _holds(_CODE_OR_MATHS, "```", rf"(?:\A|[\n\r])[\t-\r ]*{_one_of(LINE_STARTS)}")
"""Whether there is any evidence but that of symbols. Most prose has none, and this finds out in one go."""


def _starts_by_two_letters() -> dict[bytes, tuple[bytes, ...]]:
    """The line beginnings by their first two bytes, in any case."""
    found: dict[bytes, tuple[bytes, ...]] = {}
    for start in LINE_STARTS:
        pairs = {start + bytes((c,)) for c in range(256)} | {start} if len(start) == 1 else {start[:2]}
        for pair in pairs:
            for cased in {pair, pair.upper(), pair[:1].upper() + pair[1:], pair[:1] + pair[1:].upper()}:
                found[cased] = tuple({*found.get(cased, ()), start})
    return found


_STARTS_BY_TWO_LETTERS = _starts_by_two_letters()


class PromptClass(NamedTuple):
    """What the prompt looks like: ``structured`` (code, maths), ``chat`` or ``unsure``.

    The scores are the evidence counted when the class was beyond doubt; counting stops there.
    """

    name: str
    structured_score: float
    chat_score: float


def canonical_class(name: str) -> str:
    """The class a name stands for: ``code`` and ``math`` mean structured, ``prose`` means chat; others stay."""
    return CLASS_ALIASES.get(name, name)


def classify_prompt(text: str) -> PromptClass:
    """Score a prompt by its first and last 4 kB.

    Time does not grow with the prompt. The cheap evidence is counted first and words only where they can still change
    the class.
    """
    return PromptClass(*_scored(text))


def _scored(text: str) -> tuple[str, float, float]:
    if len(text) > 2 * WINDOW:
        text = text[:WINDOW] + "\n" + text[-WINDOW:]
    try:
        raw = text.encode("utf-8")
    except UnicodeEncodeError:
        raw = text.encode("utf-8", "replace")
        text = raw.decode("utf-8")
    if not raw or raw.isspace():
        return "unsure", 0.0, 0.0

    hinted, code_lines, structured = _hints_at_structure(text), 0, 0.0
    if hinted:
        fenced = _BACKTICK in raw and b"```" in raw
        code_lines = _code_lines(raw, 1 if fenced else MOST_CODE_LINES)
        structured = code_lines + (FENCE_SCORE if fenced else 0.0)
        if structured > MOST_CHAT_WORDS:
            return "structured", structured, 0.0
    density = len(raw.translate(None, _NOT_SYMBOLS)) / len(raw)
    if density > DENSE:
        structured += 1.0 if density < DENSER else 2.0
    chat = PLAIN_SCORE if not code_lines and density < PLAIN else 0.0

    if structured > MOST_CHAT_WORDS + chat:
        return "structured", structured, chat
    if not structured and not (hinted and _mentions_code_or_maths(text)):
        return ("chat", 0.0, chat + 1.0) if _mentions_chat(text) else ("unsure", 0.0, chat)

    words = _ALL_WORDS.intersection(raw.translate(_TO_WORDS).split())
    structured += min(MOST_FROM_LANGUAGES, LANGUAGE_SCORE * len(words & LANGUAGES))
    if nouns := len(words & CODE_NOUNS):
        structured += min(MOST_FROM_NOUNS, NOUN_SCORE * nouns)
        if not words.isdisjoint(CODE_VERBS):
            structured += VERB_SCORE
    structured += min(MOST_FROM_MATH, MATH_SCORE * len(words & MATH_WORDS))
    chat += min(MOST_CHAT_WORDS, len(words & CHAT_WORDS))

    if structured >= STRUCTURED_FROM and structured > chat:
        name = "structured"
    elif chat >= CHAT_FROM and chat > structured:
        name = "chat"
    else:
        name = "unsure"
    return name, structured, chat


def _code_lines(raw: bytes, enough: int) -> int:
    """Lines that begin like code, counted up to ``enough``."""
    found = 0
    for line in _lines_of_both_ends(raw):
        start = line.lstrip()
        begins_like = _STARTS_BY_TWO_LETTERS.get(start[:2])
        if begins_like is None:
            continue
        start = start.lower()
        if start.startswith(begins_like) and (
            not start.startswith(LINE_WORDS_THAT_ARE_PROSE) or start[-1:] in CODE_LINE_ENDS or b" import " in start
        ):
            found += 1
            if found == enough:
                break
    return found


def _lines_of_both_ends(raw: bytes) -> list[bytes]:
    half = LINES // 2
    if _RETURN in raw:
        lines = raw.splitlines()
        return lines if len(lines) <= LINES else lines[:half] + lines[-half:]
    lines = raw.split(b"\n", LINES)
    if not lines[-1]:
        lines.pop()
    return lines if len(lines) <= LINES else lines[:half] + raw.removesuffix(b"\n").rsplit(b"\n", half)[1:]


@dataclass(frozen=True, slots=True)
class ClassRule:
    """Gives a class by path and model, without a look at the prompt; a condition that is None always holds."""

    request_class: str
    path: str | None = None
    model: str | None = None

    def matches(self, path: str, model: str | None) -> bool:
        return (self.path is None or self.path == path) and (self.model is None or self.model == model)


class RequestClassifier:
    """Header, then rules, then the prompt.

    ``known`` are the class names a header may use (the policy's and the three common ones); any other value is
    ignored, so that a client cannot make up classes and with them metric labels. ``default`` stands in for ``unsure``
    and for a request without text.
    """

    __slots__ = ("_default", "_known", "_rules")

    def __init__(self, rules: Sequence[ClassRule] = (), default: str = "unsure", known: Sequence[str] = ()) -> None:
        self._rules = tuple(rules)
        self._default = canonical_class(default)
        self._known = frozenset(known) | frozenset(CLASSES)

    def classify(
        self, *, path: str, model: str | None = None, header: str | None = None, text: Callable[[], str] | None = None
    ) -> str:
        """The class name; ``text`` is called only when header and rules say nothing."""
        if header is not None:
            named = canonical_class(header.strip().lower())
            if named in self._known:
                return named
        for rule in self._rules:
            if rule.matches(path, model):
                return canonical_class(rule.request_class)
        if text is not None:
            found, _, _ = _scored(text())
            if found != "unsure":
                return found
        return self._default

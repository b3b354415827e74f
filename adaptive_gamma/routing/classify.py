"""The class of a request: what it says of itself first, then a bounded look at its prompt.

Order of evidence: the class header (where the configuration trusts it), a rule on path or model, then a score over the
first and last 4 kB of the prompt. The score is a prior, no more: word rules reach F1 .97 on benchmark prompts and about
.6 on real ones (arena-hard v2), so its third answer, ``unsure``, is used freely.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from adaptive_gamma.policy import CLASS_ALIASES

__all__ = ["CLASSES", "ClassRule", "PromptClass", "RequestClassifier", "canonical_class", "classify_prompt"]

CLASSES = ("structured", "chat", "unsure")
_WINDOW = 4096
"""Characters looked at from each end of a prompt."""
_LINES = 48
"""Lines looked at, half from each end of that."""

_TO_SPACE = bytes(c if chr(c).isalnum() or chr(c) in "+#_" or c >= 0x80 else 0x20 for c in range(256))
_NOT_SYMBOLS = bytes(c for c in range(256) if chr(c) not in "{}()[];=<>_\\|&*^%$")

_LANGUAGES = frozenset(
    b"""python javascript typescript java c++ c# rust golang kotlin swift scala haskell php ruby perl bash powershell
    sql mysql postgresql postgres sqlite html css react django flask fastapi pandas numpy pytorch tensorflow cuda
    terraform kubernetes dockerfile yaml json xml regex verilog matlab julia lua assembly latex graphql webpack npm
    pytest junit makefile cmake solidity cobol fortran""".split()
)
_CODE_NOUNS = frozenset(
    b"""function functions method class script snippet code codebase algorithm api endpoint parser compiler query
    unittest test tests bug traceback exception stacktrace refactor debug implement deserialize async mutex pointer
    struct enum interface recursion leetcode array hashmap linked endpoint schema migration decorator lambda loop
    variable variables integer string boolean dataframe repository commit merge rebase docstring runtime
    syntaxerror typeerror valueerror nullpointerexception segfault regex cli backend frontend""".split()
)
_CODE_VERBS = frozenset(
    b"implement refactor debug optimize compile parse fix rewrite port vectorize write create generate convert add"
    b" build code program".split()
)
_MATH_WORDS = frozenset(
    b"""prove theorem lemma integral derivative equation equations polynomial matrix eigenvalue eigenvalues probability
    triangle modulo divisible integers prime factorial hypotenuse quadratic calculus algebra geometry combinatorics
    solve simplify evaluate differentiate integrate arithmetic logarithm convex bijection""".split()
)
_CHAT_WORDS = frozenset(
    b"""story poem essay letter email e-mail speech song lyrics novel character characters recipe travel trip itinerary
    advice feel feeling feelings friend friends love birthday wedding summarize summarise summary paragraph article blog
    review opinion history culture persuasive tone polite invitation slogan caption tagline brainstorm rephrase
    paraphrase translate roleplay imagine dialogue biography holiday weekend restaurant movie book meaning explain
    describe discuss tell recommend cover headline toast motivation interview garden cooking dinner health parents
    children kids dog cat museum press announcement apology""".split()
)
_LINE_STARTS = (
    b"def ", b"class ", b"import ", b"from ", b"#include", b"public ", b"private ", b"static ", b"fn ", b"func ",
    b"let ", b"const ", b"var ", b"function ", b"return ", b"select ", b"create table", b"insert into", b"package ",
    b"using ", b"namespace ", b"@", b"<?php", b"<!doctype", b"<html", b"<div", b"for (", b"if (", b"while (", b"try:",
    b"except", b"async ", b"await ", b"struct ", b"impl ", b"#!/", b"$ ", b">>> ", b"+++", b"--- a/", b"@@ ", b"//",
    b"/*", b"} else", b"elif ", b"module ", b"interface ", b"type ", b"enum ", b"apiversion:", b"traceback (most",
    b"file \"", b"error:", b"\\begin{", b"\\[", b"$$",
)  # fmt: skip
_LINE_STARTS_BY_LETTER = {
    letter: tuple(start for start in _LINE_STARTS if start[:1] == letter) for letter in {s[:1] for s in _LINE_STARTS}
}
_LINE_WORDS_THAT_ARE_PROSE = (b"from ", b"let ", b"using ", b"return ", b"type ", b"class ", b"import ", b"for (")


@dataclass(frozen=True, slots=True)
class PromptClass:
    """What the prompt looks like: ``structured`` (code, maths), ``chat`` or ``unsure``, with both scores."""

    name: str
    structured_score: float
    chat_score: float


def canonical_class(name: str) -> str:
    """The class a name stands for: ``code`` and ``math`` mean structured, ``prose`` means chat; others stay."""
    return CLASS_ALIASES.get(name, name)


def classify_prompt(text: str) -> PromptClass:
    """Score a prompt by its first and last 4 kB.

    Time does not grow with the prompt: at most 8 kB are looked at, by set and prefix look-ups.
    """
    if len(text) > 2 * _WINDOW:
        text = text[:_WINDOW] + "\n" + text[-_WINDOW:]
    raw = text.encode("utf-8", "replace").lower()
    if not raw.strip():
        return PromptClass("unsure", 0.0, 0.0)

    structured = 0.0
    if b"```" in raw:
        structured += 3.0
    code_lines = 0
    lines = raw.splitlines()
    for line in lines if len(lines) <= _LINES else lines[: _LINES // 2] + lines[-_LINES // 2 :]:
        start = line.lstrip()
        starts = _LINE_STARTS_BY_LETTER.get(start[:1])
        if (
            starts is not None
            and start.startswith(starts)
            and (not start.startswith(_LINE_WORDS_THAT_ARE_PROSE) or start[-1:] in b":;{})\"'" or b" import " in start)
        ):
            code_lines += 1
    structured += min(3.0, 1.0 * code_lines)
    density = len(raw.translate(None, _NOT_SYMBOLS)) / len(raw)
    if density > 0.03:
        structured += 1.0 if density < 0.06 else 2.0

    words = set(raw.translate(_TO_SPACE).split())
    languages = len(words & _LANGUAGES)
    nouns = len(words & _CODE_NOUNS)
    maths = len(words & _MATH_WORDS)
    structured += min(2.0, 1.5 * languages)
    if nouns:
        structured += min(2.0, 0.5 * nouns)
        if words & _CODE_VERBS:
            structured += 0.5
    structured += min(2.5, 1.0 * maths)

    chat = min(3.0, 1.0 * len(words & _CHAT_WORDS))
    if not code_lines and density < 0.01:
        chat += 0.5

    if structured >= 2.0 and structured > chat:
        name = "structured"
    elif chat >= 1.0 and chat > structured:
        name = "chat"
    else:
        name = "unsure"
    return PromptClass(name, structured, chat)


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
            found = classify_prompt(text()).name
            if found != "unsure":
                return found
        return self._default

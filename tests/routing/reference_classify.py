"""The score of a prompt, written plainly: every line looked at, every word counted."""

from __future__ import annotations

from adaptive_gamma.routing.vocabulary import (
    CHAT_WORDS,
    CODE_NOUNS,
    CODE_VERBS,
    LANGUAGES,
    LINE_STARTS,
    LINE_WORDS_THAT_ARE_PROSE,
    MATH_WORDS,
)

_WINDOW = 4096
_LINES = 48
_TO_SPACE = bytes(c if chr(c).isalnum() or chr(c) in "+#_" or c >= 0x80 else 0x20 for c in range(256))
_NOT_SYMBOLS = bytes(c for c in range(256) if chr(c) not in "{}()[];=<>_\\|&*^%$")


def reference_class(text: str) -> tuple[str, float, float]:
    """(class, structured score, chat score), nothing left out."""
    if len(text) > 2 * _WINDOW:
        text = text[:_WINDOW] + "\n" + text[-_WINDOW:]
    raw = text.encode("utf-8", "replace").lower()
    if not raw.strip():
        return "unsure", 0.0, 0.0
    structured = 0.0
    if b"```" in raw:
        structured += 3.0
    code_lines = 0
    lines = raw.splitlines()
    for line in lines if len(lines) <= _LINES else lines[: _LINES // 2] + lines[-_LINES // 2 :]:
        start = line.lstrip()
        if start.startswith(LINE_STARTS) and (
            not start.startswith(LINE_WORDS_THAT_ARE_PROSE) or start[-1:] in b":;{})\"'" or b" import " in start
        ):
            code_lines += 1
    structured += min(3.0, 1.0 * code_lines)
    density = len(raw.translate(None, _NOT_SYMBOLS)) / len(raw)
    if density > 0.03:
        structured += 1.0 if density < 0.06 else 2.0
    words = set(raw.translate(_TO_SPACE).split())
    structured += min(2.0, 1.5 * len(words & LANGUAGES))
    if nouns := len(words & CODE_NOUNS):
        structured += min(2.0, 0.5 * nouns)
        if words & CODE_VERBS:
            structured += 0.5
    structured += min(2.5, 1.0 * len(words & MATH_WORDS))
    chat = min(3.0, 1.0 * len(words & CHAT_WORDS))
    if not code_lines and density < 0.01:
        chat += 0.5
    if structured >= 2.0 and structured > chat:
        return "structured", structured, chat
    if chat >= 1.0 and chat > structured:
        return "chat", structured, chat
    return "unsure", structured, chat

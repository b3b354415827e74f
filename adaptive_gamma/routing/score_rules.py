"""The numbers of the prompt score, beside its words in ``vocabulary``: one table for all that apply it."""

from __future__ import annotations

__all__ = [
    "CHAT_FROM",
    "CODE_LINE_ENDS",
    "DENSE",
    "DENSER",
    "FENCE_SCORE",
    "LANGUAGE_SCORE",
    "LINES",
    "MATH_SCORE",
    "MOST_CHAT_WORDS",
    "MOST_CODE_LINES",
    "MOST_FROM_LANGUAGES",
    "MOST_FROM_MATH",
    "MOST_FROM_NOUNS",
    "NOUN_SCORE",
    "PLAIN",
    "PLAIN_SCORE",
    "STRUCTURED_FROM",
    "SYMBOLS",
    "VERB_SCORE",
    "WINDOW",
    "WORD_SIGNS",
]

WINDOW = 4096
"""Characters looked at from each end of a prompt."""
LINES = 48
"""Lines looked at, half from each end of that."""
WORD_SIGNS = "+#_"
"""What belongs to a word beside letters, digits and all that is not ASCII."""

FENCE_SCORE = 3.0
"""A fence of three backticks. Scores of this block make a prompt structured."""
MOST_CODE_LINES = 3
"""Lines of code that count, one each; more say nothing more."""
CODE_LINE_ENDS = b":;{})\"'"
"""How a line ends that begins with a word which prose has too, and is code all the same."""
SYMBOLS = "{}()[];=<>_\\|&*^%$"
DENSE, DENSER = 0.03, 0.06
"""Share of symbols from which on they score one, and two."""
LANGUAGE_SCORE, MOST_FROM_LANGUAGES = 1.5, 2.0
NOUN_SCORE, MOST_FROM_NOUNS = 0.5, 2.0
VERB_SCORE = 0.5
"""Once, where a noun of programming comes with a verb of it."""
MATH_SCORE, MOST_FROM_MATH = 1.0, 2.5

MOST_CHAT_WORDS = 3
"""Words of chat that count, one each."""
PLAIN, PLAIN_SCORE = 0.01, 0.5
"""Share of symbols below which a text without lines of code scores for chat, and how much."""

STRUCTURED_FROM, CHAT_FROM = 2.0, 1.0
"""A class needs so much, and more than the other has."""

"""Which members of a JSON body routing looks at, whoever parses it."""

from __future__ import annotations

__all__ = ["ITEMS_AT_EACH_END", "PROMPT_MEMBERS", "SAMPLING_MEMBERS"]

PROMPT_MEMBERS = ("system", "instructions", "messages", "prompt", "input")
"""Where a prompt's text stands, in the order in which it is read."""
ITEMS_AT_EACH_END = 64
"""Of long lists of messages or parts only so many are looked at, from each end."""
SAMPLING_MEMBERS = frozenset({"min_p", "logit_bias"})
"""Sampling parameters that some engine refuses while it speculates."""

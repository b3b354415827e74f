"""Which replica has which prompt in its cache, as far as can be known from where requests went.

Two kinds of evidence, in one table. A session remembers the replica of its last request and how long its prompt was. A
prompt's leading text is cut into blocks and hashed as a chain, so that a block stands for all the text up to its end;
each block remembers the replicas that took a prompt with it. Both are beliefs: an engine drops what it has cached when
it needs the room, and does not say so.

Nothing a client sent is kept, only 64-bit hashes under the process's own random key. Memory is bounded whatever is
asked: at most 500 bytes per entry allowed, names of replicas not counted (measured with tracemalloc on CPython 3.11:
230 to 350 where each is held by one replica, 300 to 450 where each is held by two; 8192 entries: 2.4 and 3.1 MB).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

__all__ = ["BLOCK_CHARACTERS", "LARGEST_PREFIX", "AffinityIndex", "Locality"]

BLOCK_CHARACTERS = 1024
"""The shortest text that is remembered; about 256 tokens."""
_BLOCK_ENDS = tuple(n * BLOCK_CHARACTERS for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64))
"""Blocks grow with the text, so that a dozen reach far and at most a third of what two prompts share goes unseen."""
_BLOCK_TOKENS = tuple(end // 4 for end in _BLOCK_ENDS)
LARGEST_PREFIX = _BLOCK_ENDS[-1]
"""Characters beyond which text is not looked at."""
_MOST_HOLDERS = 16
"""Replicas a block remembers. Were it fewer than share a common beginning, the rest would be shunned without cause."""
_HOLDERS_PER_ENTRY = 2
"""Holders allowed in all, per entry allowed; few beginnings are common to many replicas."""
_EXPIRED_PER_RECORD = 2 * len(_BLOCK_ENDS)
"""Old entries a record clears away at most: more than it may add, in a bounded time."""

_Holder: TypeAlias = tuple[str, int, float]
"""Replica, prompt tokens it has, seconds at which it took them."""


class Locality(NamedTuple):
    """What is known of where a prompt is cached; handed back once a replica has taken the request."""

    cached: Mapping[str, int]
    """Prompt tokens by replica; empty where nothing is known."""
    session: int | None = None
    """The session's key."""
    blocks: tuple[int, ...] = ()
    """The keys of the prompt's blocks, first to last."""


_NOWHERE = Locality({})


class AffinityIndex:
    """Remembers where prompts went, for as long as an engine may still have them.

    Args:
        entries: sessions and blocks held at most; the ones longest unused go first.
        max_age_s: seconds after which an entry is no longer believed.

    Times are seconds on one clock that never goes back.
    """

    __slots__ = ("_entries", "_held", "_holders", "_max_age_s")

    def __init__(self, entries: int, max_age_s: float) -> None:
        if entries < 1:
            raise ValueError(f"entries must be at least 1, not {entries}")
        self._entries = entries
        self._max_age_s = max_age_s
        self._held: OrderedDict[int, tuple[_Holder, ...]] = OrderedDict()
        self._holders = 0

    def __len__(self) -> int:
        return len(self._held)

    def look_up(self, session: str | None, prefix: str, now: float) -> Locality:
        """Where the prompt of a session, or one that begins with ``prefix``, is believed to be cached.

        A prefix shorter than a block says nothing.
        """
        blocks: tuple[int, ...] = ()
        if len(prefix) >= BLOCK_CHARACTERS:
            blocks = tuple(_block_keys(prefix))
        elif session is None:
            return _NOWHERE
        held, oldest = self._held, now - self._max_age_s
        cached: dict[str, int] = {}
        for key in blocks:
            holders = held.get(key)
            if holders is None:
                break
            for replica, tokens, since in holders:
                if since >= oldest:
                    cached[replica] = tokens
        if session is None:
            return Locality(cached, None, blocks)
        key = hash(("session", session))
        for replica, tokens, since in held.get(key, ()):
            if since >= oldest and tokens > cached.get(replica, 0):
                cached[replica] = tokens
        return Locality(cached, key, blocks)

    def record(self, locality: Locality, replica: str, prompt_tokens: int | None, now: float) -> None:
        """Remember that a replica has taken the request that was looked up."""
        if locality is _NOWHERE:
            return
        blocks = locality.blocks
        for position in range(len(blocks) - 1, -1, -1):  # so that a prompt loses its last block first
            key = blocks[position]
            others = [holder for holder in self._held.get(key, ()) if holder[0] != replica]
            self._put(key, ((replica, _BLOCK_TOKENS[position], now), *others[: _MOST_HOLDERS - 1]))
        if locality.session is not None:
            self._put(locality.session, ((replica, prompt_tokens or 0, now),))
        self._clear_away(now)

    def forget(self, replica: str) -> None:
        """What the replica had cached is gone."""
        for key, holders in list(self._held.items()):
            for holder in holders:
                if holder[0] == replica:
                    self._take_off(key, holder)

    def _put(self, key: int, holders: tuple[_Holder, ...]) -> None:
        self._holders += len(holders) - len(self._held.get(key, ()))
        self._held[key] = holders
        self._held.move_to_end(key)

    def _take_off(self, key: int, holder: _Holder) -> None:
        self._holders -= 1
        left = tuple([other for other in self._held[key] if other is not holder])
        if left:
            self._held[key] = left
        else:
            del self._held[key]

    def _drop(self, key: int) -> None:
        self._holders -= len(self._held.pop(key))

    def _clear_away(self, now: float) -> None:
        held, oldest = self._held, now - self._max_age_s
        expired = 0
        while held:
            key = next(iter(held))
            if len(held) <= self._entries and self._holders <= self._entries * _HOLDERS_PER_ENTRY:
                if expired == _EXPIRED_PER_RECORD or held[key][0][2] >= oldest:
                    break
                expired += 1
            self._drop(key)


def _block_keys(prefix: str) -> Iterator[int]:
    key = start = 0
    for end in _BLOCK_ENDS:
        if end > len(prefix):
            return
        key = hash((key, prefix[start:end]))
        yield key
        start = end

"""Server side: what vLLM counts and does not publish, on vLLM's own /metrics.

``adaptive_gamma_draft_tokens_per_position_total{engine, model_name, position}`` counts the drafts that had a token at a
position: with it acceptance by position is unbiased where drafts differ in length.
``adaptive_gamma_scheduled_gamma{engine, model_name}`` is the number of tokens each request was to draft in the last
step; there is none before the first.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from adaptive_gamma.vllm_plugin.files import FileError, read_object, state_file_of

__all__ = ["FAMILIES", "PositionCounters"]

_LOOK_EVERY_S = 0.25


class PluginFamily(NamedTuple):
    """A family of metrics, before vLLM's labels are known."""

    name: str
    """A counter's without ``_total``."""
    kind: str
    help: str
    labels: tuple[str, ...]
    """Beside vLLM's own."""


_DRAFTED = PluginFamily(
    "adaptive_gamma_draft_tokens_per_position", "counter", "Drafts that had a token at this position.", ("position",)
)
_GAMMA = PluginFamily(
    "adaptive_gamma_scheduled_gamma", "gauge", "Tokens each request was to draft in the last step.", ()
)
FAMILIES = (_DRAFTED, _GAMMA)
"""All that the plugin publishes."""


class PositionCounters:
    """One engine server's children of the two families.

    Args:
        schedule_file: beside it stands the state file, which tells the gamma of the last step.
        label_names: vLLM's, as are the values, by engine index.
        label_values: of each engine.
        max_gamma: number of positions.
    """

    def __init__(
        self,
        schedule_file: Path,
        label_names: Sequence[str],
        label_values: Mapping[int, Sequence[object]],
        max_gamma: int,
    ) -> None:
        drafted, gamma = _families(tuple(label_names))
        self._drafted = {
            engine: [drafted.labels(*values, str(position)) for position in range(max_gamma)]
            for engine, values in label_values.items()
        }
        # The schedule is refused with data parallelism, so there is one engine to tell of.
        self._gamma = functools.partial(gamma.labels, *next(iter(label_values.values())))
        self._state_file = state_file_of(schedule_file)
        threading.Thread(target=self._follow, name="adaptive-gamma metrics", daemon=True).start()

    def count(self, engine: int, drafted_per_position: Iterable[int]) -> None:
        """Add what one step drafted."""
        for counter, drafts in zip(self._drafted.get(engine, ()), drafted_per_position, strict=False):
            if drafts:
                counter.inc(drafts)

    def _follow(self) -> None:
        """Follow the gamma in the state file, for as long as the process lives."""
        never = threading.Event()
        while not never.wait(_LOOK_EVERY_S):
            try:
                gamma = read_object(self._state_file).get("last_gamma")
            except FileError:
                continue
            if isinstance(gamma, int):
                self._gamma().set(gamma)


@functools.cache
def _families(label_names: tuple[str, ...]) -> tuple[Any, Any]:
    """The counter and the gauge. They are made once: a second engine in a process has its own labels in them."""
    import prometheus_client

    drafted = prometheus_client.Counter(_DRAFTED.name, _DRAFTED.help, [*label_names, *_DRAFTED.labels])
    gamma = prometheus_client.Gauge(
        _GAMMA.name, _GAMMA.help, [*label_names, *_GAMMA.labels], multiprocess_mode="mostrecent"
    )
    return drafted, gamma

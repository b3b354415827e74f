"""What a sweep is to do, and the order in which it does it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from adaptive_gamma.bench.sweep.arm import ArmSpec
from adaptive_gamma.bench.sweep.asking import Asked
from adaptive_gamma.bench.sweep.dataset import Endpoint, PromptSet

__all__ = ["CLAIM_REPEATS", "RunKey", "SweepSettings"]

CLAIM_REPEATS = 15
"""Repeats of a cell below which its figures support no claim."""


@dataclass(frozen=True, slots=True)
class RunKey:
    """One repeat of one cell on one arm."""

    arm: int
    """Which arm, in the order given."""
    concurrency: int
    request_class: str
    repeat: int
    """From 1 on."""


@dataclass(frozen=True, slots=True)
class SweepSettings:
    """A sweep as it was asked for."""

    arms: tuple[ArmSpec, ...]
    concurrency: tuple[int, ...]
    prompts: PromptSet
    repeats: int = CLAIM_REPEATS
    output_tokens: int = 128
    waves: int = 2
    """How often each of the open requests is replaced in a run: a run has ``waves * concurrency`` requests..."""
    least_requests: int = 8
    """... and at least so many."""
    endpoint: Endpoint = "chat"
    temperature: float = 0.0
    seed: int = 0
    timeout_s: float = 120.0
    verbatim: bool = False
    """Send prompts as they are, so that an engine may answer from its prefix cache."""
    model_name: str | None = None
    """One name for the model behind all arms, where they list it under different ones."""

    def identity(self) -> dict[str, Any]:
        """What must be the same for a sweep to be continued. More repeats or other loads may be asked for."""
        return {
            "urls": [arm.url for arm in self.arms],
            "dataset": self.prompts.name,
            "dataset_digest": self.prompts.digest,
            "classes": sorted(self.prompts.by_class),
            "output_tokens": self.output_tokens,
            "waves": self.waves,
            "least_requests": self.least_requests,
            "endpoint": self.endpoint,
            "temperature": self.temperature,
            "seed": self.seed,
            "verbatim": self.verbatim,
            "model_name": self.model_name,
        }

    def schedule(self) -> Iterator[RunKey]:
        """All runs in their order: a repeat goes through all cells before the next begins, and within a cell the arms
        follow one another, another one first each time. What drifts over hours so meets all arms alike."""
        cells = [(load, name) for load in self.concurrency for name in self.prompts.by_class]
        count = len(self.arms)
        for repeat in range(1, self.repeats + 1):
            for place, (load, name) in enumerate(cells):
                for turn in range(count):
                    yield RunKey((turn + repeat + place) % count, load, name, repeat)

    def work(self, key: RunKey) -> list[Asked]:
        """The requests of a run: the same for every arm."""
        count = max(self.waves * key.concurrency, self.least_requests)
        return self._asked(key.request_class, count, f"{self.seed}/{key.concurrency}/{key.repeat}")

    def warm_up(self, concurrency: int) -> list[Asked]:
        """The requests that warm an arm for a load: one for each open request, of all classes in turn."""
        names = list(self.prompts.by_class)
        each = -(-concurrency // len(names))
        groups = [self._asked(name, each, f"{self.seed}/{concurrency}/warm-up") for name in names]
        return [asked for row in zip(*groups, strict=True) for asked in row][:concurrency]

    def probe(self) -> Asked:
        """The request that finds out what an arm can do."""
        return self._asked(next(iter(self.prompts.by_class)), 1, f"{self.seed}/probe")[0]

    def _asked(self, request_class: str, count: int, salt: str) -> list[Asked]:
        prompts = self.prompts.draw(request_class, count, salt)
        openings: Sequence[str] = [""] * count
        if not self.verbatim:
            openings = [_opening(f"{salt}/{request_class}/{index}") for index in range(count)]
        return [Asked(prompt, opening) for prompt, opening in zip(prompts, openings, strict=True)]


def _opening(salt: str) -> str:
    number = int.from_bytes(hashlib.sha256(salt.encode()).digest()[:6])
    return f"Request {number % 10**10:010d}.\n\n"

"""What the scraper reads, against what was dialled in and against what vLLM's own log says."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import accumulate
from operator import mul
from pathlib import Path

import httpx
import pytest

from adaptive_gamma.engines import DIALECTS
from adaptive_gamma.engines.reading import SpeculationCounters
from adaptive_gamma.fleet.window import AcceptanceWindow
from tests.vllm.server import MAX_BATCH, VllmServer

GAMMA = 4
CONDITIONAL = (0.9, 0.8, 0.75, 0.6)
UNCONDITIONAL = tuple(accumulate(CONDITIONAL, mul))
TOKEN = "a-token-for-these-tests"
_LINE = re.compile(
    r"SpecDecoding metrics: Mean acceptance length: ([\d.]+), .*?Accepted: (\d+) tokens, Drafted: (\d+) tokens, "
    r"Per-position acceptance rate: ([\d., ]+), Avg"
)


@pytest.fixture(scope="module")
def server(vllm: Path, pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    with VllmServer(
        vllm, pair[0], tmp_path_factory.mktemp("synthetic") / "log.txt",
        speculative={
            "model": str(pair[1]), "num_speculative_tokens": GAMMA,
            "num_speculative_tokens_per_batch_size": [[1, MAX_BATCH, GAMMA]],
            "rejection_sample_method": "synthetic", "synthetic_acceptance_rates": list(UNCONDITIONAL),
        },
        variables={
            "VLLM_PLUGINS": "adaptive_gamma,adaptive_gamma_test_kernels", "ADAPTIVE_GAMMA_PLUGIN_TOKEN": TOKEN,
        },
    ) as running:  # fmt: skip
        yield running


def set_schedule(server: VllmServer, schedule: list[list[int]]) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = f"{server.url}/plugins/adaptive-gamma/schedule"
    httpx.put(url, json={"schedule": schedule}, headers=headers).raise_for_status()


def counters(server: VllmServer) -> SpeculationCounters:
    reading = DIALECTS["vllm"].read({"/metrics": server.metrics()})
    assert (reading.speculative, reading.gamma) == (True, GAMMA)
    assert reading.speculation is not None
    return reading.speculation


def load(server: VllmServer, requests: int, tokens: int, at_once: int) -> None:
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda i: server.complete(f"{i}: x = [", tokens), range(requests)))


def logged(server: VllmServer, start: int) -> tuple[int, int, list[list[float]]]:
    """Accepted and drafted tokens of the log from a place on, and its rates by position with the drafts behind them."""
    accepted = drafted = 0
    rows = []
    for mean, taken, made, rates in _LINE.findall(server.text[start:]):
        accepted, drafted = accepted + int(taken), drafted + int(made)
        # Mean length, 1 + accepted / drafts, is printed with two decimals: the drafts are known to half a per cent.
        drafts = int(taken) / (float(mean) - 1.0)
        rows.append([drafts, *map(float, rates.split(", "))])
    return accepted, drafted, rows


def settle(server: VllmServer, start: int, accepted: float) -> tuple[int, int, list[list[float]]]:
    """The log's sums once its once-a-second line has told all."""
    deadline = time.monotonic() + 20.0
    while (found := logged(server, start))[0] < accepted:
        assert time.monotonic() < deadline, (found, accepted)
        time.sleep(0.2)
    return found


def test_acceptance_is_the_one_dialled_in_and_the_one_in_the_log(server: VllmServer) -> None:
    set_schedule(server, [[1, MAX_BATCH, GAMMA]])
    start, before = len(server.text), counters(server)
    window = AcceptanceWindow()
    window.update(before, 0.0)
    load(server, 32, 160, at_once=4)
    after = counters(server)
    window.update(after, 10.0)
    assert before.drafts is not None
    assert after.drafts is not None
    drafts = after.drafts - before.drafts
    rates = window.conditional
    assert rates is not None
    print(f"\n{drafts:.0f} drafts; conditional, dialled in {CONDITIONAL}, read {[round(each, 3) for each in rates]}")
    for read, wanted, reached in zip(rates, CONDITIONAL, (1.0, *UNCONDITIONAL), strict=False):
        chance = 4.0 * (wanted * (1 - wanted) / (drafts * reached)) ** 0.5
        assert abs(read - wanted) < max(0.02, chance)

    deltas = [new - old for new, old in zip(after.accepted_per_position, before.accepted_per_position, strict=True)]
    accepted, drafted, rows = settle(server, start, after.accepted_tokens - before.accepted_tokens)
    assert (accepted, drafted) == (
        after.accepted_tokens - before.accepted_tokens,
        after.draft_tokens - before.draft_tokens,
    )
    exact = [round(row[0]) for row in rows]
    for position, delta in enumerate(deltas):
        from_log = sum(drafts_of_line * row[1 + position] for drafts_of_line, row in zip(exact, rows, strict=True))
        rounding = sum(0.0005 * row[0] + 0.005 * row[0] for row in rows)
        print(f"position {position}: scraped {delta:.0f}, log {from_log:.1f}, its rounding {rounding:.1f}")
        assert abs(from_log - delta) <= rounding


def without_plugin(counters: SpeculationCounters) -> SpeculationCounters:
    """What a vLLM by itself tells."""
    return replace(counters, drafted_per_position=())


def test_drafts_of_several_lengths(server: VllmServer) -> None:
    """vLLM's own rate by position is over all drafts, so a short draft counts as one that was refused."""
    start, before = len(server.text), counters(server)
    window, by_itself = AcceptanceWindow(), AcceptanceWindow()
    window.update(before, 0.0)
    by_itself.update(without_plugin(before), 0.0)
    for gamma in (1, GAMMA, 2):
        set_schedule(server, [[1, MAX_BATCH, gamma]])
        load(server, 12, 120, at_once=4)
    set_schedule(server, [[1, MAX_BATCH, GAMMA]])
    after = counters(server)
    window.update(after, 10.0)
    by_itself.update(without_plugin(after), 10.0)
    assert before.drafts is not None
    assert after.drafts is not None
    drafts = after.drafts - before.drafts
    published = [
        round((new - old) / drafts, 3)
        for new, old in zip(after.accepted_per_position, before.accepted_per_position, strict=True)
    ]
    accepted, drafted, _ = settle(server, start, after.accepted_tokens - before.accepted_tokens)
    assert accepted == after.accepted_tokens - before.accepted_tokens
    assert drafted == after.draft_tokens - before.draft_tokens
    print(f"\nunconditional, dialled in {[round(each, 3) for each in UNCONDITIONAL]}, as published {published}")
    assert published[-1] < 0.6 * UNCONDITIONAL[-1]
    assert by_itself.variable_draft_length is True
    assert by_itself.conditional is None, "what is biased is not believed"

    rates = window.position_rates()
    assert rates is not None
    print(f"conditional, dialled in {CONDITIONAL}, with the plugin's counts {[round(rate, 3) for rate, _ in rates]}")
    assert len(rates) == GAMMA
    for (rate, trials), wanted in zip(rates, CONDITIONAL, strict=True):
        chance = 4.0 * (wanted * (1 - wanted) / trials) ** 0.5
        assert abs(rate - wanted) < max(0.02, chance)

"""An n-gram drafter, started without a schedule: nothing for the plugin to set, and it says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from adaptive_gamma.engines import DIALECTS
from adaptive_gamma.engines.reading import EngineReading
from adaptive_gamma.fleet.window import AcceptanceWindow
from tests.vllm.models import make_repeater
from tests.vllm.server import VllmServer

TOKEN = "a-token-for-these-tests"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
GAMMA = 4


@pytest.fixture(scope="module")
def server(vllm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    directory = tmp_path_factory.mktemp("ngram")
    with VllmServer(
        vllm, make_repeater(directory), directory / "log.txt",
        speculative={
            "method": "ngram", "num_speculative_tokens": GAMMA, "prompt_lookup_max": 3, "prompt_lookup_min": 1,
        },
        variables={"VLLM_PLUGINS": "adaptive_gamma", "ADAPTIVE_GAMMA_PLUGIN_TOKEN": TOKEN},
    ) as running:  # fmt: skip
        yield running


def test_drafts_vary_in_length_and_that_is_seen(server: VllmServer) -> None:
    """All that is drafted is right, as the answers say step by step; vLLM's rates by position say otherwise."""

    def read() -> EngineReading:
        return DIALECTS["vllm"].read({"/metrics": server.metrics()})

    before = read().speculation
    assert before is not None
    window, by_itself = AcceptanceWindow(), AcceptanceWindow()
    window.update(before, 0.0)
    by_itself.update(replace(before, drafted_per_position=()), 0.0)
    answers = [server.complete(f"{n}. {letter}", 14) for n, letter in enumerate("abcdefghijklmn")]
    reading = read()
    counters = reading.speculation
    assert counters is not None
    assert counters.drafts is not None
    window.update(counters, 10.0)
    by_itself.update(replace(counters, drafted_per_position=()), 10.0)
    assert (reading.speculative, reading.gamma) == (True, GAMMA)
    assert answers[0]["choices"][0]["text"] == "a" * 14
    reports = [answer["metrics"]["speculative_decoding"] for answer in answers]
    lengths = {length for report in reports for length in report["per_step_drafted"]}
    right = [report["num_accepted_draft_tokens"] / report["num_draft_tokens"] for report in reports]
    published = [round(each / counters.drafts, 3) for each in counters.accepted_per_position]
    print(f"\ndraft lengths {sorted(lengths)}, accepted of drafted {min(right):.2f} to 1, published {published}")
    assert len(lengths) > 1
    assert min(right) > 0.8
    assert published[-1] < 0.7 * published[0]
    assert by_itself.variable_draft_length is True
    print(f"by what the plugin counts {window.conditional}")
    assert window.conditional is not None
    assert min(window.conditional) > 0.9


def test_without_a_schedule_at_the_start_nothing_is_set(server: VllmServer) -> None:
    url = f"{server.url}/plugins/adaptive-gamma/schedule"
    state = httpx.get(url, headers=HEADERS).json()
    assert state["status"] == "refused"
    assert "num_speculative_tokens_per_batch_size" in state["problem"]
    answer = httpx.put(url, json={"schedule": [[1, 32, 2]]}, headers=HEADERS)
    assert answer.status_code == 409
    assert "started without a schedule" in answer.json()["error"]["message"]
    assert server.complete("still here", 8)["choices"]
    assert "gamma stays as this engine was started with" in server.text

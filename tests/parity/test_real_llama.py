"""Real llama.cpp servers: a plain one is its own noise floor, speculation that verifies says the same, and synthetic
acceptance, which lets through what the model would not have said, does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adaptive_gamma.cli.demo.llama_server import LlamaServer
from tests.support.running import demo_models

WORDS = ("lists", "tuples", "queues", "stacks", "heaps", "trees", "graphs", "sets", "maps", "rings", "files", "pipes")


@pytest.mark.timeout(240)
def test_plain_is_the_floor_a_draft_is_the_same_and_synthetic_acceptance_is_not(tmp_path: Path) -> None:
    models = demo_models(tmp_path / "models")
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"Sort {word}."}) + "\n" for word in WORDS))
    with (
        LlamaServer(models.target, slots=4) as plain,
        LlamaServer(models.target, slots=4) as second,
        LlamaServer(models.target, draft=models.draft, gamma=4, slots=4) as drafting,
        LlamaServer(models.target, draft=models.draft, gamma=4, synthetic_rates=(0.9, 0.8, 0.7, 0.6), slots=4) as lax,
    ):
        servers = {"plain": plain, "second": second, "drafting": drafting, "synthetic": lax}
        urls = [part for name, server in servers.items() for part in ("--url", f"{name}={server.url}")]
        options = ["--prompts", str(prompts), "--output-tokens", "12", "--concurrency", "4", "--json"]
        done = subprocess.run(
            [sys.executable, "-m", "adaptive_gamma", "parity", *urls, *options],
            capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
    assert done.returncode == 1, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    floor = document["reference"]["noise_floor"]
    assert floor["prompts"] == 12
    assert (document["reference"]["speculative"], document["reference"]["gamma"]) == (False, 0)
    by_name = {candidate["name"]: candidate for candidate in document["candidates"]}
    for name in ("second", "drafting"):
        assert by_name[name]["outcome"] == "no_difference_found", by_name[name]
        assert "no difference found above the noise floor with 12 prompts" in by_name[name]["verdict"]
    assert by_name["drafting"]["speculative"]
    assert by_name["drafting"]["gamma"] == 4
    synthetic = by_name["synthetic"]
    assert synthetic["outcome"] == "difference_found"
    assert {test["name"] for test in synthetic["tests"] if test["found"]} == {"texts", "margins"}
    assert synthetic["parted"] >= 10
    # What this engine takes over from a draft it lists with a log-probability of 0: no figure, and not tested.
    for name in ("drafting", "synthetic"):
        missing = {test["name"]: test["not_made"] for test in by_name[name]["tests"] if test["not_made"]}
        assert set(missing) == {"log-probabilities", "choices"}
        assert "took over from a draft" in missing["choices"]
    assert not any(test["not_made"] for test in by_name["second"]["tests"])

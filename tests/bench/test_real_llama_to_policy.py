"""Two real llama.cpp servers, a sweep of them, a policy of the sweep, a picture of the policy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from adaptive_gamma.cli.demo.llama_server import LlamaServer
from adaptive_gamma.policy import load_policy, provenance_at
from tests.support.running import demo_models

RATES = (0.9, 0.8, 0.7, 0.6)


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "adaptive_gamma", *(str(one) for one in arguments)]
    return subprocess.run(whole, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.timeout(420)
def test_from_two_real_servers_to_a_policy_and_a_picture(tmp_path: Path) -> None:
    models = demo_models(tmp_path / "models")
    speculative = LlamaServer(models.target, draft=models.draft, gamma=4, synthetic_rates=RATES, slots=4)
    with speculative, LlamaServer(models.target, slots=4) as plain:
        arms = ["--url", plain.url, "--gamma", "0", "--url", speculative.url, "--gamma", "4"]
        size = [
            "--concurrency",
            "1,2,4",
            "--repeats",
            "1",
            "--allow-few-repeats",
            "--waves",
            "1",
            "--min-requests",
            "4",
        ]
        rest = ["--class", "prose", "--output-tokens", "64", "--json"]
        swept = command("sweep", *arms, *size, *rest, "-o", tmp_path / "sweep")
    assert swept.returncode == 0, swept.stderr
    policy_file = tmp_path / "policy.yaml"
    made = command("policy", "build", "--from", tmp_path / "sweep", "--step-time", "linear", "-o", policy_file)
    assert made.returncode == 0, made.stdout + made.stderr
    assert "6 rows from 1 files" in made.stdout
    policy = load_policy(policy_file)
    assert policy.classes == ("chat",)
    assert policy.evidence is not None
    assert set(policy.evidence.points["chat"]) == {"plain", 4}
    assert policy.inputs.limits.capture_limit_tokens is None
    context = policy.context_buckets[0]
    assert provenance_at(policy.evidence, "chat", context, 4, 1) == "measured"
    expected = policy.expected_tokens("chat", 4)
    assert expected == pytest.approx(1 + sum(RATES), rel=0.2), "what the server was told to accept"
    checked = command("policy", "check", policy_file)
    assert checked.returncode == 0, checked.stderr
    for name in ("policy.png", "policy.svg"):
        shown = command("policy", "show", policy_file, "--plot", tmp_path / name)
        assert shown.returncode == 0, shown.stderr
        assert (tmp_path / name).stat().st_size > 10_000

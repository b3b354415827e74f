"""``adaptive-gamma simulate-engine`` as a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from adaptive_gamma.engines.vllm import VllmDialect
from adaptive_gamma.policy import load_policy

COMMAND = [sys.executable, "-m", "adaptive_gamma", "simulate-engine"]


@contextmanager
def simulated(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = subprocess.Popen([*COMMAND, "--port", "0", *options], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("simulated engine listening on http://127.0.0.1:")
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def test_it_serves_and_sigterm_ends_it() -> None:
    options = ["--schedule", "1-4:5,5-:1", "--step-time", "2,0.01", "--acceptance", "structured=0.9,0.8"]
    with simulated(*options, "--acceptance", "chat=0.5", "--model", "demo", "--without-created") as (process, url):
        assert json.loads(get(f"{url}/version")) == {"version": "simulated"}
        page = get(f"{url}/metrics")
        assert 'position="4"' in page
        assert 'position="5"' not in page
        assert json.loads(get(f"{url}/simulate/acceptance")) == {"structured": [0.9, 0.8], "chat": [0.5]}
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) in (0, -signal.SIGTERM)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--gamma", "3", "--schedule", "1-:2"], "exclude each other"),
        (["--schedule", "2-4:5"], "must start at 1"),
        (["--schedule", "1to4"], "FIRST-LAST:GAMMA"),
        (["--acceptance", "chat=1.5"], "0..1"),
        (["--acceptance", "chat"], "CLASS=RATE"),
        (["--step-time", "1"], "T0_MS,C_MS"),
        (["--engines", "2", "--schedule", "1-:2"], "data-parallel"),
        (["--kv-tokens", "64"], "KV cache"),
        (["--time-scale", "0"], "not in the range 0<x"),
    ],
)
def test_wrong_options_end_with_2_and_say_why(options: list[str], words: str) -> None:
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert words in done.stderr


def test_step_times_come_from_a_policy() -> None:
    policy = load_policy("h100-llama3-8b-eagle3")
    with simulated("--policy", "h100-llama3-8b-eagle3", "--gamma", "3", "--time-scale", "0.2") as (_, url):
        body = json.dumps({"prompt": "Dear aunt,", "max_tokens": 30, "ignore_eos": True}).encode()
        with urllib.request.urlopen(f"{url}/v1/completions", body, timeout=30) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 30
        reading = VllmDialect().read({"/metrics": get(f"{url}/metrics")})
    assert reading.speculative is True
    assert reading.gamma == 3
    assert reading.generation_tokens == 30
    assert reading.running == 0
    assert reading.kv_usage == 0.0
    assert reading.inter_token_latency is not None
    step_s = reading.inter_token_latency.seconds / reading.inter_token_latency.count
    assert step_s == pytest.approx(policy.step_seconds(1, 3, 20.0), rel=0.02)

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
        (["--time-scale", "0"], "time_scale"),
    ],
)
def test_wrong_options_end_with_2_and_say_why(options: list[str], words: str) -> None:
    done = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 2
    assert words in done.stderr

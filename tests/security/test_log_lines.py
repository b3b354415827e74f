"""What others put into a log record cannot pass for another record, nor steer the terminal that shows it."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_gamma.cli.log_lines import OneLineFormatter
from tests.support.gated_engine import EngineExchange, GatedEngine
from tests.support.raw_client import post
from tests.support.served import serve

FORGED = "\n2026-01-01 00:00:00,000 INFO adaptive_gamma.serve: all is well\x1b[2J\r\x9b31m\u202e"


def formatted(message: str, *values: object, error: BaseException | None = None) -> str:
    info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("adaptive_gamma.x", logging.WARNING, "x.py", 1, message, values, info)
    return OneLineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s").format(record)


@given(st.text())
def test_a_record_is_one_line(text: str) -> None:
    line = formatted("replica %s: %s", "r0", text)
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line
    assert "\x9b" not in line


@given(st.text())
def test_lines_of_a_traceback_begin_with_a_tab(text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError as error:
        first, *rest = formatted("it failed", error=error).split("\n")
    assert first.endswith("it failed")
    assert all(line.startswith("\t") for line in rest)
    assert len("\n".join(rest).splitlines()) == len(rest)


@pytest.mark.parametrize("text", ["all is well", "Grüße, 世界 🙂", "a\\nb"])
def test_plain_words_stay(text: str) -> None:
    assert formatted("%s", text).endswith(f": {text}")


async def test_an_engine_cannot_write_lines_into_the_log(tmp_path: Path) -> None:
    """By the names of its models, by its headers and by bytes that are no answer."""

    async def script(x: EngineExchange) -> None:
        x.write(b"HTTP/1.1 200 OK" + FORGED.encode() + b"\r\n\r\n")
        x.close()

    async with GatedEngine(script, models=[FORGED, f"m{FORGED}"]) as engine, serve(tmp_path, [engine]) as served:
        await served.ready()
        for path in ("/v1/completions", f"/v1/completions?{'%0a%1b[2J' * 3}"):
            async with served.client() as client:
                await client.ask(post(path, {"prompt": FORGED, "model": f"m{FORGED}"}))
        assert not [line for line in served.lines if line.startswith("2026-01-01 00:00:00,000")]
        assert not [line for line in served.lines if "\x1b" in line or "\x9b" in line]


def test_a_name_of_a_file_cannot_steer_the_terminal(tmp_path: Path) -> None:
    """Nor a key in it: what is wrong is told with both."""
    for name, text in (
        ("\x1b[2J\n.json", '{"backend": "vllm", "completed": "x", "max_concurrency": 1, "median_tpot_ms": 1}'),
        ("b.json", '{"\x1b[2J": 1'),
    ):
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "adaptive_gamma", "policy", "build", "--from", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "\x1b" not in done.stdout + done.stderr
    assert "\\x1b[2J" in done.stderr

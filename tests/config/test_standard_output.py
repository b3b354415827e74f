"""What the command does when nobody takes its output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "adaptive_gamma"]
NAME = "h100-llama3-8b-eagle3"
PRINTING = (["policy", "show", NAME], ["policy", "show", NAME, "--json"], ["policy", "check", NAME], ["--help"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("arguments", PRINTING)
def test_a_full_disk_is_said_in_one_line(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        result = subprocess.run([*COMMAND, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert result.stderr == "adaptive-gamma: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize("arguments", PRINTING)
def test_a_reader_who_left_is_no_news(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = subprocess.run([*COMMAND, *arguments], stdout=writing, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writing)
    assert (result.returncode, result.stderr) == (1, "")


def test_an_error_stays_the_error_of_its_file(tmp_path: Path) -> None:
    result = subprocess.run(
        [*COMMAND, "policy", "show", str(tmp_path / "none.yaml")], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert "standard output" not in result.stderr

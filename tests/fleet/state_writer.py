"""Writers of a state file that are killed while they write; run as a program by the test of the state file.

A child is forked from a process that has everything imported, so that each of the deaths takes milliseconds. Prints how
many of the files were read whole, in how many of the deaths a write was cut off, and what the last writes were.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from adaptive_gamma.fleet.state_file import StateFile

DIGITS = 4000


def _state(number: int) -> dict[str, Any]:
    """Whole only if its two ends and its length agree."""
    return {"number": number, "filling": str(number % 10) * DIGITS, "again": number}


def _write_for_ever(path: Path, number: int) -> NoReturn:
    file = StateFile(path)
    file.ours = True
    while True:
        number += 1
        file.write(_state(number))


def main(folder: str, deaths: str) -> None:
    path, draw = Path(folder) / "learned.json", random.Random(1)
    whole = cut_off = number = 0
    began = time.monotonic()
    timing = StateFile(Path(folder) / "timing.json")
    for _ in range(8):
        timing.write(_state(0))
    usual_s = (time.monotonic() - began) / 8
    (Path(folder) / "timing.json").unlink()
    for _ in range(int(deaths)):
        child = os.fork()
        if child == 0:
            _write_for_ever(path, number)
        time.sleep(draw.uniform(0.0, 4.0 * usual_s))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the child ended by itself"
        assert os.WTERMSIG(status) == signal.SIGKILL
        cut_off += any(path.parent.glob(".*.tmp"))
        state = StateFile(path).read()
        if state is not None:
            assert state == _state(state["number"]), "not what was written"
            assert state["number"] >= number, "older than what was read before"
            number = state["number"]
        whole += 1
    left = [entry.name for entry in path.parent.iterdir()]
    print(json.dumps({"read": whole, "cut_off": cut_off, "writes": number, "left": left}))


if __name__ == "__main__":
    main(*sys.argv[1:])

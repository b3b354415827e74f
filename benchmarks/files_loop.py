"""``python -m benchmarks.files_loop``: CPU time of one turn of files mode's loop, by replicas and requests a second.

No Envoy and no engine: what is decided, made and written, as ``adaptive-gamma envoy`` does ten times a second.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import tempfile
import time
from collections import Counter
from pathlib import Path

from adaptive_gamma.cli.keeping import calm_collector
from adaptive_gamma.config import Settings
from adaptive_gamma.envoy.files import FilesController, Place
from adaptive_gamma.fleet import Fleet
from adaptive_gamma.policy import load_policy

_POLICY = "h200-llama3-70b-fp8"
_REPLICAS = (2, 8, 16, 64)
_RATES = (0, 100, 1000)


async def _turns(folder: Path, replicas: int, rate: int, turns: int) -> tuple[float, float]:
    """CPU ms of a turn in which nothing changes, and of one in which every file of endpoints does."""
    rows = [{"name": f"r{n}", "url": f"http://10.0.0.{n}:8000", "gamma": 4 * (n % 2)} for n in range(replicas)]
    settings = Settings.model_validate({"listen": "127.0.0.1:1", "policy": _POLICY, "replicas": rows})
    policy = load_policy(settings.policy)
    fleet = Fleet.of(settings, policy)
    controller = FilesController(settings, fleet, policy, Place(folder, settings.listen, "127.0.0.1:2"), interval_s=0.1)
    for number, state in enumerate(fleet.states):
        state.in_flight, state.acceptance_ratio = number % 7, 0.9 + 0.002 * number
    await controller.rewrite()
    assert controller.plan is not None
    names = [cluster.name for cluster in controller.plan.clusters]
    for second in range(30):  # the rate is smoothed
        controller.arrivals.count(Counter({name: rate * second // len(names) for name in names}), float(second))
    calm_collector()
    took = []
    for changes in (False, True):
        await controller.rewrite()
        began = time.process_time()
        for turn in range(turns):
            if changes:
                fleet.set_draining("r0", turn % 2 == 0)
            await controller.rewrite()
        took.append(1e3 * (time.process_time() - began) / turns)
    await fleet.stop()
    await controller.close()
    return took[0], took[1]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.files_loop", description=__doc__)
    parser.add_argument("--turns", type=int, default=40)
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    print(f"CPU ms of a turn; load average {os.getloadavg()[0]:.1f}")
    print(f"{'replicas':>10}{'requests/s':>12}{'nothing changes':>18}{'all weights change':>20}")
    for replicas in _REPLICAS:
        for rate in _RATES:
            with tempfile.TemporaryDirectory(prefix="adaptive-gamma-bench-") as folder:
                same, changed = asyncio.run(_turns(Path(folder), replicas, rate, asked.turns))
            print(f"{replicas:>10}{rate:>12}{same:>18.2f}{changed:>20.2f}")


if __name__ == "__main__":
    main()

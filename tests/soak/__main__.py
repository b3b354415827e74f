"""``python -m tests.soak``: exit code 0 when every invariant held, 1 with the reasons when one did not."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from pathlib import Path

import click
import uvloop

from tests.soak.report import report
from tests.soak.run import Options, soak


@click.command()
@click.option("--minutes", type=click.FloatRange(min=0.05), default=10.0, show_default=True)
@click.option("--streams", type=click.IntRange(min=1), default=200, show_default=True, help="Concurrent clients.")
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--engines", type=click.IntRange(min=3), default=4, show_default=True)
@click.option("--gap", "gap_s", type=click.FloatRange(min=0.5), default=8.0, show_default=True,
              help="Mean pause between two troubles of engines, and between two reloads, in seconds.")  # fmt: skip
@click.option("--memory-slope", type=float, default=8.0, show_default=True,
              help="Most growth of the proxy allowed, MB in 10 minutes; judged from 5 minutes on.")  # fmt: skip
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path),
              help="Folder for configuration, logs and journals; else they are thrown away.")  # fmt: skip
def main(
    minutes: float, streams: int, seed: int, engines: int, gap_s: float, memory_slope: float, keep: Path | None
) -> None:
    """Soak adaptive-gamma serve in front of engines that die, under clients that leave."""
    options = Options(minutes, streams, seed, engines, gap_s, memory_slope)
    with contextlib.ExitStack() as stack:
        if keep is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        else:
            folder = keep
            folder.mkdir(parents=True, exist_ok=True)
            for old in (*folder.glob("engine-*"), *folder.glob("serve.*")):
                old.unlink()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            result = runner.run(soak(options, folder))
    print(report(result))
    sys.exit(1 if result.reasons else 0)


if __name__ == "__main__":
    main()

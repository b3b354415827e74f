"""Runs the blocks and says what ran, what did not, and why."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

from documentation.shell_blocks.find import pages
from documentation.shell_blocks.run import Result, left_out, run_page

_ALONE = "DOCS_TEST_ALONE"
"""Set in the process that has a loopback interface of its own."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m documentation.shell_blocks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PAGE", help="part of a page's name; without any, all pages")
    parser.add_argument("--list", action="store_true", help="say what would be run, and run nothing")
    arguments = parser.parse_args()
    chosen = [page for page in pages() if page.commands]
    if arguments.names:
        chosen = [page for page in chosen if any(name in page.name for name in arguments.names)]
    if arguments.list:
        for page in chosen:
            for block in page.commands:
                reason = left_out(block)
                print(f"{page.name}:{block.line}: {'run' if reason is None else 'not run: ' + reason}")
        return 0
    if not (Path(sys.executable).parent / "adaptive-gamma").exists():
        print(f"adaptive-gamma is not installed beside {sys.executable}; `make docs-test` sees to it", file=sys.stderr)
        return 2
    if _ALONE not in os.environ:
        return _again()
    results = [result for page in chosen for result in _told(page.name, run_page(page))]
    return _report(results)


def _again() -> int:
    """In a network of its own where the system lets us: the pages' ports are then free, and nothing else is reached.

    Where it does not, the ports of this machine are used, and that is said.
    """
    own = {**os.environ, _ALONE: "yes"}
    command = [sys.executable, "-m", "documentation.shell_blocks", *sys.argv[1:]]
    unshare = shutil.which("unshare")
    ip = shutil.which("ip")
    if unshare and ip:
        inside = [
            unshare,
            "--user",
            "--map-root-user",
            "--net",
            "--",
            "sh",
            "-c",
            f'{ip} link set lo up && exec "$@"',
            "sh",
        ]
        if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode == 0:
            print("in a network of its own: loopback, and nothing else", flush=True)
            return subprocess.run([*inside, *command], env=own, check=False).returncode
    print("on the ports of this machine: the system gives no network of its own", flush=True)
    return subprocess.run(command, env=own, check=False).returncode


def _told(name: str, results: list[Result]) -> list[Result]:
    counts = Counter(result.status for result in results)
    seconds = sum(result.seconds for result in results)
    print(f"{name}: {', '.join(f'{count} {status}' for status, count in counts.items())} ({seconds:.1f} s)", flush=True)
    for result in results:
        if result.status == "failed":
            print(f"  {result.where} failed: {result.detail.rstrip()}", flush=True)
    return results


def _report(results: list[Result]) -> int:
    counts = Counter(result.status for result in results)
    print(f"\n{counts['ran'] + counts['ended']} of {len(results)} blocks ran")
    ended = [result.where for result in results if result.status == "ended"]
    if ended:
        print(f"of these go on by their nature, and were ended once they did what they are for: {', '.join(ended)}")
    reasons: dict[str, list[str]] = {}
    for result in results:
        if result.status == "not run":
            reasons.setdefault(result.detail, []).append(result.where)
    for reason, places in reasons.items():
        print(f"not run, {reason}: {', '.join(places)}")
    for status in ("failed", "not reached"):
        places = [result.where for result in results if result.status == status]
        if places:
            print(f"{status}: {', '.join(places)}")
    return 1 if counts["failed"] or counts["not reached"] else 0


sys.exit(main())

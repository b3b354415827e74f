"""Makes the environment that ``make test-vllm`` runs in: vLLM for CPUs, and this package beside it.

``python -m tests.vllm.environment DIRECTORY`` exits with 0 when it is there, and with 3 and the reason where this
machine cannot have it.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import venv
from pathlib import Path

__all__ = ["problem_of_this_machine"]

_ROOT = Path(__file__).resolve().parents[2]
_REQUIREMENTS = _ROOT / "requirements" / "vllm-cpu.txt"
_VLLM = "0.32.0+cpu"
_LEAST_MEMORY_GB = 7.0
CANNOT = 3


def problem_of_this_machine() -> str | None:
    """Why vLLM for CPUs cannot run here; None where nothing speaks against it."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "vllm-cpu is locked for Linux on x86-64"
    if sys.version_info[:2] != (3, 11):
        return f"the torch it is locked with is built for Python 3.11, and this is {platform.python_version()}"
    if "avx2" not in Path("/proc/cpuinfo").read_text():
        return "the processor lacks AVX2"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    if memory < _LEAST_MEMORY_GB:
        return f"a server takes 3 GB, two are needed at once, and the machine has {memory:.1f}"
    return None


def make(directory: Path) -> str | None:
    """Make it, or bring it up to date. Returns why that failed, in words."""
    python = directory / "bin" / "python"
    made = directory / ".made"
    if not made.exists() or made.stat().st_mtime < _REQUIREMENTS.stat().st_mtime:
        venv.create(directory, with_pip=True)
        # All that is needed is listed; without --no-deps pip would add Triton, 1 GB that the CPU has no use for.
        if not _pip(python, "--no-deps", "--require-hashes", "-r", str(_REQUIREMENTS)):
            return (
                "pip could not install it, see above. Where it lacks torch 2.13.0+cpu: that is on the index that the "
                "PyTorch project has for CPUs; PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS tells pip where"
            )
        _name_it_vllm(python)
        made.touch()
    wheels = directory / "wheels"
    for old in wheels.glob("*.whl"):
        old.unlink()
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(_ROOT)]
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *build], check=True)
    (wheel,) = wheels.glob("*.whl")
    return None if _pip(python, "--no-deps", "--force-reinstall", str(wheel)) else "this package did not install"


def _pip(python: Path, *arguments: str) -> bool:
    command = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install", *arguments]
    return subprocess.run(command, check=False).returncode == 0


def _name_it_vllm(python: Path) -> None:
    """``vllm serve`` asks for the version of a distribution named vllm, and this one is named vllm-cpu."""
    ask = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
    packages = subprocess.run([str(python), "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
    info = Path(packages) / f"vllm-{_VLLM}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {_VLLM}\n")
    (info / "RECORD").touch()


def main() -> int:
    problem = problem_of_this_machine() or make(Path(sys.argv[1]).absolute())
    if problem is None:
        return 0
    print(f"make test-vllm: skipped: {problem}", file=sys.stderr)
    return CANNOT


if __name__ == "__main__":
    sys.exit(main())

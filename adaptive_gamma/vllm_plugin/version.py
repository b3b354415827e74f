"""The vLLM versions this was run against, on a real engine (``make test-vllm``)."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from adaptive_gamma.vllm_plugin.settings import UNTESTED

__all__ = ["TESTED", "engine_version", "unsupported_reason"]

TESTED = ("0.32.0",)
_PUBLIC = re.compile(r"\d+(\.\d+)*")


def engine_version() -> str | None:
    """The version of the installed vLLM without its local part; None where there is no vLLM."""
    try:
        found = _PUBLIC.match(version("vllm"))
    except PackageNotFoundError:
        return None
    return None if found is None else found.group()


def unsupported_reason(untested_too: bool) -> str | None:
    """Why the plugin does not run in this vLLM, in words; None where it does."""
    found = engine_version()
    if found is None:
        return "no vLLM is installed here"
    if found in TESTED or untested_too:
        return None
    return f"vLLM {found} is not one it was tested with ({', '.join(TESTED)}); {UNTESTED}=1 lets it try all the same"

"""The admin API of a real ``serve`` against its own OpenAPI document, by schemathesis.

For long: ``python -m tests.fuzz.admin admin-api schemathesis SECONDS FOLDER``. A few, against an admin port that
is there: ``python -m tests.fuzz.admin URL EXAMPLES``. A test does the latter: pytest rewrites the modules of everything
that has a plugin for it, so that inside of it the library takes four times as long to import.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
import urllib.request
import warnings
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings

from tests.support.gated_engine import GatedEngine
from tests.support.raw_client import post
from tests.support.served import serve

__all__ = ["PATHS", "check_admin_api"]

PATHS = ("/decisions", "/livez", "/metrics", "/observations", "/policy", "/readyz", "/status")
_METHODS = ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND")


def check_admin_api(url: str, examples: int, *, derandomize: bool = False, seconds: float | None = None) -> list[str]:
    """Try each operation with values that its description allows, and with others; the paths that were tried.

    Every answer must be one that the description has: no fault of the server, a known status and content type, a body
    as described, wrong values refused. With ``seconds`` the examples are tried again with others until they are over.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what schemathesis imports
        import schemathesis
        from schemathesis import GenerationMode
        from schemathesis.core.result import Err
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    operations = []
    for found in schema.get_all_operations():
        assert not isinstance(found, Err), found
        operations.append(found.ok())
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        for operation in operations:
            if _streams(operation):
                continue
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

                @settings(
                    max_examples=examples,
                    deadline=None,
                    database=None,
                    derandomize=derandomize,
                    suppress_health_check=list(HealthCheck),
                )
                @given(case=operation.as_strategy(generation_mode=mode))
                def answered(case: Any) -> None:
                    case.call_and_validate(timeout=30)

                if mode is GenerationMode.POSITIVE or operation.query:
                    answered()
            _refuses_other_methods(url, operation)
        if end is None or time.monotonic() >= end:
            return sorted({operation.path for operation in operations})


def _streams(operation: Any) -> bool:
    """Whether an answer has no end by itself."""
    responses = operation.definition.raw.get("responses", {}).values()
    return any("text/event-stream" in each.get("content", {}) for each in responses)


def _refuses_other_methods(url: str, operation: Any) -> None:
    for method in _METHODS:
        request = urllib.request.Request(url + operation.path, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                status = answer.status
        except urllib.error.HTTPError as error:
            status = error.code
            error.close()
        assert status in (405, 501), f"{method} {operation.path}: {status}"


async def _long(seconds: float) -> None:
    async with GatedEngine() as engine:
        with tempfile.TemporaryDirectory() as folder:
            async with serve(Path(folder), [engine]) as served:
                await served.ready()
                async with served.client() as client:
                    await client.ask(post())
                url = f"http://127.0.0.1:{served.admin}"
                await asyncio.to_thread(check_admin_api, url, 50, seconds=seconds)
                faults = [line for line in served.lines if "Traceback" in line or " ERROR " in line]
                assert not faults, faults
    print("fuzz: every answer as described")


if __name__ == "__main__":
    if sys.argv[1].startswith("http://"):
        print(" ".join(check_admin_api(sys.argv[1], int(sys.argv[2]), derandomize=True)))
    else:
        asyncio.run(_long(float(sys.argv[3])))

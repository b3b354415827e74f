"""Server side: a route on vLLM's own port, for clients of this machine that hold the token.

It writes the schedule file and reads the state file; it has no way into the engine of its own.

    GET     /plugins/adaptive-gamma/schedule    the state
    PUT     the same    {"schedule": [[1, 32, 3]], "revision": "optional"}    the state, once the engine has taken it
    DELETE  the same    the schedule of the start-up again
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import secrets
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptive_gamma.vllm_plugin.files import FORMAT, FileError, read_object, state_file_of, write_object
from adaptive_gamma.vllm_plugin.schedule import ScheduleError, parse_schedule
from adaptive_gamma.vllm_plugin.settings import FILE, TOKEN, PluginSettings

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["PATH", "ScheduleEndpoint"]

PATH = "/plugins/adaptive-gamma/schedule"

_LARGEST_BODY = 1 << 18
_LONGEST_REVISION = 200
_TAKEN_WITHIN_S = 1.0
_LOOK_EVERY_S = 0.02
_ALIVE_WITHIN_S = 5.0


class _Refusal(Exception):
    """An answer that is not the state."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class ScheduleEndpoint:
    """What vLLM calls an endpoint plugin.

    Args:
        settings: with the token; without one there is no route.
    """

    name = "adaptive_gamma"
    required_tasks = ("generate",)

    def __init__(self, settings: PluginSettings) -> None:
        self._settings = settings
        self._changing = asyncio.Lock()

    def attach_router(self, app: FastAPI) -> None:
        """Add the route to vLLM's application. Without a token there is none."""
        if self._settings.token is not None:
            app.add_route(PATH, self._answer, methods=["GET", "PUT", "DELETE"], include_in_schema=False)

    async def init_state(self, engine_client: object, state: object, args: Namespace) -> None:
        """Nothing: the route needs no engine client."""

    async def _answer(self, request: Request) -> Response:
        try:
            self._admit(request)
            if request.method in ("GET", "HEAD"):
                return _json(self._state())
            wanted, revision = (None, None) if request.method == "DELETE" else await _asked(request)
            # One change at a time: a second would replace the file before the engine has seen the first.
            async with self._changing:
                return _json(await self._change(wanted, revision))
        except _Refusal as refusal:
            error = {"message": str(refusal), "type": refusal.kind, "code": refusal.status}
            return _json({"error": error}, refusal.status)

    def _admit(self, request: Request) -> None:
        if not self._settings.remote and not _is_local(request.client.host if request.client else ""):
            raise _Refusal(403, "forbidden", "only clients of this machine may ask for this")
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        token = self._settings.token or ""
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), token.encode()):
            raise _Refusal(401, "unauthorized", f"the token of {TOKEN} is needed, as Authorization: Bearer TOKEN")

    def _files(self) -> tuple[Path, Path]:
        path = self._settings.file
        if path is None:
            raise _Refusal(503, "unavailable", f"the plugin was not loaded in this process: {FILE} is not set")
        return path, state_file_of(path)

    def _state(self) -> dict[str, Any]:
        try:
            state = read_object(self._files()[1])
        except FileError:
            raise _Refusal(503, "unavailable", "the engine has told nothing yet") from None
        return state

    def _live_state(self) -> dict[str, Any]:
        """The state of an engine that can take a schedule."""
        state = self._state()
        if state.get("status") != "ready":
            raise _Refusal(409, "refused", f"{state.get('problem') or 'the plugin is not at work'}")
        written = state.get("written_at")
        if not isinstance(written, (int, float)) or time.time() - written > _ALIVE_WITHIN_S:
            raise _Refusal(503, "unavailable", "the engine has told nothing for some time")
        return state

    async def _change(self, wanted: object, revision: str | None) -> dict[str, Any]:
        state = self._live_state()
        if wanted is not None:
            try:
                parse_schedule(wanted, max_gamma=int(state["max_gamma"]))
            except ScheduleError as error:
                raise _Refusal(400, "invalid_schedule", str(error)) from None
        # What the engine takes is told from what it had by a revision that was never used before.
        tag = f"route-{secrets.token_hex(8)}" if revision is None else revision
        if tag == state.get("revision") or tag == (state.get("refused") or {}).get("revision"):
            raise _Refusal(400, "invalid_schedule", "this revision has been used before")
        try:
            write_object(self._files()[0], {"format": FORMAT, "revision": tag, "schedule": wanted})
        except OSError as error:
            raise _Refusal(503, "unavailable", f"the schedule file cannot be written: {error.strerror}") from None
        deadline = time.monotonic() + _TAKEN_WITHIN_S
        while time.monotonic() < deadline:
            state = self._live_state()
            if state.get("revision") == tag:
                return state
            refused = state.get("refused")
            if isinstance(refused, dict) and refused.get("revision") == tag:
                raise _Refusal(409, "refused", str(refused.get("reason")))
            await asyncio.sleep(_LOOK_EVERY_S)
        raise _Refusal(503, "unavailable", f"the engine did not take it within {_TAKEN_WITHIN_S:.0f} s; it may yet")


def _json(value: dict[str, Any], status: int = 200) -> Response:
    """In ASCII: a revision may hold half of a surrogate pair, which has no bytes in UTF-8."""
    from starlette.responses import Response

    return Response(json.dumps(value), status, media_type="application/json")


async def _asked(request: Request) -> tuple[object, str | None]:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _LARGEST_BODY:
            raise _Refusal(413, "too_large", f"the body has more than {_LARGEST_BODY} bytes")
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError):
        raise _Refusal(400, "invalid_json", "the body is not JSON") from None
    if not isinstance(asked, dict) or "schedule" not in asked or not set(asked) <= {"schedule", "revision"}:
        raise _Refusal(400, "invalid_schedule", 'the body is {"schedule": [[first batch, last batch, gamma], ...]}')
    revision = asked.get("revision")
    if revision is not None and not (isinstance(revision, str) and 0 < len(revision) <= _LONGEST_REVISION):
        raise _Refusal(400, "invalid_schedule", f"revision is a text of 1 to {_LONGEST_REVISION} characters")
    if asked["schedule"] is None:
        raise _Refusal(400, "invalid_schedule", "for the schedule of the start-up, send DELETE")
    return asked["schedule"], revision


def _is_local(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)

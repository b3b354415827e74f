"""A running server: whose it is, what it says of its configuration, and its metrics twice or more, some seconds apart.

Read are ``/v1/models``, ``/version``, the metrics pages, and ``/server_info`` where the server has it. Nothing is sent
that changes anything, but for the one short request that ``probe`` asks for.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from pydantic import SecretStr

from adaptive_gamma.doctor.engines import ENGINES
from adaptive_gamma.doctor.engines.vllm.settings import read_version, settings_of_info
from adaptive_gamma.doctor.evidence import Fact, Probe, ServerEvidence, Settings, Version
from adaptive_gamma.doctor.finding import Evidence
from adaptive_gamma.doctor.gather.pages import NoPage, Pages
from adaptive_gamma.doctor.gather.unreadable import Unreadable
from adaptive_gamma.engines import DIALECTS, Dialect, EngineReading
from adaptive_gamma.errors import ScrapeError

__all__ = ["ServerSettings", "left_unread", "look_at_server"]

_INFO = "/server_info?config_format=json"
_BETWEEN_S = 1.0
_PROBE_TOKENS = 16
_PROBE_S = 60.0
_MISSING = frozenset({404, 501})
_NO_STATISTICS = frozenset({"empty", "no_series"})
_WORDS = {
    "empty": "the page of metrics is empty",
    "no_series": "the page of metrics has none of the engine's series",
    "truncated": "the page of metrics breaks off",
    "not_metrics": "the page is not one of metrics",
}
_HTML = re.compile(r"\s*<(?:!doctype|html|\?xml)", re.IGNORECASE)


class _Off(Exception):
    """The server is there, and its metrics are switched off; the text says how that shows."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How to look.

    watch_s: seconds between the first look and the last; timeout_s: for each page; probe: send one short request.
    """

    watch_s: float = 5.0
    timeout_s: float = 5.0
    probe: bool = False
    api_key: SecretStr | None = None


def left_unread(server: ServerEvidence) -> Unreadable | None:
    """Why a server that is there told nothing of what it does, or None where it did or has its metrics off."""
    words = ENGINES.get(server.engine or "")
    if words is None or words.page_is_read:
        return None if server.last is None else _without_numbers(server, server.last)
    return Unreadable(server.url, f"is {words.title}; its metrics are not read, as reading takes them from others")


def _without_numbers(server: ServerEvidence, last: EngineReading) -> Unreadable | None:
    """Which figures of a page are no numbers: nothing that rests on them can be called clean."""
    lost = []
    if last.running is None and last.waiting is None:
        lost.append("its load")
    if last.generation_tokens is None:
        lost.append("its tokens")
    if server.engine == "vllm" and last.speculative and last.speculation is None:
        lost.append("its drafts")
    if not lost:
        return None
    return Unreadable(
        server.url,
        f"tells no number of {', '.join(lost)}: the series are missing, or NaN, infinite or negative; what rests on "
        "them cannot be checked",
    )


async def look_at_server(
    url: str,
    settings: ServerSettings,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> ServerEvidence | Unreadable:
    """Look at one server for ``settings.watch_s`` seconds.

    A server whose metrics are off is evidence; one that cannot be reached, or is no engine, is unreadable.
    """
    pages = Pages(url, settings.timeout_s, settings.api_key)
    try:
        return await _Look(pages, settings, clock, sleep).result()
    except NoPage as error:
        return Unreadable(url, error.reason)
    finally:
        await pages.close()


class _Look:
    def __init__(
        self,
        pages: Pages,
        settings: ServerSettings,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._pages = pages
        self._settings = settings
        self._clock = clock
        self._sleep = sleep
        self._model: str | None = None
        self._max_model_len: Fact[int] | None = None

    async def result(self) -> ServerEvidence:
        """Raises NoPage where there is nothing to look at."""
        engine = await self._owner()
        version = await self._version()
        words = ENGINES.get(engine) if engine is not None else None
        if words is not None and not words.page_is_read:
            return ServerEvidence(self._pages.url, words.name, version, max_model_len=self._max_model_len)
        try:
            dialect, first = await self._first(engine)
        except _Off as off:
            if engine is None and version is None:
                raise NoPage(str(off)) from None
            # A version and no known owner: vLLM guards its models where a key is set, and its version never.
            engine = engine or "vllm"
            at = Evidence("metric", f"{self._pages.url}{_page(engine)}", str(off))
            return await self._described(ServerEvidence(self._pages.url, engine, version, statistics_off=at))
        return await self._watched(dialect, first, version)

    async def _watched(self, dialect: Dialect, first: EngineReading, version: Fact[Version] | None) -> ServerEvidence:
        began = self._clock()
        most = first.running
        last, looks, reset = first, 1, None
        while (left := self._settings.watch_s - (self._clock() - began)) > 0:
            await self._sleep(min(left, _BETWEEN_S))
            try:
                reading = await self._read(dialect)
            except (NoPage, ScrapeError) as error:
                reset = Evidence("metric", f"{self._pages.url} metrics", f"the page was lost while watching: {error}")
                break
            reset = reset or self._fell(last, reading)
            last, looks = reading, looks + 1
            if reading.running is not None:
                most = max(most or 0, reading.running)
        seen = ServerEvidence(
            self._pages.url,
            dialect.name,
            version,
            first,
            last,
            self._clock() - began,
            looks,
            most,
            reset,
        )
        return await self._described(seen)

    def _fell(self, before: EngineReading, after: EngineReading) -> Evidence | None:
        where = f"{self._pages.url} metrics"
        if before.started_at is not None and after.started_at is not None and after.started_at > before.started_at + 1:
            return Evidence("metric", where, "its counters began after the look before")
        for name in ("generation_tokens", "prompt_tokens"):
            old, new = getattr(before, name), getattr(after, name)
            if old is not None and new is not None and new < old:
                return Evidence("metric", where, f"{name} fell from {old:g} to {new:g}")
        return None

    async def _described(self, seen: ServerEvidence) -> ServerEvidence:
        told, missing = await self._info(seen.engine)
        probe, probe_missing = await self._probe(seen.engine)
        return ServerEvidence(
            seen.url, seen.engine, seen.version, seen.first, seen.last, seen.seconds, seen.looks, seen.most_running,
            seen.reset_between, seen.statistics_off, told, missing, self._max_model_len, probe, probe_missing,
        )  # fmt: skip

    async def _owner(self) -> str | None:
        """The engine by what it calls the owner of its models; the model and its context come along."""
        try:
            page = await self._pages.json("/v1/models")
        except NoPage:
            return None
        listed = page.get("data") if isinstance(page, Mapping) else None
        model = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], Mapping) else {}
        if isinstance(name := model.get("id"), str):
            self._model = name
        length = model.get("max_model_len")
        if isinstance(length, int) and not isinstance(length, bool) and length > 0:
            where = Evidence("setting", f"{self._pages.url}/v1/models", f"max_model_len={length}")
            self._max_model_len = Fact(length, where)
        owner = model.get("owned_by")
        if not isinstance(owner, str):
            return None
        return next((engine.name for engine in ENGINES.values() if owner in engine.owners), None)

    async def _version(self) -> Fact[Version] | None:
        try:
            page = await self._pages.json("/version")
        except NoPage:
            return None
        text = page.get("version") if isinstance(page, Mapping) else None
        version = read_version(text) if isinstance(text, str) else None
        if version is None:
            return None
        return Fact(version, Evidence("setting", f"{self._pages.url}/version", str(text)[:60]))

    async def _first(self, engine: str | None) -> tuple[Dialect, EngineReading]:
        """The first reading, by the dialect of the engine, or by the one that understands the page.

        Raises _Off where the server is there and its metrics are not, NoPage where there is nothing to look at.
        """
        candidates = [DIALECTS[engine]] if engine is not None and engine in DIALECTS else list(DIALECTS.values())
        path = candidates[0].metrics_paths[0]
        try:
            text = await self._pages.text(path)
        except NoPage as error:
            if error.status in _MISSING:
                raise _Off(f"{path} {error.reason}") from None
            raise NoPage(f"{path} {error.reason}", error.status) from None
        if _HTML.match(text):
            raise NoPage("answers HTML and no metrics: it is no engine, or something stands before it")
        problem: ScrapeError | None = None
        for dialect in candidates:
            try:
                return dialect, dialect.read(await self._with_others(dialect, text))
            except ScrapeError as error:
                problem = error
        reason = problem.reason if problem is not None else ""
        words = _WORDS.get(reason, str(problem))
        if reason in _NO_STATISTICS:
            raise _Off(words)
        raise NoPage(words)

    async def _read(self, dialect: Dialect) -> EngineReading:
        return dialect.read(await self._with_others(dialect, await self._pages.text(dialect.metrics_paths[0])))

    async def _with_others(self, dialect: Dialect, text: str) -> dict[str, str]:
        pages = {dialect.metrics_paths[0]: text}
        for path in dialect.metrics_paths[1:]:
            try:
                pages[path] = await self._pages.text(path)
            except NoPage:
                continue
        return pages

    async def _info(self, engine: str | None) -> tuple[Settings, str | None]:
        if engine != "vllm":
            return Settings(), None
        try:
            page = await self._pages.json(_INFO)
        except NoPage as error:
            return (
                Settings(),
                f"/server_info {error.reason}; vLLM has it with VLLM_SERVER_DEV_MODE=1 only, not meant for production",
            )
        told = settings_of_info(page, f"{self._pages.url}/server_info")
        return (told, None) if told is not None else (Settings(), "/server_info is another page than vLLM's")

    async def _probe(self, engine: str | None) -> tuple[Probe | None, str | None]:
        if not self._settings.probe:
            return None, None
        dialect = DIALECTS.get(engine or "")
        if dialect is None or self._model is None:
            return None, "the server lists no model to ask"
        body = {
            "model": self._model,
            "prompt": "Count: one, two, three,",
            "max_tokens": _PROBE_TOKENS,
            "temperature": 0,
        }
        try:
            answer = await self._pages.ask("/v1/completions", body, _PROBE_S)
        except NoPage as error:
            return None, f"the request {error.reason}"
        if not isinstance(answer, Mapping):
            return None, "the answer is no JSON object"
        gamma, seen = dialect.gamma_from_response(answer), dialect.acceptance_from_response(answer)
        if gamma is None and seen is None:
            return None, "the answer does not tell of its drafts (vLLM: --per-request-spec-decode-metrics detailed)"
        words = "of one request: " + ", ".join(
            part
            for part in (
                f"num_spec_tokens {gamma}" if gamma is not None else "",
                f"{seen.draft_tokens} draft tokens in {seen.drafts} steps" if seen is not None else "",
            )
            if part
        )
        at = Evidence("metric", f"{self._pages.url}/v1/completions", words)
        return Probe(gamma, seen.draft_tokens if seen else None, seen.drafts if seen else None, at), None


def _page(engine: str | None) -> str:
    dialect = DIALECTS.get(engine or "")
    return dialect.metrics_paths[0] if dialect is not None else "/metrics"

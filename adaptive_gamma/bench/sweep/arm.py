"""An engine under test: where it is, what it is by its own account, and how its counters are read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from adaptive_gamma.bench.sweep.http import Address, Answer, Clock, fetch
from adaptive_gamma.bench.sweep.models import listed_models
from adaptive_gamma.bench.sweep.reported import CONFIGURATION_PAGES, drafter_of, owner_of, reported_settings, version_of
from adaptive_gamma.bench.sweep.words import fit_to_show
from adaptive_gamma.engines import DIALECTS, Dialect, EngineReading, dialect_for
from adaptive_gamma.errors import (
    AdaptiveGammaError,
    ConfigurationError,
    ConnectError,
    ScrapeError,
    UpstreamError,
    nearest,
)

__all__ = ["KEY_REFUSED", "Arm", "ArmReport", "ArmSpec", "open_arm"]

_PAGE_TIMEOUT_S = 10.0
_LOOK_EVERY_S = 0.05
_SETTLED_S = 0.5
"""Counters that have not changed for so long are taken as they are."""
KEY_REFUSED = "asks for a key: put it into an environment variable and name that with --api-key-env"


@dataclass(frozen=True, slots=True)
class ArmSpec:
    """An arm as the command line names it."""

    url: str
    """``http(s)://host:port``."""
    name: str | None = None
    """None: it is named by what the engine reports."""
    engine: str | None = None
    """A dialect, or None to find out."""
    model: str | None = None
    """The model to ask for; None where the engine lists just one."""
    gamma: int | None = None
    """What the user holds its gamma to be; checked, never recorded as a fact."""


@dataclass(frozen=True, slots=True)
class ArmReport:
    """What the engine says of itself. None is: it does not say."""

    engine: str | None = None
    engine_version: str | None = None
    served_model: str = ""
    """The name requests use."""
    model: str = ""
    """The model behind that name where the engine tells it, else the name."""
    drafter: str | None = None
    speculative: bool | None = None
    gamma: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Its settings by page and name."""

    def identity(self) -> dict[str, Any]:
        """What must not change while a sweep lasts."""
        return {
            "engine": self.engine,
            "engine_version": self.engine_version,
            "served_model": self.served_model,
            "model": self.model,
            "drafter": self.drafter,
            "speculative": self.speculative,
            "gamma": self.gamma,
        }


class Arm:
    """An engine that answered. Its report is completed as it shows more."""

    def __init__(
        self, spec: ArmSpec, address: Address, clock: Clock, report: ArmReport, dialect: Dialect | None
    ) -> None:
        self.spec = spec
        self.address = address
        self.report = report
        self.dialect = dialect
        self.name = spec.name or ""
        self._clock = clock
        self._gamma_in_answers: int | None = None

    @property
    def described(self) -> str:
        """The arm in a message."""
        return f"arm {self.name} ({self.spec.url})" if self.name else self.spec.url

    async def reading(self) -> EngineReading | None:
        """The engine's metrics now; None where it has none that can be read."""
        if self.dialect is None:
            return None
        try:
            return self.dialect.read(await _pages(self.address, self.dialect.metrics_paths, self._clock))
        except (ScrapeError, UpstreamError):
            return None

    async def settled_reading(self, before: EngineReading | None, tokens: int) -> EngineReading | None:
        """The metrics once they hold the ``tokens`` generated since ``before``, or have stopped changing."""
        reading = await self.reading()
        changed_at = self._clock()
        while reading is not None and not _holds(before, reading, tokens) and self._clock() < changed_at + _SETTLED_S:
            await asyncio.sleep(_LOOK_EVERY_S)
            latest = await self.reading()
            if latest is not None and latest.generation_tokens != reading.generation_tokens:
                changed_at = self._clock()
            reading = latest
        return reading

    def learn(self, reading: EngineReading | None, closing: Sequence[Mapping[str, Any]] = ()) -> None:
        """Complete the report from metrics, and from the events that closed answers."""
        if self.dialect is not None:
            for event in closing:
                shown = self.dialect.gamma_from_response(event)
                if shown is not None:
                    self._gamma_in_answers = max(shown, self._gamma_in_answers or 0)
        if reading is None:
            return
        speculative = reading.speculative if reading.speculative is not None else self.report.speculative
        gamma = 0 if speculative is False else reading.gamma if reading.gamma is not None else self.report.gamma
        self.report = ArmReport(
            **{**self.report.identity(), "speculative": speculative, "gamma": gamma}, settings=self.report.settings
        )

    def check_gamma(self) -> str | None:
        """Compare the gamma the user asserted with what the engine shows.

        Gives a remark where the engine does not show enough to tell.

        Raises:
            ConfigurationError: they disagree.
        """
        asserted, report = self.spec.gamma, self.report
        if asserted is None:
            return None
        shown: str | None = None
        if report.speculative is False and asserted > 0:
            shown = "no drafter"
        elif report.gamma is not None and report.gamma != asserted:
            shown = f"gamma {report.gamma}"
        elif asserted == 0 and report.speculative:
            shown = "a drafter that speculates"
        elif report.gamma is None and self._gamma_in_answers is not None and self._gamma_in_answers > asserted:
            shown = f"answers with {self._gamma_in_answers} draft tokens per step"
        if shown is not None:
            raise ConfigurationError(
                self.described, "gamma", f"--gamma says {asserted}, and the engine reports {shown}; the engine is right"
            )
        if report.gamma is None:
            return (
                f"{self.described}: --gamma says {asserted}; the engine does not report its gamma, so none is recorded"
            )
        return None


def _holds(before: EngineReading | None, now: EngineReading, tokens: int) -> bool:
    """Whether the counters hold what was answered; engines that do not count tokens are taken as they are."""
    if before is None or before.generation_tokens is None or now.generation_tokens is None:
        return True
    gained = now.generation_tokens - before.generation_tokens
    return gained >= tokens or gained < 0


async def open_arm(spec: ArmSpec, *, clock: Clock, api_key: SecretStr | None) -> Arm:
    """Ask an engine who it is.

    Raises:
        ConnectError: nothing answers at its url.
        ConfigurationError: it refuses the key, lists no model of that name, or several where none was asked for, or
            is not the engine it was said to be.
    """
    headers = {} if api_key is None else {"authorization": f"Bearer {api_key.get_secret_value()}"}
    address = Address.of(spec.url, headers)
    where = f"arm {spec.name} ({spec.url})" if spec.name else spec.url
    try:
        answer, body = await fetch(address, "/v1/models", clock=clock, timeout_s=_PAGE_TIMEOUT_S)
    except ConnectError as error:
        raise ConnectError(f"{where} is unreachable: {error}") from error
    except UpstreamError as error:
        raise AdaptiveGammaError(f"{where} does not answer /v1/models: {error}") from error
    if answer.status in (401, 403):
        raise ConfigurationError(where, "", KEY_REFUSED if api_key is None else "refuses the key")
    served, model = _chosen_model(spec, where, answer, body)
    dialect, reading = await _find_dialect(spec, where, address, clock)
    pages = await _configuration(address, clock)
    settings = reported_settings(pages)
    if "server" in answer.headers:
        settings["header server"] = fit_to_show(answer.headers["server"], 100)
    report = ArmReport(
        engine=owner_of(settings) if dialect is None else dialect.name,
        engine_version=version_of(settings),
        served_model=served,
        model=model,
        drafter=drafter_of(settings),
        settings=settings,
    )
    arm = Arm(spec, address, clock, report, dialect)
    arm.learn(reading)
    return arm


def _chosen_model(spec: ArmSpec, where: str, answer: Answer, body: bytes) -> tuple[str, str]:
    """The name to ask for and the model behind it."""
    listed = listed_models(body) if answer.status == 200 else {}
    if spec.model is not None:
        if listed and spec.model not in listed:
            known = ", ".join(listed)
            raise ConfigurationError(where, "model", f"serves no {spec.model!r}; it lists {known}",
                                     nearest(spec.model, listed))  # fmt: skip
        return spec.model, listed.get(spec.model, spec.model)
    if len(listed) == 1:
        return next(iter(listed.items()))
    if not listed:
        raise ConfigurationError(where, "model", f"/v1/models lists none (HTTP {answer.status}); name it with --model")
    raise ConfigurationError(where, "model", f"serves several, name one with --model: {', '.join(listed)}")


async def _find_dialect(
    spec: ArmSpec, where: str, address: Address, clock: Clock
) -> tuple[Dialect | None, EngineReading | None]:
    candidates = DIALECTS.values() if spec.engine is None else (dialect_for(spec.engine),)
    problem = ""
    for dialect in candidates:
        try:
            return dialect, dialect.read(await _pages(address, dialect.metrics_paths, clock))
        except (ScrapeError, UpstreamError) as error:
            problem = str(error)
    if spec.engine is not None:
        raise ConfigurationError(where, "engine", f"has no metrics page of {spec.engine}: {problem}")
    return None, None


async def _pages(address: Address, paths: Sequence[str], clock: Clock) -> dict[str, str]:
    """Metrics pages; the first must answer. Raises ScrapeError or UpstreamError."""
    pages: dict[str, str] = {}
    for path in paths:
        try:
            answer, body = await fetch(address, path, clock=clock, timeout_s=_PAGE_TIMEOUT_S)
        except UpstreamError:
            if not pages:
                raise
            continue
        if answer.status == 200:
            pages[path] = body.decode("utf-8", errors="replace")
        elif not pages:
            raise ScrapeError(f"status_{answer.status}", path)
    return pages


async def _configuration(address: Address, clock: Clock) -> dict[str, bytes]:
    pages: dict[str, bytes] = {}
    for path in CONFIGURATION_PAGES:
        try:
            answer, body = await fetch(address, path, clock=clock, timeout_s=_PAGE_TIMEOUT_S)
        except UpstreamError:
            continue
        if answer.status == 200:
            pages[path] = body
    return pages

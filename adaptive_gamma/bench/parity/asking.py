"""A replica under comparison: what it is, and one greedy answer of it after the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from adaptive_gamma.bench.parity.answers import WholeAnswer, read_answer
from adaptive_gamma.bench.sweep.arm import KEY_REFUSED, Arm, ArmSpec, open_arm
from adaptive_gamma.bench.sweep.asking import refusal_text
from adaptive_gamma.bench.sweep.dataset import Endpoint, Prompt
from adaptive_gamma.bench.sweep.http import Address, Clock, Connection, fetch
from adaptive_gamma.bench.sweep.words import fit_to_show
from adaptive_gamma.errors import AdaptiveGammaError, ConfigurationError, ConnectError, ProtocolError, UpstreamError

__all__ = ["Failure", "Form", "Replica", "open_replica"]

_PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
_LARGEST_ANSWER = 32 * 1024 * 1024
_ERROR_BODY = 64 * 1024
_PAGE_TIMEOUT_S = 10.0
_REFUSED_FIELD = (400, 422)
_REFUSED_KEY = (401, 403)


@dataclass(frozen=True, slots=True)
class Form:
    """What is the same in every request."""

    endpoint: Endpoint = "chat"
    output_tokens: int = 128
    likeliest: int = 5
    """Likeliest tokens asked for at each place; 0 asks for no log-probabilities."""
    timeout_s: float = 120.0

    def body(self, model: str, prompt: Prompt, *, likeliest: int, output_tokens: int | None = None) -> bytes:
        """The body of a request."""
        values: dict[str, Any] = {
            "model": model,
            **prompt.fields(self.endpoint, ""),
            "max_tokens": self.output_tokens if output_tokens is None else output_tokens,
            "temperature": 0.0,
            "seed": 0,
        }
        if likeliest and self.endpoint == "chat":
            values |= {"logprobs": True, "top_logprobs": likeliest}
        elif likeliest:
            values["logprobs"] = likeliest
        return json.dumps(values).encode()


@dataclass(frozen=True, slots=True)
class Failure:
    """A request without a whole answer. ``reason`` is a short stable word."""

    reason: str
    detail: str


class _Line:
    """A connection that is kept, and made anew when the engine has closed it."""

    def __init__(self, address: Address, clock: Clock, timeout_s: float) -> None:
        self._address = address
        self._clock = clock
        self._timeout_s = timeout_s
        self._connection: Connection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of an answer. Raises ConnectError, ProtocolError, TimeoutError."""
        request = self._address.request("POST", path, body)
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    if self._connection is None or not self._connection.usable:
                        self._connection = await Connection.open(self._address, self._clock, self._timeout_s)
                    rested = self._connection.exchanges > 0
                    try:
                        return await self._exchange(self._connection, request)
                    except ProtocolError as error:
                        if not (rested and Connection.came_to_nothing(error)):
                            raise
        except BaseException:
            self.close()
            raise

    @staticmethod
    async def _exchange(connection: Connection, request: bytes) -> tuple[int, bytes]:
        body = bytearray()

        def take(status: int, piece: bytes, at: float) -> None:
            if status == 200:
                body.extend(piece)
                if len(body) > _LARGEST_ANSWER:
                    raise ProtocolError(f"an answer of over {_LARGEST_ANSWER} bytes")
            elif len(body) < _ERROR_BODY:
                body.extend(piece)

        answer = await connection.exchange(request, take)
        return answer.status, bytes(body)


class Replica:
    """A replica that answered; greedy answers are asked of it."""

    def __init__(self, arm: Arm, form: Form, clock: Clock) -> None:
        self.arm = arm
        self.likeliest = form.likeliest
        """Likeliest tokens that are asked for; 0 once it has refused that."""
        self._form = form
        self._clock = clock
        self._lines: list[_Line] = []

    @property
    def name(self) -> str:
        """How it is called in the report."""
        return self.arm.name

    def close(self) -> None:
        """Drop its connections."""
        for line in self._lines:
            line.close()

    async def probe(self, prompt: Prompt) -> str | None:
        """A first short answer, which tells whether it takes such requests. Gives a remark where it gives less than
        was asked for. Raises AdaptiveGammaError."""
        answer = await self._ask(self._line(0), prompt, output_tokens=4)
        remark = None
        if isinstance(answer, Failure) and self.likeliest and answer.reason in _reasons(_REFUSED_FIELD):
            refused, self.likeliest = answer, 0
            answer = await self._ask(self._line(0), prompt, output_tokens=4)
            if not isinstance(answer, Failure):
                return f"{self.arm.described} refuses log-probabilities ({refused.detail}): only its texts are compared"
        if isinstance(answer, Failure):
            hint = ""
            if answer.reason in _reasons(_REFUSED_KEY):
                hint = f"; it {KEY_REFUSED}"
            elif answer.reason in _reasons((400, 404, 422)) and self._form.endpoint == "chat":
                hint = "; a model without a chat template takes --endpoint completions"
            raise AdaptiveGammaError(
                f"{self.arm.described} does not answer the first request ({answer.reason}): {answer.detail}{hint}"
            )
        if self.likeliest and answer.tokens is None:
            remark = f"{self.arm.described} gives no log-probabilities: only its texts are compared"
        return remark

    async def answers(
        self, prompts: Sequence[Prompt], at_once: int = 1, output_tokens: int | None = None
    ) -> list[WholeAnswer | Failure]:
        """The answers to all prompts, so many asked at once. Raises ConnectError when it is gone."""
        found: list[WholeAnswer | Failure | None] = [None] * len(prompts)
        waiting = iter(enumerate(prompts))

        async def serve(line: _Line) -> None:
            for place, prompt in waiting:
                found[place] = await self._ask(line, prompt, output_tokens)

        tasks = [asyncio.ensure_future(serve(self._line(number))) for number in range(min(at_once, len(prompts)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [answer for answer in found if answer is not None]

    def _line(self, number: int) -> _Line:
        while len(self._lines) <= number:
            self._lines.append(_Line(self.arm.address, self._clock, self._form.timeout_s))
        return self._lines[number]

    async def _ask(self, line: _Line, prompt: Prompt, output_tokens: int | None) -> WholeAnswer | Failure:
        form, report = self._form, self.arm.report
        body = form.body(report.served_model, prompt, likeliest=self.likeliest, output_tokens=output_tokens)
        try:
            status, answer = await line.post(_PATHS[form.endpoint], body)
            if status != 200:
                return Failure(f"status_{status}", self._shown(refusal_text(answer)))
            return read_answer(answer, asked_for_others=self.likeliest > 0)
        except TimeoutError:
            return Failure("timeout", f"no whole answer within {form.timeout_s:g} s")
        except ConnectError:
            raise
        except UpstreamError as error:
            return Failure("protocol", self._shown(str(error)))

    def _shown(self, text: str) -> str:
        return fit_to_show(self.arm.address.without_key(text))


def _reasons(statuses: Sequence[int]) -> tuple[str, ...]:
    return tuple(f"status_{status}" for status in statuses)


async def open_replica(spec: ArmSpec, form: Form, *, clock: Clock, api_key: SecretStr | None) -> Replica:
    """Ask a replica who it is.

    Raises:
        ConnectError: nothing answers at its url.
        ConfigurationError: it refuses the key, lists no such model, or is no engine at all.
        AdaptiveGammaError: it does not answer.
    """
    headers = {} if api_key is None else {"authorization": f"Bearer {api_key.get_secret_value()}"}
    address = Address.of(spec.url, headers)
    where = f"{spec.name} ({spec.url})" if spec.name else spec.url
    try:
        page, body = await fetch(address, "/v1/models", clock=clock, timeout_s=min(_PAGE_TIMEOUT_S, form.timeout_s))
    except ConnectError as error:
        raise ConnectError(f"{where} is unreachable: {error}") from error
    except UpstreamError as error:
        raise AdaptiveGammaError(f"{where} does not answer /v1/models: {error}") from error
    if "html" in page.headers.get("content-type", "") or body.lstrip()[:1] == b"<":
        raise ConfigurationError(
            where, "", f"/v1/models answers HTML (HTTP {page.status}): this is a web page and no engine's port"
        )
    return Replica(await open_arm(spec, clock=clock, api_key=api_key), form, clock)

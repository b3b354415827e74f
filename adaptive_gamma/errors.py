"""Every error this package raises on purpose.

    AdaptiveGammaError
    ├── ConfigurationError      a file, key or value the operator can correct; stops the start, exit code 2
    │   ├── AddressError        an address to listen on that cannot be had
    │   ├── PolicyError         the same, in a policy file
    │   ├── SweepError          the same, in a benchmark's result file
    │   └── ExportRefused       an engine would reject, or silently drop, the schedule asked for
    ├── TraceError              a line of a trace file that cannot be read
    ├── NoReplica               no replica can take the request
    ├── ExchangeError           a page of somebody else's that could not be had over HTTP
    ├── ScrapeError             an engine's page that could not be fetched or understood; the reading is unknown
    ├── DiscoveryError          where replicas are found gave no answer; the last list stays
    ├── ActuatorError           an engine that does not take a change of gamma; it is as it was
    └── UpstreamError           an exchange with an engine that failed
        ├── ConnectError        no connection: nothing was sent, another replica may be tried
        ├── UpstreamTimeout     the engine stayed silent for too long
        └── ProtocolError       the engine broke off or answered with something that is not HTTP

Raised at a boundary, mapped once: to an exit code in ``cli``, to an HTTP answer in ``proxy``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

__all__ = [
    "MOST_TOLD",
    "ActuatorError",
    "AdaptiveGammaError",
    "AddressError",
    "ConfigurationError",
    "ConnectError",
    "DiscoveryError",
    "ExchangeError",
    "ExportRefused",
    "NoReplica",
    "PolicyError",
    "ProtocolError",
    "ScrapeError",
    "SweepError",
    "TraceError",
    "UpstreamError",
    "UpstreamTimeout",
    "nearest",
    "shortened",
]


MOST_TOLD = 50
"""Problems of one configuration that are told: who has more has made one mistake many times."""


class AdaptiveGammaError(Exception):
    """The root of the tree."""


class ConfigurationError(AdaptiveGammaError):
    """A setting that cannot be used.

    ``source`` names the file or environment variable, ``key`` the dotted path inside it, ``problem`` says what was
    found and what was expected; ``suggestion`` is the nearest right key or value where there is one.
    """

    def __init__(self, source: str, key: str, problem: str, suggestion: str | None = None) -> None:
        self.source = source
        self.key = key
        self.problem = problem
        self.suggestion = suggestion
        where = f"{source}: {shortened(key)}" if key else source
        hint = f" (did you mean {suggestion!r}?)" if suggestion else ""
        super().__init__(f"{where}: {problem}{hint}")

    @classmethod
    def together(cls, problems: Sequence[ConfigurationError]) -> ConfigurationError:
        """One error of several, at least one: the first one's, telling each of the first ``MOST_TOLD`` on its line."""
        first = problems[0]
        whole = cls(first.source, first.key, first.problem, first.suggestion)
        lines = [str(problem) for problem in problems[:MOST_TOLD]]
        if len(problems) > MOST_TOLD:
            lines.append(f"{first.source}: and {len(problems) - MOST_TOLD} more")
        whole.args = ("\n".join(lines),)
        return whole


class AddressError(ConfigurationError):
    """An address that cannot be listened on; ``key`` is the setting that names it, ``address`` what it says."""

    def __init__(self, key: str, address: str, reason: str, source: str = "settings") -> None:
        self.address = address
        self.reason = reason
        super().__init__(source, key, f"cannot listen on {address}: {reason}")

    def given_by(self, source: str) -> AddressError:
        """The same, which names the file, variable or option that gave the setting."""
        return AddressError(self.key, self.address, self.reason, source)


class PolicyError(ConfigurationError):
    """A policy file that cannot be used."""


class SweepError(ConfigurationError):
    """A benchmark result that cannot be used; ``source`` is ``file`` or ``file:line``, ``key`` the field."""


class ExportRefused(ConfigurationError):
    """A schedule that the engine would reject or silently drop; the message says what to do instead."""


class TraceError(AdaptiveGammaError):
    """A trace line that cannot be read; ``line`` counts from 1, ``field`` is the column's name."""

    def __init__(self, source: str, line: int, field: str, problem: str) -> None:
        self.source = source
        self.line = line
        self.field = field
        self.problem = problem
        super().__init__(f"{source}: line {line}: {field}: {problem}")


class NoReplica(AdaptiveGammaError):
    """No replica can take the request.

    ``model_unknown`` is True when every replica lists its models and none has the one asked for. ``at_capacity`` is
    True when a replica could serve it, but every such one is at its cap of open requests.
    """

    def __init__(self, message: str, *, model_unknown: bool = False, at_capacity: bool = False) -> None:
        self.model_unknown = model_unknown
        self.at_capacity = at_capacity
        super().__init__(message)


class ExchangeError(AdaptiveGammaError):
    """An HTTP exchange that gave no whole answer. ``reason`` is a short stable word."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason}: {detail}" if detail else reason)


class ScrapeError(AdaptiveGammaError):
    """An engine page that gave no reading. ``reason`` is a short stable word used as a metric label."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason}: {detail}" if detail else reason)


class DiscoveryError(AdaptiveGammaError):
    """Where replicas are found gave no answer that can be used. ``reason`` is a short stable word, a metric label."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason}: {detail}" if detail else reason)


class ActuatorError(AdaptiveGammaError):
    """An engine did not take a change of gamma, and is as it was. ``reason`` is a short stable word."""

    def __init__(self, reason: str, detail: str = "") -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason}: {detail}" if detail else reason)


class UpstreamError(AdaptiveGammaError):
    """An exchange with an engine that failed."""


class ConnectError(UpstreamError):
    """No connection could be made; not one byte of the request was sent."""


class UpstreamTimeout(UpstreamError):
    """The engine sent nothing for longer than the limit allows."""


class ProtocolError(UpstreamError):
    """The engine closed in the middle of an exchange, or its bytes are not HTTP."""


def shortened(text: str, most: int = 200) -> str:
    """At most so many characters of what somebody else wrote: a name, a key or a path may have no end."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that looks most like ``word``, or None when nothing comes near."""
    close = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return close[0] if close else None

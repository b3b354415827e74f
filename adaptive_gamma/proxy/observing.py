"""Requests as they are observed: their times and tokens, kept in memory and in a log for the command ``report``."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from adaptive_gamma.config.settings import ObserveSettings
from adaptive_gamma.errors import ConfigurationError
from adaptive_gamma.fleet.exposition import Family
from adaptive_gamma.observe import LineLog, Observation, Place
from adaptive_gamma.routing import Alternative, Counterfactual

if TYPE_CHECKING:
    from adaptive_gamma.proxy.decision_log import DecisionRecord

__all__ = ["ObservationKeeper", "Observed"]

_TAIL = 16 * 1024
"""The end of an answer that is looked at: the count of tokens stands before an engine's report of each single step."""
_TOKENS = re.compile(rb'"(?:completion_tokens|output_tokens|tokens_predicted)"\s*:\s*(\d{1,9})')
_CHOICES = ("sent", "decided")


class Observed:
    """One try of a request that is observed, from the decision to the end of its answer; hears the answer's body.

    Args:
        counterfactual: the two places, priced.
        prompt_tokens: the length of the prompt, estimated.
        keeper: gets the observation.
        clock: monotonic seconds.
    """

    __slots__ = (
        "_began",
        "_clock",
        "_keeper",
        "_tail",
        "counterfactual",
        "first_byte_s",
        "output_tokens",
        "prompt_tokens",
        "stream",
    )

    def __init__(
        self,
        counterfactual: Counterfactual,
        prompt_tokens: int | None,
        keeper: ObservationKeeper,
        clock: Callable[[], float],
    ) -> None:
        self.counterfactual = counterfactual
        self.prompt_tokens = prompt_tokens
        self.stream = False
        self.first_byte_s: float | None = None
        self.output_tokens: int | None = None
        self._keeper = keeper
        self._clock = clock
        self._began = clock()
        self._tail = bytearray()

    @property
    def seconds(self) -> float:
        """Since the decision."""
        return max(self._clock() - self._began, 0.0)

    def ended(self, record: DecisionRecord) -> None:
        """The try has ended as the record says. The answer may be told to be over only after that."""
        tail, self._tail = self._tail, bytearray()
        if record.outcome == "ok":
            # A quote inside a JSON string has a backslash before it, so that no text of an answer looks like this.
            counts = _TOKENS.findall(tail)
            self.output_tokens = int(counts[-1]) if counts else None
        self._keeper.ended(record)

    def feed(self, pieces: list[bytes]) -> None:
        if self.first_byte_s is None:
            self.first_byte_s = self.seconds
        tail = self._tail
        for piece in pieces:
            tail += piece
        if len(tail) > 2 * _TAIL:
            del tail[:-_TAIL]

    def finish(self, *, whole: bool) -> None:
        """All there is to know is known when the record is closed."""

    def as_dict(self) -> dict[str, Any]:
        """The two places as ``/decisions`` shows them."""
        places = self.counterfactual
        return {"decided": places.decided._asdict(), "sent": places.sent._asdict()}


class ObservationKeeper:
    """Keeps the last ``keep`` observations, and writes all of them to the log where one is named.

    Args:
        settings: may be replaced while serving.
        source: names where the settings come from.

    Raises:
        ConfigurationError: the log cannot be opened.
    """

    def __init__(self, settings: ObserveSettings, source: str = "settings") -> None:
        self._log = _opened(settings, source)
        self._kept: deque[tuple[float, bytes]] = deque(maxlen=settings.keep)
        self._former: list[LineLog] = []
        """Logs before this one, for what they have counted; each may still be written."""
        self._requests: dict[tuple[str, str], int] = {}
        self._predicted: dict[tuple[str, str], float] = {}

    def prepared(self, settings: ObserveSettings, source: str) -> LineLog | None:
        """The log that other settings name, open; pass it to ``take`` then. Raises ConfigurationError."""
        if self._log is not None and settings.log is not None and self._log.path == Path(settings.log):
            return self._log
        return _opened(settings, source)

    def take(self, settings: ObserveSettings, log: LineLog | None) -> None:
        """Go on with other settings. What was handed to another log before is still written to that."""
        before, self._log = self._log, log
        if before is not None and before is not log:
            before.finish()
            self._former.append(before)
        if log is not None:
            log.resize(max_bytes=settings.max_bytes, files=settings.files)
        if settings.keep != self._kept.maxlen:
            self._kept = deque(self._kept, maxlen=settings.keep)

    def ended(self, record: DecisionRecord) -> None:
        """A try that was observed has ended; its outcome is in the record."""
        observed = record.observed
        assert observed is not None
        decided, places = record.decided, observed.counterfactual
        observation = Observation(
            record.time_s,
            record.request_id.decode("ascii"),
            record.path,
            decided.request_class,
            decided.reason,
            _place(places.decided),
            _place(places.sent),
            observed.prompt_tokens,
            places.output_tokens,
            record.outcome or "",
            record.status,
            observed.stream,
            observed.first_byte_s,
            observed.seconds,
            observed.output_tokens,
        )
        line = observation.line()
        self._kept.append((record.time_s, line))
        if self._log is not None:
            self._log.add(line)
        name = decided.request_class
        elsewhere = "yes" if places.decided.replica != places.sent.replica else "no"
        self._requests[name, elsewhere] = self._requests.get((name, elsewhere), 0) + 1
        for choice, place in zip(_CHOICES, (places.sent, places.decided), strict=True):
            self._predicted[name, choice] = self._predicted.get((name, choice), 0.0) + place.tpot_s

    def lines(self, since: float) -> Iterator[bytes]:
        """The observations kept that were decided at ``since`` (Unix seconds) or later, in the order they ended."""
        return (line for time_s, line in list(self._kept) if time_s >= since)

    def status(self) -> dict[str, Any]:
        """``observations`` of ``/status``."""
        log = self._log
        return {
            "kept": len(self._kept),
            "log": None
            if log is None
            else {
                "path": str(log.path),
                "written": log.written,
                "waiting": log.waiting,
                "dropped": log.dropped,
                "errors": log.errors,
            },
        }

    def summary(self) -> dict[str, Any] | None:
        """All requests observed since the start: how many would have gone elsewhere, and their mean predicted time per
        output token where they went and where they would have gone, in seconds. None before there is one."""
        requests = sum(self._requests.values())
        if not requests:
            return None
        seconds = dict.fromkeys(_CHOICES, 0.0)
        for (_, choice), predicted in self._predicted.items():
            seconds[choice] += predicted
        return {
            "requests": requests,
            "elsewhere": sum(count for (_, elsewhere), count in self._requests.items() if elsewhere == "yes"),
            **{f"{choice}_tpot_s": round(total / requests, 6) for choice, total in seconds.items()},
        }

    def families(self) -> Iterator[Family]:
        """What the metrics page says of it."""
        yield Family(
            "adaptive_gamma_observed_requests",
            "counter",
            "Requests observed, by class and whether the decision would have sent them elsewhere.",
            ("class", "elsewhere"),
            [("_total", key, count) for key, count in list(self._requests.items())],
        )
        yield Family(
            "adaptive_gamma_observed_predicted_tpot_seconds",
            "counter",
            "Predicted time per output token summed over requests observed: where they went (sent) and where the "
            "decision would have sent them (decided).",
            ("class", "choice"),
            [("_total", key, seconds) for key, seconds in list(self._predicted.items())],
        )
        logs = [*self._former, *([] if self._log is None else [self._log])]
        written, dropped, errors = (sum(counts) for counts in zip((0, 0, 0), *map(_counts, logs), strict=True))
        for name, text, value in (
            ("lines_written", "Observations written to the log.", written),
            ("lines_dropped", "Observations that the log has lost, as it could not be written for too long.", dropped),
            ("log_errors", "Failed attempts to write to the log.", errors),
        ):
            yield Family(f"adaptive_gamma_observe_{name}", "counter", text, (), [("_total", (), value)])

    def close(self) -> None:
        """Write what is waiting; at most for some seconds."""
        for log in (*self._former, *([] if self._log is None else [self._log])):
            log.close()


def _opened(settings: ObserveSettings, source: str) -> LineLog | None:
    if settings.log is None:
        return None
    try:
        return LineLog(Path(settings.log), max_bytes=settings.max_bytes, files=settings.files)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigurationError(source, "observe.log", f"cannot be written: {reason}") from error


def _counts(log: LineLog) -> list[int]:
    return [log.written, log.dropped, log.errors]


def _place(at: Alternative) -> Place:
    return Place(at.replica, at.pool, at.gamma, at.load, at.tpot_s, at.cost_s, at.prefill_s)

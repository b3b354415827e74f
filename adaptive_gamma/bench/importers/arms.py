"""Which gamma a row was measured with: as the user says, the file states, the engine counted, or it is named.

A missing key never decides. A vLLM server that drafted nothing in a run leaves the same keys out as a server without
a drafter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from adaptive_gamma.bench.importers.finding import Findings
from adaptive_gamma.bench.importers.raw import RawRow, Stated
from adaptive_gamma.bench.row import SpeculationSeen, SweepRow
from adaptive_gamma.errors import ConfigurationError, SweepError, nearest
from adaptive_gamma.roofline import draft_length_varies

__all__ = ["Arm", "ArmBook", "gamma_in_name", "parse_arms"]

MOST_GAMMA = 64


@dataclass(frozen=True, slots=True)
class Arm:
    """What one arm of a sweep ran: gamma 0 and not speculative is plain, gamma 0 and speculative is K=0."""

    gamma: int
    speculative: bool


def parse_arms(texts: Iterable[str], option: str = "--arm") -> dict[str, Arm]:
    """``LABEL=plain`` (an engine without a drafter) or ``LABEL=N`` (one that has it, N draft tokens), as a mapping.

    LABEL is an arm's label, a file's name with or without its ending, or a folder's name; ``*`` and ``?`` are
    wildcards. Raises ConfigurationError for anything else.
    """
    arms: dict[str, Arm] = {}
    for text in texts:
        label, separator, value = text.rpartition("=")
        value = value.strip().lower()
        if not separator or not label.strip():
            raise ConfigurationError(option, "", f"expected LABEL=plain or LABEL=GAMMA, not {text!r}")
        if value == "plain":
            arm = Arm(0, False)
        elif value.isascii() and value.isdigit() and len(value) <= 2 and int(value) <= MOST_GAMMA:
            arm = Arm(int(value), True)
        else:
            raise ConfigurationError(option, label, f"expected 'plain' or a gamma in 0..{MOST_GAMMA}, not {value!r}")
        if arms.setdefault(label.strip(), arm) != arm:
            raise ConfigurationError(option, label, "is given twice, with different gammas")
    return arms


class ArmBook:
    """Settles the arm of each row, and remembers which of the user's labels were used."""

    def __init__(self, arms: Mapping[str, Arm], findings: Findings) -> None:
        self.arms = arms
        self.findings = findings
        self.used: set[str] = set()
        self.names_seen: set[str] = set()

    def settle(self, raw: RawRow, names: Sequence[str]) -> SweepRow:
        """The row with gamma and speculative filled in where anything says them.

        ``names`` are the file's and its folders' names, as far as the user gave them: what may be guessed from. The
        user's own arms also fit the folder a file lies in. Raises SweepError where two sources contradict each other.
        """
        row = raw.row
        labels = [name for name in (row.arm, *names) if name]
        self.names_seen.update(labels)
        folder = Path(row.source.file).parent.name
        given = self._given(row, [*labels, folder])
        counted = _counted(row.acceptance)
        if given is not None:
            chosen: Stated | None = Stated(given.gamma, given.speculative, "the arm given by the user")
        elif raw.settled:
            return row
        else:
            chosen = raw.stated or (Stated(counted, True, "the draft counters") if counted is not None else None)
        drafted = _drafted(row.acceptance)
        if given is None and (chosen is None or row.step is None):
            # A step's own tokens tell what it drafted; a name tells what the server was set to.
            named = self._named(row, labels)
            if chosen is None:
                chosen = self._believed(row, named)
            elif named is not None:
                _refuse_contradiction(row, named, chosen)
        if chosen is None:
            problem = "is not in the file; say it with --arm LABEL=GAMMA or LABEL=plain"
            if drafted:
                problem = f"is not fixed: the engine drafted {_per_draft(row.acceptance)}, and no setting is recorded"
            self.findings.note(row.source, problem, "gamma")
            return replace(row, speculative=True if drafted else None)
        if drafted and chosen.gamma == 0:
            raise SweepError(
                str(row.source), "gamma", f"{chosen.where} says that nothing is drafted, but the engine counted drafts"
            )
        if counted is not None and given is None and chosen.gamma is not None and counted < chosen.gamma:
            # A setting is the most that a schedule may draft; the counters tell what it drafted.
            self.findings.note(row.source, f"{chosen.where} says {chosen.gamma}, each draft had {counted}", "gamma")
            chosen = Stated(counted, True, "the draft counters")
        if counted is not None and chosen.gamma != counted:
            raise SweepError(
                str(row.source), "gamma", f"{chosen.where} says {chosen.gamma}, but the engine drafted {counted} a step"
            )
        return replace(row, gamma=chosen.gamma, speculative=True if drafted else chosen.speculative)

    def check_all_used(self) -> None:
        """Raises ConfigurationError for a label of the user that fits no row."""
        for label in self.arms:
            if label not in self.used:
                seen = sorted(self.names_seen)
                shown = ", ".join(seen[:12]) + (", ..." if len(seen) > 12 else "")
                raise ConfigurationError("--arm", label, f"fits no row; labels are {shown}", nearest(label, seen))

    def _given(self, row: SweepRow, labels: Sequence[str]) -> Arm | None:
        fitting = {label: arm for label, arm in self.arms.items() if any(fnmatchcase(name, label) for name in labels)}
        self.used.update(fitting)
        if len(set(fitting.values())) > 1:
            raise SweepError(str(row.source), "gamma", f"several arms fit: {', '.join(fitting)}")
        return next(iter(fitting.values()), None)

    def _named(self, row: SweepRow, labels: Sequence[str]) -> Stated | None:
        """What the names say. Raises SweepError where two of them differ."""
        found: Stated | None = None
        for name in labels:
            stated = gamma_in_name(name, row.model)
            if stated is None:
                continue
            if found is not None:
                _refuse_contradiction(row, stated, found)
            if found is None or found.speculative is None:
                found = stated
        return found

    def _believed(self, row: SweepRow, named: Stated | None) -> Stated | None:
        if named is None:
            return None
        seen = row.acceptance
        if seen is not None and seen.drafts and seen.draft_tokens and named.gamma:
            drafted = seen.draft_tokens / seen.drafts
            if drafted > named.gamma * _COUNTED_AT_ONCE:
                raise SweepError(
                    str(row.source),
                    "gamma",
                    f"{named.where} says gamma {named.gamma}, but the engine drafted {drafted:.2f} tokens a step",
                )
        self.findings.note(row.source, f"is taken from {named.where}", "gamma")
        return named


_COUNTED_AT_ONCE = 1.01
"""Drafts and their tokens are read or rounded one after the other: that much more than gamma is no contradiction."""
_GAMMA_NAME = re.compile(
    r"(?<![a-z0-9])(?:gamma|num[_-]?spec(?:ulative)?[_-]?tokens|spec(?:ulative)?[_-]num[_-]steps|spec[_-]?tokens"
    r"|draft[_-]?tokens|nst)[=_\- ]{0,2}(\d{1,2})(?![a-z0-9.])"
    r"|(?<![a-z0-9])(?:spec|(?<!top[_-])k)=?(\d{1,2})(?![a-z0-9.])"
)
_PLAIN_NAME = re.compile(
    r"(?<![a-z0-9])(?:plain|no[_-]?spec(?:ulation)?|non[_-]?spec(?:ulative)?|spec[_-]?off)(?![a-z0-9])"
)


def gamma_in_name(name: str, model: str | None = None) -> Stated | None:
    """The arm that a label or file name says in so many words (``k5``, ``gamma=3``, ``plain``), if it says one.

    ``spec-1`` is no such word: it numbers replicas as often as draft tokens. The name of ``model`` is taken out first:
    benchmarks write it into file names, and some models are called K2.
    """
    lowered = _without_model(name.lower(), model)
    gammas = {int(strong or weak) for strong, weak in _GAMMA_NAME.findall(lowered)}
    plain = _PLAIN_NAME.search(lowered) is not None
    where = f"the name {name!r}"
    if plain:
        return None if gammas - {0} else Stated(0, False, where)
    if len(gammas) != 1 or (gamma := gammas.pop()) > MOST_GAMMA:
        return None
    return Stated(gamma, True if gamma > 0 else None, where)


def _without_model(name: str, model: str | None) -> str:
    """The lower-case name without that of the model, nor the first words of it (``kimi-k2`` of Kimi-K2-Instruct)."""
    if model is None:
        return name
    words = [re.escape(word) for word in re.split(r"[^a-z0-9.]+", _base_name(model).lower()) if word]
    for count in range(len(words), min(len(words), 2) - 1, -1):
        if count:
            called = r"[^a-z0-9.]+".join(words[:count])
            name = re.sub(rf"(?<![a-z0-9]){called}(?![a-z0-9])", " ", name)
    return name


def _base_name(model: str) -> str:
    return re.split(r"[/\\]", model.rstrip("/\\"))[-1]


def _refuse_contradiction(row: SweepRow, one: Stated, other: Stated) -> None:
    if None in (one.gamma, other.gamma):
        return
    same_engine = None in (one.speculative, other.speculative) or one.speculative == other.speculative
    if one.gamma == other.gamma and (same_engine or one.gamma != 0):
        return
    raise SweepError(str(row.source), "gamma", f"{one.where} says {_in_words(one)}, {other.where} {_in_words(other)}")


def _in_words(stated: Stated) -> str:
    if stated.gamma == 0 and stated.speculative is False:
        return "plain"
    return f"gamma {stated.gamma}"


def _drafted(seen: SpeculationSeen | None) -> bool:
    return seen is not None and bool(seen.drafts or seen.draft_tokens)


def _per_draft(seen: SpeculationSeen | None) -> str:
    if seen is None or not seen.drafts or seen.draft_tokens is None:
        return "tokens"
    return f"{seen.draft_tokens / seen.drafts:.2f} tokens a step"


def _counted(seen: SpeculationSeen | None) -> int | None:
    """The gamma that all drafts had, by the counters; None where they do not tell or drafts differed in length."""
    if seen is None or seen.per_position is None or not seen.drafts or seen.draft_tokens is None:
        return None
    positions = len(seen.per_position)
    fixed = draft_length_varies(seen.drafts, seen.draft_tokens, positions) is False
    return positions if fixed and seen.draft_tokens <= seen.drafts * positions else None

"""A diagnosis for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from adaptive_gamma.doctor.diagnosis import Diagnosis
from adaptive_gamma.doctor.finding import Finding

__all__ = ["diagnosis_text"]

_WIDTH = 100
_MARKS = {"problem": "PROBLEM", "warning": "WARNING", "note": "NOTE"}


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """The whole text; plain, of some hundred columns, with long evidence cut by nothing."""
    return "\n".join(_lines(diagnosis)) + "\n"


def _lines(diagnosis: Diagnosis) -> Iterator[str]:
    for each in diagnosis.unreadable:
        yield from _wrapped(f"COULD NOT LOOK  {each.given}: {each.reason}", "  ")
    if diagnosis.unreadable:
        yield ""
    for finding in diagnosis.findings:
        yield from _finding(finding)
        yield ""
    if diagnosis.unseen:
        yield "Not looked at:"
        alike: dict[tuple[str, str], list[str]] = {}
        for unseen in diagnosis.unseen:
            alike.setdefault((unseen.subject, unseen.why), []).append(unseen.check)
        for (subject, why), checks in alike.items():
            yield from _wrapped(f"- {', '.join(checks)}: {why} [{subject}]", "  ")
        yield ""
    if diagnosis.seen:
        yield "Looked over:"
        for line in diagnosis.seen:
            yield from _wrapped(f"- {line}", "  ")
        for why, names in diagnosis.idle.items():
            yield from _wrapped(f"- did not run: {', '.join(names)}: {why}", "  ")
        yield ""
    yield _verdict(diagnosis)


def _finding(finding: Finding) -> Iterator[str]:
    yield from _wrapped(f"{_MARKS[finding.severity]}  {finding.title}  [{finding.code}]", "  ")
    yield from _wrapped(f"  {finding.subject}", "    ")
    for evidence in finding.evidence:
        yield from _wrapped(f"  {evidence.where}: {evidence.text}", "      ")
    yield from _wrapped(f"  cause: {finding.cause}", "      ")
    if finding.cost is not None:
        source = "" if finding.cost.source == "here" else f" ({finding.cost.source})"
        yield from _wrapped(f"  cost: {finding.cost.text}{source}", "      ")
    if finding.fix is not None:
        yield from _wrapped(f"  fix: {finding.fix.text}", "      ")
        for flag in finding.fix.flags:
            yield f"      {flag}"


def _verdict(diagnosis: Diagnosis) -> str:
    counts = {mark: sum(finding.severity == mark for finding in diagnosis.findings) for mark in _MARKS}
    looked = len(diagnosis.looked_at)
    what = "1 input" if looked == 1 else f"{looked} inputs"
    if diagnosis.verdict == "could_not_look":
        return "Could not look." if not looked else f"Nothing found in {what}, and not all could be looked at."
    if diagnosis.verdict == "clean":
        notes = f" ({_many(counts['note'], 'note')})" if counts["note"] else ""
        ran = f"{diagnosis.ran} of {_many(diagnosis.checks, 'check')}"
        return f"Clean: {ran} ran over {what} and found nothing{notes}."
    parts = [_many(count, mark) for mark, count in counts.items() if count]
    return f"Found in {what}: {', '.join(parts)}."


def _many(count: int, word: str) -> str:
    return f"{count} {word}" + ("" if count == 1 else "s")


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False) or [""]

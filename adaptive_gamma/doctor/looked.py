"""What a verdict rests on: over what, for how long, and which checks had nothing to look at. Pure."""

from __future__ import annotations

from adaptive_gamma.doctor.case import Case, Replica
from adaptive_gamma.doctor.checks import CHECKS, Check
from adaptive_gamma.doctor.evidence import ServerEvidence

__all__ = ["idle_checks", "looked_over"]

_LACKS = {
    "log": "no start-up log was given (--log)",
    "server": "no running server was given (--url)",
    "bench": "no benchmark was given (--bench)",
    "plain": "there is no plain server or log to compare with (--plain-url, --plain-log)",
}


def looked_over(case: Case) -> tuple[str, ...]:
    """A line for each thing that was looked at: what it is, and how much was seen of it."""
    lines = [line for replica in case.everyone for line in _of_replica(replica, compared=replica is case.plain)]
    if case.arms:
        files = dict.fromkeys(arm.where.partition(":")[0] for arm in case.arms)
        lines.append(f"benchmarks: {_many(len(case.arms), 'run')} in {_many(len(files), 'file')}")
    return tuple(lines)


def idle_checks(case: Case, checks: tuple[Check, ...] = CHECKS) -> dict[str, tuple[str, ...]]:
    """The names of checks that nothing was given for, by what is lacking."""
    given = {
        "log": any(replica.start is not None for replica in case.everyone),
        "server": any(replica.server is not None for replica in case.everyone),
        "bench": bool(case.arms or case.remarks),
        "plain": case.plain is not None,
    }
    found: dict[str, tuple[str, ...]] = {}
    for check in checks:
        if check.needs is not None and not given[check.needs]:
            why = _LACKS[check.needs]
            found[why] = (*found.get(why, ()), check.name)
    return found


def _of_replica(replica: Replica, *, compared: bool) -> list[str]:
    role = ", compared with" if compared else ""
    kind = {True: "speculative", False: "plain", None: "whether it speculates is not known"}[
        None if replica.speculative is None else replica.speculative.value
    ]
    if replica.gamma is not None and replica.is_speculative:
        kind += f", gamma {replica.gamma.value}"
    engine = replica.engine or "engine not known"
    if replica.version is not None:
        engine += " " + ".".join(map(str, replica.version.value))
    lines = []
    if replica.server is not None:
        lines.append(f"{replica.server.url}: {engine}, {kind}{role}; {_watched(replica.server)}")
    if replica.start is not None:
        starts = f"the last of {_many(replica.starts_seen, 'start')}" if replica.starts_seen > 1 else "one start"
        lines.append(f"{replica.start.file}: log of {engine}, {kind}{role}; {starts}")
    return lines


def _watched(server: ServerEvidence) -> str:
    if server.last is None:
        return "its metrics were not read"
    reads = "metrics read once" if server.looks == 1 else f"metrics read {server.looks} times in {server.seconds:.1f} s"
    if server.most_running is None:
        return f"{reads}, the load not known"
    return f"{reads}, at most {_many(server.most_running, 'request')} running"


def _many(count: int, word: str) -> str:
    return f"{count} {word}" + ("" if count == 1 else "s")

"""Joins what was gathered into a case: which log is of which server, and which server is the plain one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from adaptive_gamma.doctor.case import Case, Replica
from adaptive_gamma.doctor.evidence import ServerEvidence
from adaptive_gamma.doctor.finding import Unseen
from adaptive_gamma.doctor.gather.bench import BenchEvidence
from adaptive_gamma.doctor.gather.log_file import LogEvidence

__all__ = ["Gathered", "assemble"]


@dataclass(frozen=True, slots=True)
class Gathered:
    """Everything that could be read."""

    servers: Sequence[ServerEvidence] = ()
    logs: Sequence[LogEvidence] = ()
    plain_server: ServerEvidence | None = None
    plain_log: LogEvidence | None = None
    benches: BenchEvidence = field(default_factory=BenchEvidence)
    pair: bool = False
    """As many logs as servers were given, so they are pairs in that order."""


def assemble(
    gathered: Gathered, *, batch: int | None = None, gamma: int | None = None
) -> tuple[Case, tuple[Unseen, ...]]:
    """The case, and what could not be joined."""
    unseen: list[Unseen] = []
    replicas: list[Replica] = []
    if gathered.pair:
        for server, log in zip(gathered.servers, gathered.logs, strict=True):
            joined = _joined(server, log)
            if isinstance(joined, Unseen):
                unseen.append(joined)
                replicas += [_of_server(server), _of_log(log)]
            else:
                replicas.append(joined)
    else:
        replicas += [_of_server(server) for server in gathered.servers]
        replicas += [_of_log(log) for log in gathered.logs]
        if gathered.servers and gathered.logs:
            why = "logs and servers are judged apart: give one --log for each --url, in the same order, to join them"
            unseen.append(Unseen("pairing", ", ".join(log.file for log in gathered.logs), why))
    plain = _plain(gathered, unseen)
    if plain is None:
        plain, replicas = _told_apart(replicas)
    different = _not_like(replicas, plain) if plain is not None else None
    if plain is not None and different is not None:
        unseen.append(Unseen("comparison", plain.name, different))
        replicas, plain = [*replicas, plain], None
    looked = [server.url for server in gathered.servers] + [log.file for log in gathered.logs]
    looked += [each.url for each in (gathered.plain_server,) if each is not None]
    looked += [each.file for each in (gathered.plain_log,) if each is not None]
    case = Case(
        tuple(replicas),
        plain,
        gathered.benches.arms,
        gathered.benches.remarks,
        batch,
        gamma,
        tuple(dict.fromkeys([*looked, *gathered.benches.files])),
    )
    return case, tuple(unseen)


def _of_server(server: ServerEvidence) -> Replica:
    return Replica(server.url, server=server)


def _of_log(log: LogEvidence) -> Replica:
    return Replica(log.file, log.starts[-1], log.starts[:-1], max(log.starts_seen, 1))


def _joined(server: ServerEvidence, log: LogEvidence) -> Replica | Unseen:
    by_log = _of_log(log)
    ours, theirs = server.version, by_log.version
    if ours is not None and theirs is not None and ours.value != theirs.value:
        why = f"it is of version {_text(theirs.value)}, and {server.url} of {_text(ours.value)}: they are judged apart"
        return Unseen("pairing", log.file, why)
    if server.engine is not None and server.engine != log.engine:
        return Unseen("pairing", log.file, f"it is a log of {log.engine}, and {server.url} is {server.engine}")
    return replace(by_log, name=server.url, server=server)


def _text(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))


def _plain(gathered: Gathered, unseen: list[Unseen]) -> Replica | None:
    server, log = gathered.plain_server, gathered.plain_log
    if server is not None and log is not None:
        joined = _joined(server, log)
        if isinstance(joined, Replica):
            return joined
        unseen.append(joined)
    if server is not None:
        return _of_server(server)
    return _of_log(log) if log is not None else None


def _told_apart(replicas: Sequence[Replica]) -> tuple[Replica | None, list[Replica]]:
    """The one plain server among speculative ones, where nobody said which it is; of several none."""
    plain = [replica for replica in replicas if replica.is_plain]
    with_log = [replica for replica in plain if replica.start is not None]
    with_server = [replica for replica in plain if replica.server is not None]
    speculative = any(replica.is_speculative for replica in replicas)
    if not speculative or len(with_log) > 1 or len(with_server) > 1 or not plain:
        return None, list(replicas)
    rest = [replica for replica in replicas if replica not in plain]
    if len(plain) == 1:
        return plain[0], rest
    # A plain server and the log of a plain server that nobody joined: together they are what is compared with.
    return replace(with_log[0], name=with_server[0].name, server=with_server[0].server), rest


def _not_like(replicas: Sequence[Replica], plain: Replica) -> str | None:
    """Why a server is nothing to compare with."""
    if plain.is_speculative:
        return "it is called plain and speculates, so nothing is compared with it"
    for replica in replicas:
        if replica.start is None or plain.start is None or not replica.is_speculative:
            continue
        ours, theirs = replica.model, plain.model
        if ours is not None and theirs is not None and _last(ours.value) != _last(theirs.value):
            return f"it serves {theirs.value}, and {replica.name} serves {ours.value}: they are not compared"
    return None


def _last(model: str) -> str:
    return model.rstrip("/").rsplit("/", 1)[-1].lower()

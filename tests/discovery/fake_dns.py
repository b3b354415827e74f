"""A name server over UDP on this machine that says what the test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

__all__ = ["FakeDns", "fake_dns"]


class FakeDns(asyncio.DatagramProtocol):
    """Records by name and kind; a name without any is NXDOMAIN, one with other kinds only gives an empty answer."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], tuple[int, tuple[str, ...]]] = {}
        """(name, kind) -> (time to live, texts of records)."""
        self.faults: dict[tuple[str, str], str] = {}
        """(name, kind) -> ``silent``, ``garbage`` or the name of a response code."""
        self.asked: list[tuple[str, str]] = []
        self.address = ""
        self.transport: asyncio.DatagramTransport | None = None

    def set(self, name: str, kind: str, *texts: str, ttl: int = 60) -> None:
        """The records of a name, in place of those before; none takes the name's kind away."""
        self.records[name, kind] = (ttl, texts)
        if not texts:
            del self.records[name, kind]

    def count(self, name: str, kind: str) -> int:
        return self.asked.count((name, kind))

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        question = query.question[0]
        name, kind = question.name.to_text().removesuffix("."), dns.rdatatype.to_text(question.rdtype)
        self.asked.append((name, kind))
        fault = self.faults.get((name, kind))
        if fault == "silent":
            return
        assert self.transport is not None
        if fault == "garbage":
            self.transport.sendto(data[:2] + b"\xff" * 20, addr)
            return
        answer = dns.message.make_response(query)
        if fault is not None:
            answer.set_rcode(dns.rcode.from_text(fault))
        elif (name, "CNAME") in self.records:
            ttl, (alias,) = self.records[name, "CNAME"]
            answer.answer.append(dns.rrset.from_text(f"{name}.", ttl, "IN", "CNAME", f"{alias}."))
            self._add(answer, alias, kind)
        elif all(known != name for known, _ in self.records):
            answer.set_rcode(dns.rcode.NXDOMAIN)
        else:
            self._add(answer, name, kind)
        self.transport.sendto(answer.to_wire(), addr)

    def _add(self, answer: dns.message.Message, name: str, kind: str) -> None:
        if (name, kind) in self.records:
            ttl, texts = self.records[name, kind]
            answer.answer.append(dns.rrset.from_text(f"{name}.", ttl, "IN", kind, *texts))


@asynccontextmanager
async def fake_dns() -> AsyncIterator[FakeDns]:
    """A server on a free port, until the block ends."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(FakeDns, local_addr=("127.0.0.1", 0))
    server.transport = transport
    host, port = transport.get_extra_info("sockname")[:2]
    server.address = f"{host}:{port}"
    try:
        yield server
    finally:
        transport.close()

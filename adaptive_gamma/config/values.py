"""Checks of single values. Each raises ValueError that says in plain words what is expected."""

from __future__ import annotations

import ipaddress
import re
from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = [
    "api_server",
    "checked_gamma",
    "dns_name",
    "dns_server",
    "engine_path",
    "engine_url",
    "header_name",
    "host_port",
    "is_reached_at",
    "passed_path",
    "schedule_file",
    "secret_token",
    "service_port",
    "settable_gamma",
]

MOST_GAMMA = 64
MOST_BATCH = 1_000_000
_GAMMA = f"expected auto, a number 0..{MOST_GAMMA}, or a schedule [[first, last, gamma], ...]"
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_FOUR_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+){3}")
_PORT = re.compile(r"[0-9]{1,5}")
_PORT_NAME = re.compile(r"(?=.*[a-z])[a-z0-9](?:[a-z0-9-]{0,13}[a-z0-9])?")
_FRAMING = frozenset(
    {
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "cookie",
        "expect",
        "host",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "x-forwarded-for",
        "x-request-id",
    }
)


def secret_token(value: str) -> str:
    """A secret for a header, without the white space around it that files of secrets end in. Never echoed."""
    stripped = value.strip()
    if not _VISIBLE.fullmatch(stripped):
        raise ValueError("expected visible ASCII characters only, without spaces or line breaks inside")
    return stripped


def _is_address(kind: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address], host: str) -> bool:
    try:
        kind(host)
    except ValueError:
        return False
    return True


def _check_host(host: str) -> None:
    if ":" in host:
        if "%" in host or not _is_address(ipaddress.IPv6Address, host):
            raise ValueError("expected an IPv6 address before the port")
        return
    if _FOUR_NUMBERS.fullmatch(host) and not _is_address(ipaddress.IPv4Address, host):
        raise ValueError("expected an IPv4 address of four numbers 0..255")
    labels = host.removesuffix(".").split(".")
    if any(len(label) > 63 for label in labels):
        raise ValueError("a part of the host name is over 63 characters")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError("the host is no host name (ASCII letters, digits, '-', '_' and '.') and no address")


def host_port(value: str) -> str:
    """An address to listen on; port 0 takes a free one."""
    host, _, port = value.rpartition(":")
    if not host or not _PORT.fullmatch(port) or int(port) > 65_535:
        raise ValueError("expected host:port")
    _check_host(host[1:-1] if host.startswith("[") and host.endswith("]") else host)
    return value


def is_reached_at(address: str, url: str) -> bool:
    """Whether what listens at ``host:port`` is what an engine's URL leads to, as far as names tell it."""
    host, _, port = address.rpartition(":")
    parts = urlsplit(url)
    if int(port) != (parts.port or {"https": 443}.get(parts.scheme, 80)):
        return False
    ours, theirs = _place(host.removeprefix("[").removesuffix("]")), _place(parts.hostname or "")
    return ours == theirs or {ours, theirs} == {"every address", "this machine"}


def _place(host: str) -> str:
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        name = host.lower().removesuffix(".")
        return "this machine" if name == "localhost" else name
    return "every address" if found.is_unspecified else "this machine" if found.is_loopback else str(found)


def engine_url(value: str) -> str:
    """Scheme, host and port of an engine, without a slash at the end."""
    if not _VISIBLE.fullmatch(value):
        raise ValueError("expected http://host:port or https://host:port in visible ASCII characters")
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected http://host:port or https://host:port")
    if "@" in parts.netloc:
        raise ValueError("credentials do not belong in the url; use engine_api_key")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("expected only scheme, host and port")
    if "[" in parts.netloc and ":" not in parts.hostname:
        raise ValueError("expected an IPv6 address in the brackets")
    _check_host(parts.hostname)
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0 or parts.netloc.endswith(":"):
        raise ValueError("the port must be a number 1..65535")
    try:
        # The client that scrapes decodes names in xn-- form, and fails at each request where it cannot.
        parts.hostname.encode("ascii").decode("idna")
    except UnicodeError:
        raise ValueError("a part of the host name starts with xn-- and encodes nothing") from None
    return f"{parts.scheme}://{parts.netloc}"


def checked_gamma(value: Any) -> Any:
    """The setting ``gamma`` of a replica, before its type is known."""
    if isinstance(value, bool):
        raise ValueError(f"{_GAMMA} (a bare off or no is false in YAML; no speculation is 0)")
    if value == "auto":
        return value
    if isinstance(value, int):
        if not 0 <= value <= MOST_GAMMA:
            raise ValueError(_GAMMA)
        return value
    if not isinstance(value, list | tuple):
        raise ValueError(_GAMMA)
    return _schedule(value)


def _schedule(value: list[Any] | tuple[Any, ...]) -> list[tuple[int, int, int]]:
    ranges: list[tuple[int, int, int]] = []
    for part in value:
        if not isinstance(part, list | tuple) or len(part) != 3:
            raise ValueError(_GAMMA)
        if any(isinstance(number, bool) or not isinstance(number, int) for number in part):
            raise ValueError(f"{_GAMMA} of whole numbers")
        first, last, gamma = part
        if max(first, last) > MOST_BATCH:
            raise ValueError(f"no batch of the schedule may be over {MOST_BATCH}")
        ranges.append((first, last, gamma))
    ordered = sorted(ranges)
    if not ordered or ordered[0][0] != 1:
        raise ValueError("the first range of the schedule must start at 1")
    before = 0
    for first, last, gamma in ordered:
        if first <= before:
            raise ValueError(f"the ranges of the schedule overlap at {first}")
        if last < first:
            raise ValueError(f"the range of the schedule that starts at {first} is empty")
        if not 0 <= gamma <= MOST_GAMMA:
            raise ValueError(f"every gamma of the schedule must be 0..{MOST_GAMMA}")
        before = last
    return ranges


def settable_gamma(value: str, engine: object, gamma: object) -> str:
    """The setting ``set_gamma`` of a replica whose ``engine`` and ``gamma`` are known, where they are right."""
    if value == "none":
        return value
    if gamma == 0:
        raise ValueError("a replica with gamma 0 has no drafter; expected none")
    if value == "vllm_schedule":
        if engine is not None and engine != "vllm":
            raise ValueError(f"{engine} takes no schedule while it runs; expected none")
        return value
    if engine is not None and engine != "llamacpp":
        other = " or vllm_schedule" if engine == "vllm" else ""
        raise ValueError(f"{engine} takes no gamma with a request; expected none{other}")
    if isinstance(gamma, list):
        raise ValueError("a replica with a schedule of its own takes no gamma with a request; expected none")
    return value


def schedule_file(value: str) -> str:
    """The file that an engine reads its schedule from."""
    if not value.startswith("/") or value.endswith(("/", "/.", "/..")) or "\0" in value:
        raise ValueError("expected the absolute path of a file on a volume that the engine reads too")
    if value.endswith(".state.json"):
        raise ValueError("this is the name of what the engine writes; expected that of the schedule beside it")
    return value


def header_name(value: str | None) -> str | None:
    """A request header that a client may set."""
    if value is None:
        return None
    if not _TOKEN.fullmatch(value):
        raise ValueError("expected the name of a header (ASCII letters, digits and '-'), or null for none")
    if value.lower() in _FRAMING:
        raise ValueError("this header has a meaning of its own")
    return value


def engine_path(value: str) -> str:
    """A path to ask an engine for, perhaps with a query."""
    path = value.partition("?")[0]
    if not value.startswith("/") or not _VISIBLE.fullmatch(value) or "#" in value or value.startswith("//"):
        raise ValueError("expected a path that starts with one / and holds visible ASCII characters only, no #")
    if any(unquote(segment) in (".", "..") for segment in path.split("/")):
        raise ValueError("expected a path without . and .. as parts")
    return value


def passed_path(value: str) -> str:
    """A path of requests to pass through, as it is compared: decoded and without a query."""
    engine_path(value)
    if "?" in value or "%" in value:
        raise ValueError("expected a path without a query and without %")
    return value


def api_server(value: str) -> str:
    """Where the API server of a cluster is; in the clear only on this machine, as a token goes there."""
    url = engine_url(value)
    parts = urlsplit(url)
    if parts.scheme != "https" and not _is_loopback(parts.hostname or ""):
        raise ValueError("expected https, as the token must not travel in the clear (http only to this machine)")
    return url


def dns_name(value: str) -> str:
    """A name to look up."""
    if ":" in value or _FOUR_NUMBERS.fullmatch(value):
        raise ValueError("expected a name to look up, without a port; an address is a replica of its own")
    _check_host(value)
    return value


def dns_server(value: str) -> str:
    """The address of a name server, perhaps with a port: 10.0.0.10, 10.0.0.10:5353, [fd00::10]:53."""
    address, port = value, "53"
    if value.startswith("[") or value.count(":") == 1:
        address, _, port = value.rpartition(":")
        address = address[1:-1] if address.startswith("[") and address.endswith("]") else address
    known = _is_address(ipaddress.IPv4Address, address) or _is_address(ipaddress.IPv6Address, address)
    if not known or not _PORT.fullmatch(port) or not 0 < int(port) <= 65_535:
        raise ValueError("expected the IP address of a name server, with or without :port")
    return value


def service_port(value: Any) -> Any:
    """A port's number, or its name in a Kubernetes Service."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 65_535):
        return value
    if isinstance(value, str) and _PORT_NAME.fullmatch(value):
        return value
    raise ValueError("expected a port 1..65535, or the name of a port (at most 15 lower-case letters, digits and '-')")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

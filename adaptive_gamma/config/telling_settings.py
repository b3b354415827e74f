"""What is told of each request: the access log, and spans for a trace collector."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from adaptive_gamma.config.section import NamedFile, Section

__all__ = ["AccessLogSettings", "TracingSettings"]

_FIELD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_VISIBLE = re.compile(r"[\x20-\x7e]+")


class AccessLogSettings(Section):
    """A line for each request. Off by default: standard output of a sidecar is read by nobody or by everybody."""

    format: Literal["none", "json", "text"] = "none"
    """Of a line; ``none``: there is no log."""
    path: Annotated[str, Field(min_length=1), NamedFile(no_files=("-",))] = "-"
    """A file, or - for standard output. A relative path is one from the folder of the configuration file."""
    max_bytes: Annotated[int, Field(ge=10_000, le=2**40)] = 104_857_600
    """Size at which the file is put aside as ``<path>.1`` and a new one begun."""
    files: Annotated[int, Field(ge=1, le=1000)] = 4
    """Files kept in all, the one being written included."""


class TracingSettings(Section):
    """A span for each request, sent to an OpenTelemetry collector over HTTP; needs the extra ``otel``."""

    endpoint: str | None = None
    """Such as http://collector:4318/v1/traces; null: no spans, and trace headers pass as they are."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Sent to the collector."""
    service_name: Annotated[str, Field(min_length=1, max_length=255)] = "adaptive-gamma"
    """By which spans are told from those of others."""
    sample: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Share of the requests that become spans, of those whose traceparent does not already say."""
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 10.0
    """For each batch of spans."""

    @field_validator("endpoint")
    @classmethod
    def _endpoint(cls, value: str | None) -> str | None:
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname or not value.isprintable() or " " in value:
            raise ValueError("expected http://host:port/v1/traces or https://...")
        if "@" in parts.netloc:
            raise ValueError("credentials do not belong in the url; use headers")
        if parts.path in ("", "/"):
            raise ValueError("expected the whole url, which mostly ends in /v1/traces")
        return value

    @field_validator("headers")
    @classmethod
    def _headers(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, secret in value.items():
            if not _FIELD.fullmatch(name):
                raise ValueError("expected names of header fields")
            if not _VISIBLE.fullmatch(secret.get_secret_value()):
                raise ValueError("expected values of visible ASCII characters")
        return value

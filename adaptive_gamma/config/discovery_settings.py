"""Where replicas are found that the configuration does not list."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator

from adaptive_gamma.config.replica_settings import ReplicaTemplate
from adaptive_gamma.config.section import File, Seconds, Section, ShortSeconds
from adaptive_gamma.config.values import api_server, dns_name, dns_server, service_port

__all__ = ["DiscoverySettings", "DnsSettings", "KubernetesSettings", "ServiceSettings"]

_LABEL = r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"


class _ServicePlace(Section):
    """Where the replicas of one kind are found."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9-]{0,30})$")]
    """Every replica found is called ``<name>-<its pod or address>``."""
    service: Annotated[str, Field(pattern=_LABEL)] | None = None
    """kubernetes: the Service whose endpoints are the replicas."""
    namespace: Annotated[str, Field(pattern=_LABEL)] | None = None
    """kubernetes: the Service's namespace; null is the one this process runs in."""
    host: Annotated[str, AfterValidator(dns_name)] | None = None
    """dns: the name to look up."""
    record: Literal["address", "srv"] = "address"
    """dns: ``address`` looks for A and AAAA, ``srv`` for SRV records, which name ports as well."""
    family: Literal["any", "ipv4", "ipv6", "both"] = "any"
    """dns: ``any`` takes IPv4 addresses, and IPv6 where there are none: an engine with one of each is then one replica
    and not two."""
    port: Annotated[int | str | None, BeforeValidator(service_port)] = None
    """Number, or in kubernetes the name of a port of the Service; null is its only port there, or that of SRV."""
    scheme: Literal["http", "https"] = "http"
    """https needs certificates that name the engines' addresses."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)] = 256
    """Most replicas taken from here; of more, the first by name."""


class ServiceSettings(ReplicaTemplate, _ServicePlace):
    """Replicas found in one place, all alike: two Services, one speculative and one plain, are two of these."""


class KubernetesSettings(Section):
    """How the API server is reached. Everything has its place inside a pod and need not be given there."""

    api_url: Annotated[str, AfterValidator(api_server)] | None = None
    """null: from KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT."""
    token_file: File | None = None
    """Read again for every request, as tokens rotate. null: the service account's, inside a pod; none otherwise."""
    ca_file: File | None = None
    """Certificates that the API server's is checked by. null: the service account's, or with ``api_url`` the
    system's."""
    timeout_s: ShortSeconds = 10.0
    """Longest wait for a list, and for a watch to begin."""
    watch_s: Annotated[float, Field(ge=1, le=3600)] = 300.0
    """Length of one watch; the next goes on where it ended."""
    silence_s: Seconds = 120.0
    """A watch that says nothing for so long, not even where it stands, is taken for dead."""
    resync_s: Seconds = 600.0
    """How often everything is listed anew, should an event have been missed."""


class DnsSettings(Section):
    """How names are looked up."""

    servers: Annotated[list[Annotated[str, AfterValidator(dns_server)]], Field(max_length=8)] = Field(
        default_factory=list
    )
    """Addresses of name servers, perhaps with a port; none: those of the system, with its search list."""
    timeout_s: ShortSeconds = 5.0
    """Longest time for one lookup, all tries together."""
    min_interval_s: Annotated[float, Field(ge=0.01, le=3600)] = 5.0
    """A name is not looked up more often than this, however short the life of its records."""
    max_interval_s: Seconds = 300.0
    """And not less often than this, however long."""


class DiscoverySettings(Section):
    """Replicas that come and go, beside those of ``replicas``."""

    kind: Literal["kubernetes", "dns"]
    """Behind Services of a cluster, or behind names."""
    services: Annotated[list[ServiceSettings], Field(min_length=1, max_length=32)]
    """Places to look; speculative and plain replicas stand behind two of them."""
    retry_max_s: Annotated[float, Field(ge=1, le=3600)] = 30.0
    """Longest wait after a failure; the first is half a second, and each doubles."""
    kubernetes: KubernetesSettings = KubernetesSettings()
    dns: DnsSettings = DnsSettings()

    @field_validator("services")
    @classmethod
    def _of_the_kind(cls, value: list[ServiceSettings], info: ValidationInfo) -> list[ServiceSettings]:
        kind = info.data.get("kind")
        names = [service.name for service in value]
        for index, service in enumerate(value):
            if names.count(service.name) > 1:
                raise ValueError(f"two services are named {service.name!r}")
            problem = None if kind is None else _problem(kind, service)
            if problem is not None:
                raise ValueError(f"services[{index}] ({service.name}): {problem}")
        return value

    @field_validator("dns")
    @classmethod
    def _in_order(cls, value: DnsSettings) -> DnsSettings:
        if value.min_interval_s > value.max_interval_s:
            raise ValueError("min_interval_s must not be above max_interval_s")
        return value


def _problem(kind: str, service: ServiceSettings) -> str | None:
    """What keeps the service from being looked for by this kind of discovery."""
    if service.gamma_control is not None and service.gamma_control.file is not None:
        return "a schedule file is of one engine; give gamma_control a token, which all of a service have"
    foreign = ("host", "record", "family") if kind == "kubernetes" else ("service", "namespace")
    for key in foreign:
        if key in service.model_fields_set and getattr(service, key) != _default(key):
            return f"{key} has no meaning with kind {kind}"
    if kind == "kubernetes":
        return "service is missing" if service.service is None else None
    if service.host is None:
        return "host is missing"
    if service.record == "srv":
        return None if service.port is None else "port comes with the SRV records; leave it out"
    return None if isinstance(service.port, int) else "port must be a number, as A and AAAA records name none"


def _default(key: str) -> Any:
    return ServiceSettings.model_fields[key].default

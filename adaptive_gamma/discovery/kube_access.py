"""How a cluster's API server is reached: what the settings say, else what every pod finds in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from adaptive_gamma.config import KubernetesSettings
from adaptive_gamma.errors import ConfigurationError, DiscoveryError

__all__ = ["SERVICE_ACCOUNT", "ApiAccess", "find_access"]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod that is given a token finds token, certificate and namespace."""


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """Where the API server is, and by what this process shows who it is."""

    url: str
    token_file: Path | None
    ca_file: Path | None
    namespace: str
    """The namespace this process runs in."""

    def token(self) -> str | None:
        """The token as it is in the file now: it is replaced there before it runs out. Raises DiscoveryError."""
        if self.token_file is None:
            return None
        try:
            text = self.token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not ASCII"
            raise DiscoveryError("credentials", f"the token file {self.token_file} cannot be read: {why}") from None
        if not text or not text.isprintable() or " " in text:
            raise DiscoveryError("credentials", f"the token file {self.token_file} holds no token")
        return text


def find_access(
    settings: KubernetesSettings, environment: Mapping[str, str], account: Path = SERVICE_ACCOUNT
) -> ApiAccess:
    """The access that the settings give, completed by what a pod finds. Raises ConfigurationError without a server."""
    inside = settings.api_url is None
    url = settings.api_url or _server_of(environment)
    token = _given(settings.token_file, account / "token" if inside else None)
    ca = _given(settings.ca_file, account / "ca.crt" if inside else None)
    try:
        namespace = (account / "namespace").read_text(encoding="utf-8").strip() or "default"
    except (OSError, UnicodeError):
        namespace = "default"
    return ApiAccess(url, token, ca, namespace)


def _given(setting: str | None, otherwise: Path | None) -> Path | None:
    return otherwise if setting is None else Path(setting)


def _server_of(environment: Mapping[str, str]) -> str:
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigurationError(
            "environment",
            "KUBERNETES_SERVICE_HOST",
            "is not set, so this is no pod of a cluster: give discovery.kubernetes.api_url",
        )
    return f"https://{f'[{host}]' if ':' in host else host}:{port}"

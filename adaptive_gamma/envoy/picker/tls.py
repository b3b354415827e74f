"""What the picker's port proves itself with."""

from __future__ import annotations

import datetime
import ipaddress
import logging
import socket
from pathlib import Path
from typing import Any

import grpc

from adaptive_gamma.config import stamps_of
from adaptive_gamma.errors import ConfigurationError

__all__ = ["from_files", "self_signed"]

_log = logging.getLogger("adaptive_gamma.picker")

_VALID = datetime.timedelta(days=3650)
_NEED = "needs the extra: pip install 'adaptive-gamma[envoy]'"


def self_signed() -> Any:
    """Credentials with a key made now, as gateways take them that do not verify.

    Raises ConfigurationError where the library for it is not installed.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise ConfigurationError("--tls", "", f"a self-signed certificate {_NEED}") from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "adaptive-gamma picker")])
    now = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    host = socket.gethostname()
    if host.isascii() and host not in ("", "localhost"):
        names.append(x509.DNSName(host))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return grpc.ssl_server_credentials([(secret, certificate.public_bytes(serialization.Encoding.PEM))])


def from_files(cert: Path, key: Path) -> Any:
    """Credentials out of PEM files, read again at a handshake after they have changed.

    Raises ConfigurationError where they cannot be read or are no PEM.
    """
    files = [cert, key]
    stamps = stamps_of(files)
    first = _read(cert, key)

    def fetch() -> Any:
        nonlocal stamps
        now = stamps_of(files)
        if now == stamps:
            return None
        stamps = now
        try:
            again = _read(cert, key)
        except ConfigurationError as error:
            _log.error("the certificate stays as it is: %s", error)
            return None
        _log.info("certificate read again")
        return again

    return grpc.dynamic_ssl_server_credentials(first, fetch)


def _read(cert: Path, key: Path) -> Any:
    read = []
    for option, path in (("--key", key), ("--cert", cert)):
        try:
            content = path.read_bytes()
        except OSError as error:
            raise ConfigurationError(option, "", f"{path} cannot be read: {error.strerror}") from error
        if b"-----BEGIN " not in content:
            raise ConfigurationError(option, "", f"{path} is not a PEM file")
        read.append(content)
    return grpc.ssl_server_certificate_configuration([(read[0], read[1])])

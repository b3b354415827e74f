"""How the picker's port proves itself, and what the command refuses."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from adaptive_gamma.envoy.picker import from_files, self_signed
from adaptive_gamma.errors import ConfigurationError
from tests.support.gateway import CODE, Gateway, busy_engine, picked, running_picker


def _certificate(folder: Path, name: str) -> tuple[Path, Path, bytes]:
    """A certificate for localhost in files, and itself as what a client trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    cert_file, key_file = folder / "tls.crt", folder / "tls.key"
    for path, content in ((cert_file, made), (key_file, secret)):
        before = path.stat().st_mtime_ns if path.exists() else None
        path.write_bytes(content)
        if before is not None:
            os.utime(path, ns=(before + 2_000_000_000, before + 2_000_000_000))
    return cert_file, key_file, made


async def _pick(port: int, trusted: bytes) -> str:
    credentials = grpc.ssl_channel_credentials(trusted)
    options = [("grpc.ssl_target_name_override", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, options=options) as channel:
        return picked(await Gateway(channel).ask(CODE)).endpoint


async def test_certificates_from_files_are_read_again(tmp_path: Path) -> None:
    cert, key, trusted = _certificate(tmp_path, "first")
    server_options = {"credentials": from_files(cert, key)}
    async with busy_engine() as engine, running_picker([engine], server_options=server_options) as run:
        assert await _pick(run.server.port, trusted) == run.endpoints[0]
        _, _, renewed = _certificate(tmp_path, "second")
        assert await _pick(run.server.port, renewed) == run.endpoints[0]
        key.write_bytes(b"no key")  # a half-written renewal: the one before goes on
        os.utime(key, (1, 1))
        assert await _pick(run.server.port, renewed) == run.endpoints[0]


async def test_self_signed_encrypts() -> None:
    async with busy_engine() as engine, running_picker([engine], server_options={"credentials": self_signed()}) as run:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await run.gateway.health("liveness")  # in the clear
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE


def test_files_that_are_no_certificates(tmp_path: Path) -> None:
    cert, key, _ = _certificate(tmp_path, "x")
    with pytest.raises(ConfigurationError, match="--cert"):
        from_files(tmp_path / "missing", key)
    key.write_text("hello")
    with pytest.raises(ConfigurationError, match="not a PEM file"):
        from_files(cert, key)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tls", "files", "--cert", "x"], "files needs both"),
        (["--cert", "x", "--key", "y"], "files needs both"),
        (["--listen", "nowhere"], "--listen"),
        (["--listen", "203.0.113.1:9002", "--tls", "off"], "this machine has no such address"),
        (["--admin", "203.0.113.1:9090"], "--admin: admin: cannot listen on 203.0.113.1:9090: "),
    ],
)
def test_the_command_says_what_is_wrong(tmp_path: Path, options: list[str], said: str) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(
        "policy: h200-llama3-70b-fp8\nadmin: 127.0.0.1:0\nreplicas:\n- {name: a, url: 'http://127.0.0.1:1'}\n"
    )
    command = [sys.executable, "-m", "adaptive_gamma", "picker", "--config", str(config), *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr

"""HTTPS with a private certificate authority: the name is checked, whatever the address."""

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from app.adapters import connections
from app.adapters.guard import AddressGuard, IPAddress
from app.adapters.transport import Transport
from app.errors import UnreachableError


@dataclass
class TlsServer:
    port: int = 0
    names: list[str | None] = field(default_factory=list)
    hosts: list[bytes] = field(default_factory=list)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a self-signed certificate for model.example and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "model.example")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("model.example")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.fixture
async def server(certificate: Path) -> AsyncIterator[TlsServer]:
    seen = TlsServer()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.sni_callback = lambda _socket, name, _context: seen.names.append(name)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                seen.hosts.append(head.split(b"ost: ")[1].split(b"\r\n")[0])
                await reader.readuntil(b"}")
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    seen.port = listener.sockets[0].getsockname()[1]
    async with listener:
        yield seen


async def _loopback(host: str, port: int) -> list[IPAddress]:
    return [ipaddress.ip_address("127.0.0.1")]


async def _post(url: str, times: int) -> list[int]:
    async with Transport(guard=AddressGuard(allow_private=True), resolve=_loopback) as transport:
        return [
            (await transport.post_json(url, {}, credentials={}, timeout_s=60.0)).status
            for _ in range(times)
        ]


async def test_a_trusted_certificate_is_checked_against_the_name_and_the_connection_is_reused(
    server: TlsServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    connections._trusted_certificates.cache_clear()
    try:
        assert await _post(f"https://model.example:{server.port}/", 3) == [200] * 3
        assert server.names == ["model.example"]
        assert server.hosts == [f"model.example:{server.port}".encode()] * 3
        with pytest.raises(UnreachableError, match="certificate verify failed"):
            await _post(f"https://other.example:{server.port}/", 1)
    finally:
        connections._trusted_certificates.cache_clear()


async def test_an_unknown_certificate_is_refused(server: TlsServer) -> None:
    with pytest.raises(UnreachableError, match="certificate verify failed"):
        await _post(f"https://model.example:{server.port}/", 1)

"""The transport over real sockets, also with a private certificate authority."""

import asyncio
import ipaddress
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from app.acting import NOBODY, acting_for
from app.adapters import connections
from app.adapters.guard import AddressGuard, IPAddress
from app.adapters.transport import Transport
from app.errors import (
    BlockedAddressError,
    ExamineeError,
    MalformedAnswerError,
    UnreachableError,
)
from tests.servers import raw_server
from tests.servers.fault_server import FaultServer

LOCAL = AddressGuard(allow_private=True)
CREDENTIALS = {"authorization": "Bearer sk-1234", "x-team": "blue"}


async def post(transport: Transport, url: str, credentials: dict[str, str] | None = None) -> int:
    reply = await transport.post_json(
        url, {"messages": []}, credentials=credentials or {}, timeout_s=60.0
    )
    return reply.status


async def test_credentials_follow_a_redirect_on_the_same_origin(
    transport: Transport, faults: FaultServer, faults_url: str
) -> None:
    assert await post(transport, f"{faults_url}/redirect/x", CREDENTIALS) == 200
    assert [call.path for call in faults.calls] == ["/redirect/x", "/ok/x"]
    for call in faults.calls:
        assert CREDENTIALS.items() <= call.headers.items()


async def test_credentials_do_not_follow_to_another_host(
    transport: Transport, faults: FaultServer, faults_url: str
) -> None:
    assert await post(transport, f"{faults_url}/redirect_elsewhere/x", CREDENTIALS) == 200
    first, second = faults.calls
    assert CREDENTIALS.items() <= first.headers.items()
    assert CREDENTIALS.keys().isdisjoint(second.headers)
    assert second.headers["host"].startswith("localhost:")


@pytest.mark.parametrize(
    ("location", "error"),
    [
        ("http://169.254.169.254/latest/meta-data/", BlockedAddressError),
        ("http://2852039166/", BlockedAddressError),
        ("http://0xa9.0xfe.0xa9.0xfe/", BlockedAddressError),
        ("http://[::ffff:169.254.169.254]/", BlockedAddressError),
        ("ftp://127.0.0.1/", ExamineeError),
        ("file:///etc/passwd", ExamineeError),
        ("http://user:secret@127.0.0.1/", ExamineeError),
        ("http://[", ExamineeError),
    ],
)
async def test_a_redirect_is_checked_like_the_first_address(
    transport: Transport,
    faults: FaultServer,
    faults_url: str,
    location: str,
    error: type[ExamineeError],
) -> None:
    path = faults.canned("moved", {}, status=307, headers={"location": location})
    with pytest.raises(error):
        await post(transport, faults_url + path)
    assert len(faults.calls) == 1


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "2130706433", "0x7f.1", "127.1", "localhost", "[::1]"]
)
async def test_every_spelling_of_loopback_is_refused_to_a_public_server(host: str) -> None:
    async with Transport(guard=AddressGuard()) as transport:
        with pytest.raises(BlockedAddressError, match="loopback"):
            await post(transport, f"http://{host}:9/")


async def test_the_checked_address_is_the_one_connected_to(faults_url: str) -> None:
    """A name that resolves differently each time is never resolved twice."""
    answers = [["127.0.0.1"], ["169.254.169.254"]]
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> list[IPAddress]:
        asked.append(host)
        return [ipaddress.ip_address(text) for text in answers[len(asked) - 1]]

    port = httpx2.URL(faults_url).port
    async with Transport(guard=LOCAL, resolve=rebinding) as transport:
        assert await post(transport, f"http://rebind.example:{port}/ok/x") == 200
        assert await post(transport, f"http://rebind.example:{port}/ok/x") == 200
    assert asked == ["rebind.example"]
    async with Transport(guard=LOCAL, resolve=rebinding) as transport:
        with pytest.raises(BlockedAddressError, match=r"169\.254\.169\.254"):
            await post(transport, f"http://rebind.example:{port}/ok/x")


async def test_a_caller_from_elsewhere_gets_no_open_connection_of_a_local_one(
    faults: FaultServer, faults_url: str
) -> None:
    async def resolve(host: str, port: int) -> list[IPAddress]:
        return [ipaddress.ip_address("127.0.0.1")]

    url = f"http://near.example:{httpx2.URL(faults_url).port}/ok/x"
    async with Transport(guard=LOCAL, resolve=resolve) as transport:
        assert await post(transport, url) == 200
        elsewhere = acting_for(replace(NOBODY, is_from_elsewhere=True))
        with elsewhere, pytest.raises(BlockedAddressError, match="loopback"):
            await post(transport, url)
        assert await post(transport, url) == 200
    assert len(faults.calls) == 2


async def test_a_forbidden_address_of_a_name_is_skipped_for_an_allowed_one(
    faults: FaultServer, faults_url: str
) -> None:
    async def resolve(host: str, port: int) -> list[IPAddress]:
        return [ipaddress.ip_address("169.254.169.254"), ipaddress.ip_address("127.0.0.1")]

    port = httpx2.URL(faults_url).port
    async with Transport(guard=LOCAL, resolve=resolve) as transport:
        assert await post(transport, f"http://two.example:{port}/ok/x") == 200
    assert faults.calls[0].headers["host"] == f"two.example:{port}"


async def test_proxies_of_the_environment_are_not_used(
    faults_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with Transport(guard=LOCAL) as transport:
        assert await post(transport, f"{faults_url}/ok/x") == 200


async def test_calls_beyond_the_connection_limit_wait_their_turn(faults_url: str) -> None:
    async with Transport(guard=LOCAL, max_connections=2) as transport:
        calls = [post(transport, f"{faults_url}/slow/x") for _ in range(9)]
        assert await asyncio.gather(*calls) == [200] * 9


async def test_no_cookie_is_kept(
    transport: Transport, faults: FaultServer, faults_url: str
) -> None:
    path = faults.canned("cookie", {}, headers={"set-cookie": "who=me; Path=/"})
    await post(transport, faults_url + path)
    await post(transport, faults_url + path)
    assert all("cookie" not in call.headers for call in faults.calls)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:1/", "connection refused"),
        ("http://no-such-host.invalid/", "cannot be resolved"),
        ("http://" + "a" * 70 + ".example/", "cannot be resolved"),
    ],
)
async def test_a_failed_connection_is_unreachable(
    transport: Transport, url: str, words: str
) -> None:
    with pytest.raises(UnreachableError, match=words):
        await post(transport, url)


async def test_tls_to_a_port_without_it_is_unreachable(
    transport: Transport, faults_url: str
) -> None:
    with pytest.raises(UnreachableError):
        await post(transport, faults_url.replace("http://", "https://") + "/ok")


async def test_a_closed_idle_connection_is_replaced(transport: Transport) -> None:
    served: list[int] = []

    async def one_answer_each(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(1)
        await reader.readuntil(b"}")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        # The connection looks alive until the next request has been sent on it.
        await reader.readuntil(b"}")

    async with raw_server(one_answer_each) as url:
        assert [await post(transport, url) for _ in range(3)] == [200, 200, 200]
    assert len(served) == 3


async def test_unrequested_data_is_no_answer_to_the_next_call(
    transport: Transport, faults_url: str
) -> None:
    answered, said = asyncio.Event(), asyncio.Event()

    async def farewell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        await answered.wait()
        if not said.is_set():
            writer.write(b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 2\r\n\r\n{}")
            await writer.drain()
            said.set()
        await reader.readuntil(b"}")

    async with raw_server(farewell) as url:
        assert await post(transport, url) == 200
        answered.set()
        await said.wait()
        assert await post(transport, f"{faults_url}/ok/x") == 200  # the data arrives meanwhile
        assert await post(transport, url) == 200


async def test_a_dropped_call_is_not_repeated(transport: Transport) -> None:
    served: list[int] = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(1)
        await reader.readuntil(b"}")

    async with raw_server(hang_up) as url:
        with pytest.raises(UnreachableError, match="closed the connection"):
            await post(transport, url)
    assert len(served) == 1


async def test_something_that_does_not_speak_http_is_malformed(transport: Transport) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        writer.write(b"220 mail.example ESMTP\r\n\r\n")
        await writer.drain()

    async with raw_server(greet) as url:
        with pytest.raises(MalformedAnswerError, match="did not answer with HTTP"):
            await post(transport, url)


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
    async with Transport(guard=LOCAL, resolve=_loopback) as transport:
        return [await post(transport, url) for _ in range(times)]


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

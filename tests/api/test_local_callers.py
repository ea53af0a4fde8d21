"""Private addresses: local callers may have them called, callers through a proxy may not.

The tests call a real server over TCP, also through the proxies configured in the docs.
"""

import asyncio
import json
import re
import shutil
import subprocess
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from app.cli.servers.server import serving
from app.records.api_keys import Scope
from app.settings import Settings
from tests.servers import ROOT, free_port
from tests.servers.forked import Forked
from tests.waiting import waiting
from tests.worker.sessions import said_in

OPERATIONS = ROOT / "docs" / "operations.md"
NEAR = {"kind": "openai_chat", "base_url": "http://127.0.0.1:1/v1", "model": "m"}
#: nginx with no configuration except the server to forward to.
BARE = "server {{ listen 443 ssl; location / {{ proxy_pass http://127.0.0.1:8000; {} }} }}"

FORWARDED = [
    *("X-Forwarded", "X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-Prefix"),
    *("Forwarded-For", "X-Forwarded-Client-Cert", "Max-Forwards", "X-Via", "CDN-Loop"),
    *("True-Client-IP", "Client-IP", "X-Client-IP", "X-Cluster-Client-IP", "X-ProxyUser-Ip"),
    *("CF-Connecting-IP", "CF-Connecting-IPv6", "CF-Ray", "Fastly-Client-IP", "Fly-Client-IP"),
    *("X-Original-For", "X-Original-Host", "X-Original-URL", "X-Original-Forwarded-For"),
    *("X-Originating-IP", "X-Remote-IP", "X-Remote-Addr", "X-Rewrite-URL", "X-Real-Port"),
    *("X-Azure-SocketIP", "X-Azure-FDID", "X-Appengine-User-IP", "Akamai-Origin-Hop"),
    *("CloudFront-Viewer-Address", "X-Envoy-External-Address", "X-Nf-Client-Connection-Ip"),
    *("Proxy-Client-IP", "WL-Proxy-Client-IP", "Ali-CDN-Real-IP", "X-Amzn-Trace-Id"),
    *("X-Host", "X-Scheme", "X-Proto", "Front-End-Https", "X-SSL", "SSL-Client-Cert"),
    *("X-Vercel-Id", "X-Nf-Request-Id", "X-Goog-Authenticated-User-Email", "X-Client-Cert"),
    *("X-Upstream", "X-Load-Balancer", "X-LB", "ngrok-trace-id", "X-Auth-Request-User"),
    *("X-Amz-Cf-Id",),
    *("X-Request-Start", "X-Cloud-Trace-Context", "X-Traefik-Router", "X-Ingress", "Kong-Debug"),
    *("X_FORWARDED_FOR", "HTTP_CLIENT_IP", "Via", "Forwarded", "X-Forwarded-For", "X-Real-IP"),
]
#: Headers that browsers, scripts and libraries send on their own.
OF_CLIENTS = [
    *("Accept-Language", "Origin", "Referer", "Cookie", "DNT", "Priority", "Cache-Control"),
    *("Last-Event-ID", "Upgrade-Insecure-Requests", "Sec-CH-UA-Platform", "Sec-Fetch-Site"),
    *("X-Request-Id", "X-Requested-With", "X-API-Key", "X-Client-Version", "traceparent"),
    *("X-Stainless-Runtime-Version", "X-Stainless-Retry-Count", "OpenAI-Organization", "Range"),
    *("HX-Current-URL", "HX-Request", "If-None-Match", "Idempotency-Key", "X-CSRF-Token"),
]


class Place(NamedTuple):
    """A server, a key for it, and a client that calls it directly or through a proxy."""

    url: str
    key: str
    client: httpx2.AsyncClient

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def code(self, url: str = "", headers: dict[str, str] | None = None) -> str:
        """Save an endpoint at a loopback address; return `saved` or the problem's code."""
        given = {"Authorization": f"Bearer {self.key}", **(headers or {})}
        body = {**NEAR, "name": uuid.uuid4().hex}
        where = f"{url or self.url}/v1/endpoints"
        answer = await self.client.post(where, json=body, headers=given)
        return "saved" if answer.status_code == 201 else str(answer.json()["code"])


BLOCKED, SAVED = "endpoint_address_blocked", "saved"


@asynccontextmanager
async def served(database_url: str, directory: Path, **given: Any) -> AsyncIterator[Place]:
    settings = Settings(database_url=database_url, data_dir=directory, port=0, **given)
    async with serving(settings, worker=False) as local:
        _, key = await local.services.api_keys.create(name="test", scopes=[Scope.ADMIN])
        async with httpx2.AsyncClient(timeout=240) as client:
            yield Place(local.base_url.replace("0.0.0.0", "127.0.0.1"), key, client)


@pytest.fixture
async def place(database_url: str, tmp_path: Path) -> AsyncIterator[Place]:
    """Start a server as a new user does."""
    async with served(database_url, tmp_path) as place:
        yield place


async def test_a_caller_of_this_machine_may_name_a_local_model(place: Place) -> None:
    assert await place.code() == SAVED
    for name in OF_CLIENTS:
        assert await place.code(headers={name: "1"}) == SAVED, name


async def test_any_header_of_a_proxy_makes_a_caller_remote(place: Place) -> None:
    answers = {name: await place.code(headers={name: "127.0.0.1"}) for name in FORWARDED}
    assert {name: code for name, code in answers.items() if code != BLOCKED} == {}
    assert await place.code(headers={"True-Client-IP": ""}) == BLOCKED


async def test_a_caller_who_speaks_http_1_0_is_remote(place: Place) -> None:
    body = json.dumps({**NEAR, "name": "near"})
    head = (
        "POST /v1/endpoints HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {place.key}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    writer.write((head + body).encode())
    answer = await reader.read()
    writer.close()
    assert BLOCKED.encode() in answer


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"private_endpoints": "never"}, BLOCKED),
        ({"host": "0.0.0.0"}, BLOCKED),
        ({"host": "0.0.0.0", "private_endpoints": "always"}, SAVED),
    ],
    ids=["never", "all addresses", "all addresses, always"],
)
async def test_a_local_caller_has_private_addresses_called_as_the_settings_say(
    database_url: str, tmp_path: Path, given: dict[str, Any], code: str
) -> None:
    async with served(database_url, tmp_path, **given) as place:
        assert await place.code() == code


@pytest.mark.parametrize(
    ("more", "is_said"),
    [
        ({}, True),
        ({"SEXTANT_PRIVATE_ENDPOINTS": "never"}, False),
        ({"SEXTANT_HOST": "0.0.0.0"}, False),
    ],
    ids=["by default", "never", "all addresses"],
)
async def test_a_server_says_at_its_start_who_may_call_local_models(
    database_url: str, tmp_path: Path, more: dict[str, str], is_said: bool
) -> None:
    own = {"SEXTANT_DATA_DIR": str(tmp_path), "SEXTANT_PORT": "0", "COLUMNS": "400"}
    env = {"PATH": "/usr/bin:/bin", "SEXTANT_LOG_LEVEL": "warning", "DATABASE_URL": database_url}
    said, command = tmp_path / "said.txt", ["sextant", "serve", "--no-worker"]
    with said.open("wb") as stderr:
        process = Forked(command, env={**env, **own, **more}, stderr=stderr)
    try:
        await said_in(said, process, "(keys create)")
    finally:
        process.terminate()
        process.wait(240)
    lines = [line for line in said.read_text().splitlines() if "PRIVATE_ENDPOINTS=never" in line]
    assert len(lines) == is_said, said.read_text()


def documented(language: str) -> str:
    """Return the configuration shown in the docs."""
    text = OPERATIONS.read_text(encoding="utf-8")
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(block)


@contextmanager
def running(words: list[str], directory: Path) -> Iterator[None]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(directory)}
    with (directory / "proxy.log").open("wb") as log:
        process = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def nginx(shown: str, port: int, directory: Path) -> Iterator[int]:
    """Start nginx with that configuration, without its certificate, before the server at `port`."""
    own = free_port()
    shown = re.sub(r"^ *ssl_certificate.*\n", "", shown, flags=re.MULTILINE)
    shown = shown.replace("listen 443 ssl", f"listen 127.0.0.1:{own}").replace(":8000", f":{port}")
    places = " ".join(
        f"{kind}_temp_path {directory}/{kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    file = directory / "nginx.conf"
    file.write_text(
        f"daemon off; master_process off; pid {directory}/pid; error_log stderr;\n"
        f"events {{}}\nhttp {{ access_log off; {places}\n{shown}\n}}\n"
    )
    with running(
        [nginx_program(), "-e", "stderr", "-p", str(directory), "-c", str(file)], directory
    ):
        yield own


def nginx_program() -> str:
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("nginx is not installed: apt-get install nginx")
    return program


@contextmanager
def shipped_nginx(_: str, port: int, directory: Path) -> Iterator[int]:
    """Start the proxy of docker-compose.yml with other addresses for it and the server."""
    own = free_port()
    text = (ROOT / "proxy" / "nginx.conf").read_text()
    text = text.replace("api:8000", f"127.0.0.1:{port}").replace("/tmp/", f"{directory}/")
    file = directory / "nginx.conf"
    file.write_text(text.replace("listen 8080", f"listen 127.0.0.1:{own}"))
    alone = "daemon off; master_process off;"
    with running([nginx_program(), "-e", "stderr", "-c", str(file), "-g", alone], directory):
        yield own


@contextmanager
def caddy(shown: str, port: int, directory: Path) -> Iterator[int]:
    """Start Caddy with that configuration, without its certificate, before the server at `port`."""
    own = free_port()
    shown = shown.replace(":8000", f":{port}")
    shown = shown.replace("sextant.example.com", f"http://127.0.0.1:{own}")
    file = directory / "Caddyfile"
    file.write_text(f"{{\n    admin off\n}}\n{shown}")
    program = shutil.which("caddy")
    if program is None:
        pytest.skip("Caddy is not installed: apt-get install caddy")
    with running([program, "run", "--config", str(file)], directory):
        yield own


async def answering(port: int) -> None:
    """Wait until a proxy listens."""
    async with waiting() as pause:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await pause()
            else:
                writer.close()
                return


Proxy = Callable[[str, int, Path], Any]


@pytest.mark.parametrize(
    ("proxy", "shown", "by_default"),
    [
        (shipped_nginx, "", BLOCKED),
        (nginx, documented("nginx"), BLOCKED),
        (nginx, BARE.format(""), BLOCKED),  # it speaks HTTP/1.0
        (nginx, BARE.format("proxy_http_version 1.1;"), None),  # it looks like a local caller
        (caddy, documented("caddy"), BLOCKED),
        (caddy, "sextant.example.com {\n reverse_proxy 127.0.0.1:8000\n}\n", BLOCKED),
    ],
    ids=["shipped", "nginx", "nginx, bare", "nginx, bare, HTTP/1.1", "caddy", "caddy, bare"],
)
async def test_callers_through_a_local_proxy_cannot_reach_private_addresses(
    proxy: Proxy, shown: str, by_default: str | None, database_url: str, tmp_path: Path
) -> None:
    # Settings that the command in the docs adds to the configuration.
    told = {"private_endpoints": "never", "trusted_proxies": "127.0.0.1"}
    for number, settings in enumerate(({}, told)):
        directory = tmp_path / str(number)
        directory.mkdir()
        async with served(database_url, directory, **settings) as place:
            with ExitStack() as stack:
                port = stack.enter_context(proxy(shown, place.port, directory))
                await answering(port)
                code = await place.code(f"http://127.0.0.1:{port}")
                expected = BLOCKED if settings else by_default
                assert expected in (code, None), (directory / "proxy.log").read_text()
                if not settings:
                    assert await place.code() == SAVED  # directly to the same server


async def test_the_shipped_proxy_refuses_large_requests(place: Place, tmp_path: Path) -> None:
    with shipped_nginx("", place.port, tmp_path) as port:
        await answering(port)
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=240) as client:
            large = await client.post("/v1/banks", content=b" " * (33 * 2**20))
            assert large.status_code == 413
            assert "nginx" in large.text
            assert (await client.get("/healthz")).status_code == 200


async def test_a_body_beyond_its_limit_is_answered_while_it_still_comes(place: Place) -> None:
    """A connection closed over unread bytes is reset, and the client loses the answer."""

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(512):
            yield b" " * 2**16

    headers = {"Authorization": f"Bearer {place.key}", "Content-Type": "application/json"}
    for content in (b" " * 2**25, chunks()):
        large = await place.client.post(f"{place.url}/v1/banks", content=content, headers=headers)
        assert (large.status_code, large.json()["code"]) == (413, "body_too_large")


async def test_a_head_without_an_end_is_refused(place: Place) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
    writer.write(b"GET / HTTP/1.1\r\nX-Long: " + b"a" * 2**17)
    async with asyncio.timeout(60):
        assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
    writer.close()

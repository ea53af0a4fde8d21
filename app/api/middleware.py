"""Middleware of every request: id, log line, metrics, safe headers, HEAD, and a last resort."""

import re
import time
import uuid
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from typing import Final

import structlog
from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars, unbind_contextvars

from app.acting import NOBODY, AuditEntry, acting_for
from app.api.errors import internal_error_response
from app.observability import HTTP_LATENCY, HTTP_REQUESTS

#: Paths that machines request every few seconds; logged at debug level only.
_QUIET = frozenset({"/healthz", "/readyz", "/metrics"})
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_log = structlog.get_logger(__name__)

#: Default headers of every reply: browsers guess no types, allow no frames of other sites, load
#: nothing for a reply that is not a page, and send no referrer.
SECURE: Final = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}

#: Headers that only proxies add: that they forward, for which address, which host the caller named,
#: or whose network it is. Neither our clients nor browsers send them.
_FORWARDED = re.compile(
    r"""forward | prox[iy] | origina | rewrit | gateway | addr | ip(?:v?[46])?(?![a-z])
    | upstream | ingress | load-?balanc | client-cert | true-client
    | (?<![a-z]) (?: via | remote | peer | hop | loop | ip | edge | cluster | surrogate )
    | ^x- (?:.*-)? (?: host | server | port | proto | protocol | scheme | https | ssl | tls ) \b
    | ^ (?: front-end | ssl | cf | fly | fastly | akamai | cloudfront | tailscale | ngrok | kong |
      x-(?: amzn? | arr | azure | envoy | varnish | vercel | nf | railway | heroku | goog
        | appengine | ms-client | fd | lb | traefik | auth-request | request-start | cloud-trace )
      ) \b""",
    re.VERBOSE | re.MULTILINE,
)


@dataclass(frozen=True, eq=False)
class RequestContext:
    """Give each request an id, log it, and turn uncaught exceptions into a 500 problem.

    HEAD is answered with the head of the reply to GET.
    """

    app: ASGIApp
    trusts_all: bool = field(default=False, kw_only=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                for name, value in SECURE.items():
                    headers.setdefault(name, value)
            await send(message)

        elsewhere = not self.trusts_all and _is_from_elsewhere(scope)
        audit_entry = AuditEntry(
            action=lambda: str(getattr(scope.get("route"), "name", scope["method"])),
            path=scope["path"],
            request_id=request_id,
            address=(scope.get("client") or ("unknown",))[0],
            is_noted=scope["method"] in _READING,
        )
        acting = replace(NOBODY, is_from_elsewhere=elsewhere, audit_entry=audit_entry)
        with bound_contextvars(request_id=request_id), acting_for(acting):
            try:
                if scope["method"] == "HEAD":
                    await _answer_head(self.app, scope, receive, send_with_id)
                else:
                    await self.app(scope, receive, send_with_id)
            except ClientDisconnect:
                pass  # no client is left to reply to
            except Exception:
                _log.exception("request_failed", method=scope["method"], path=scope["path"])
                if status:  # half a reply is sent: let the server cut the connection
                    raise
                response = internal_error_response(Request(scope))
                await response(scope, receive, send_with_id)
            finally:
                _observe(scope, status, time.perf_counter() - started)
                unbind_contextvars("key_id", "project_id")


def _is_from_elsewhere(scope: Scope) -> bool:
    """Whether a request may have come from another machine or through a proxy.

    A proxy may add no header at all. HTTP/1.0, nginx's default towards servers, is one more sign of
    a proxy. No sign is certain, so behind a proxy the setting must be `never`.
    """
    names = "\n".join(Headers(scope=scope).keys()).replace("_", "-")
    if scope.get("http_version") == "1.0" or _FORWARDED.search(names):
        return True
    host = (scope.get("client") or ("",))[0]
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return True


async def _answer_head(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer HEAD with the head of the reply to GET.

    The handler stops after its first part, so no more of a file or an event stream is produced.
    """

    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        elif message.get("more_body"):
            raise _HeadSentError

    asked = {**scope, "method": "GET"}
    try:
        await app(asked, receive, send_head)
    except (_HeadSentError, ClientDisconnect):
        pass
    finally:
        scope["route"] = asked.get("route")  # for the count of requests by route


class _HeadSentError(OSError):
    """Raised in place of a client's disconnect, to end a stream."""


def _observe(scope: Scope, status: int, seconds: float) -> None:
    """Write one log line and the metrics; by route pattern, so that ids make no new series."""
    route = getattr(scope.get("route"), "path", "none")
    method = scope["method"] if scope["method"] in _METHODS else "other"
    HTTP_REQUESTS.labels(method, route, str(status)).inc()
    HTTP_LATENCY.labels(method, route).observe(seconds)
    level = _log.debug if route in _QUIET else _log.info
    level(
        "request",
        method=scope["method"],
        path=scope["path"],
        status=int(status),  # an HTTPStatus where a problem set it
        ms=round(seconds * 1000, 1),
    )

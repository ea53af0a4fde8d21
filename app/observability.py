"""Structured logs without secrets, and the metrics of a process.

Use `structlog.get_logger(__name__)`; bind `request_id` or `session_id` with
`structlog.contextvars.bound_contextvars(...)` and every line within carries it.
"""

import logging
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import structlog
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    start_http_server,
)
from structlog.typing import EventDict, ExcInfo, Processor, WrappedLogger

from app.errors import InvalidInputError
from app.printable import printable

_HIDDEN = "[redacted]"
# Compared in lower case and without - and _.
_SECRET_NAMES = frozenset(
    (
        *("apikey", "xapikey", "authorization", "proxyauthorization", "cookie", "setcookie"),
        *("password", "secret", "secretkey", "clientsecret", "accesstoken"),
    )
)
_SECRET_TEXTS = (
    re.compile(r"\b(?:sxt_|sk-|hf_|gsk_|xai-|AIza|ghp_)[A-Za-z0-9_\-]{8,}"),
    re.compile(r"(?i)(?<=\bbearer )\s*[^\s\"',;]+"),
    re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"),  # user:password in a URL
)
#: Names of exception classes whose messages come from the system and are safe to log.
_TELLING = frozenset(("OSError", "DatabaseUnavailableError"))
# These libraries log every job, request or migration step at level info.
_CHATTY = ("alembic", "httpx2", "httpcore2", "procrastinate", "uvicorn")

_ENDPOINT_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)

ITEMS_ASKED = Counter("sextant_items_asked", "Items put to endpoints.")
OUTCOMES = Counter("sextant_outcomes", "Items closed, by outcome.", ["outcome"])
ENDPOINT_LATENCY = Histogram(
    "sextant_endpoint_latency_seconds",
    "Time an endpoint took for one answer.",
    buckets=_ENDPOINT_BUCKETS_S,
)
SESSIONS_FINISHED = Counter("sextant_sessions_finished", "Sessions ended, by status.", ["status"])
CALLS = Counter("sextant_calls", "Calls of endpoints, by `answered` or what failed.", ["outcome"])
TOKENS = Counter("sextant_tokens", "Tokens that calls took, `in` or `out`.", ["direction"])
USD = Counter("sextant_usd", "US dollars that calls cost, as far as prices are known.")
LEASES_LOST = Counter(
    "sextant_leases_lost", "Leases that ran out, counted as others go on with the work.", ["kind"]
)
WEBHOOK_ATTEMPTS = Counter(
    "sextant_webhook_attempts", "Attempts to deliver to webhooks, by outcome.", ["outcome"]
)
# Metrics of all processes, read from the database when they are asked for.
UNDERWAY = Gauge("sextant_underway", "What has not ended, by kind and status.", ["kind", "status"])
LEASES = Gauge("sextant_leases", "What workers hold, by kind and status.", ["kind", "status"])
HTTP_REQUESTS = Counter(
    "sextant_http_requests",
    "Requests answered, by route and status.",
    ["method", "route", "status"],
)
HTTP_LATENCY = Histogram(
    "sextant_http_latency_seconds", "Time until a request was answered.", ["method", "route"]
)
# Created at the start: a counter that appears with its first event shows no rise for it.
for _counter, *_values in (
    (CALLS, "answered"),
    (TOKENS, "in", "out"),
    (LEASES_LOST, "session", "ranking", "calibration", "installation"),
    (WEBHOOK_ATTEMPTS, "delivered", "failed", "given_up"),
    (SESSIONS_FINISHED, "completed", "failed"),
):
    for _value in _values:
        _counter.labels(_value)


class LogSettings(Protocol):
    """The part of the settings that logging needs."""

    @property
    def log_format(self) -> Literal["console", "json"]:
        """Format of log lines, for people or for machines."""

    @property
    def log_level(self) -> str:
        """Least severe level that is logged."""


class _Handler(logging.StreamHandler[Any]):
    """Marks our handler of the root logger, so that configuring twice does not log twice."""


def configure_logging(settings: LogSettings) -> None:
    """Send all logs of the process, those of libraries included, to stderr."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    renderer: list[Processor]
    if settings.log_format == "json":
        renderer = [_exceptions, redact_event, _json()]
    else:
        renderer = [_exceptions, redact_event, _console()]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = _Handler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    root = logging.getLogger()
    for known in [known for known in root.handlers if isinstance(known, _Handler)]:
        root.removeHandler(known)
    root.addHandler(handler)
    root.setLevel(level)
    for name in _CHATTY:
        logging.getLogger(name).setLevel(level if level <= logging.DEBUG else logging.WARNING)


def without_values(exc_info: ExcInfo) -> str:
    """An exception as it is logged: its type, its traceback, and the exceptions that led to it.

    The message of an unexpected exception may quote the item or answer that was worked on, which
    nobody may read in a log. Only messages of the system and of a lost database are kept.
    """
    return "\n".join(_traceback_lines(exc_info[1]))


_exceptions = structlog.processors.ExceptionRenderer(without_values)


def _traceback_lines(error: BaseException) -> Iterator[str]:
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _traceback_lines(before)
        yield "That led to:"
    yield from (line.rstrip("\n") for line in traceback.format_tb(error.__traceback__))
    kinds = type(error).__mro__
    words = f": {error}" if any(kind.__name__ in _TELLING for kind in kinds) else ""
    yield f"{type(error).__module__}.{type(error).__qualname__}{words}"
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _traceback_lines(one)


def redact_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Log processor that removes keys, passwords and bearer tokens from log lines."""
    return {name: _redacted(name, value) for name, value in event.items()}


def redact(text: str) -> str:
    """`text` without anything that looks like a key, a bearer token or a password in a URL.

    Characters that a terminal would obey are replaced, too.
    """
    text = printable(text)
    for pattern in _SECRET_TEXTS:
        text = pattern.sub(_HIDDEN, text)
    return text


def render_metrics() -> tuple[bytes, str]:
    """The metrics in Prometheus' text format, and its content type."""
    return generate_latest(), CONTENT_TYPE_LATEST


@contextmanager
def metrics_served(host: str, port: int) -> Iterator[None]:
    """Serve metrics to Prometheus until the block ends, in a process without another server.

    Raises:
        InvalidInputError: The address and port cannot be listened on.
    """
    try:
        server, thread = start_http_server(port, addr=host)
    except OSError as exc:
        raise InvalidInputError(
            f"SEXTANT_METRICS_PORT: cannot listen on {host}:{port}: {exc.strerror or exc}."
        ) from exc
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _redacted(name: object, value: Any) -> Any:
    if isinstance(name, str) and re.sub("[-_]", "", name.lower()) in _SECRET_NAMES:
        return _HIDDEN if value is not None else None
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, bytes):
        return redact(value.decode(errors="replace"))
    if isinstance(value, Mapping):
        return {key: _redacted(key, inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_redacted(None, inner) for inner in value]
    if isinstance(value, (int, float, bool)) or value is None:
        return value
    return redact(str(value))


def _json() -> Processor:
    return structlog.processors.JSONRenderer(ensure_ascii=False)


def _console() -> Processor:
    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())

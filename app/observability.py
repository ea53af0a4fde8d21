"""Logs without secrets, the metrics of a process, and OpenTelemetry traces.

Logs: use `structlog.get_logger(__name__)`; bind `request_id` or `session_id` with
`structlog.contextvars.bound_contextvars(...)` and every line within carries it.

Traces: one for each session, ranking, calibration and installation. The ids of the root span come
from the SHA-256 of the resource's id, so that each worker that continues it adds a run to the same
tree. Below a run are steps, calls of endpoints and scoring, named after the conventions for
generative AI. No span holds a prompt, an answer, a key or an address, except the host of a call.
The SDK reads its own variables, such as OTEL_SERVICE_NAME; it sends to the operator's collector.
"""

import hashlib
import logging
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

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
from typing_extensions import override

from app.errors import ExamineeError, InvalidInputError
from app.printable import printable

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

    from app.settings import Settings

Attribute = str | int | float | None

logger = structlog.get_logger(__name__)

_MISSING = (
    "OTEL_EXPORTER_OTLP_ENDPOINT asks for traces, and these need the extra otel: "
    "uv sync --extra otel, or pip install 'sextant-server[otel]'."
)
_tracer: "Tracer | None" = None
#: Trace id and span id of a root span that is about to start.
_root: tuple[int, int] | None = None

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


class _Handler(logging.StreamHandler[Any]):
    """Marks our handler of the root logger, so that configuring twice does not log twice."""


def configure_logging(settings: "Settings") -> None:
    """Send all logs of the process, those of libraries included, to stderr."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    renderer: Processor = structlog.processors.JSONRenderer(ensure_ascii=False)
    if settings.log_format == "console":
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
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
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _exceptions,
                redact_event,
                renderer,
            ],
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


def traces_sent(endpoint: str | None) -> AbstractContextManager[None]:
    """Send traces over OTLP until the block ends; remaining spans are sent at its end.

    Without the extra `otel`, no traces are sent, and the log says so.

    Args:
        endpoint: URL of the collector, which the exporter itself reads; None: no traces.
    """
    if endpoint is None:
        return nullcontext()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ModuleNotFoundError:
        logger.warning("traces_not_sent", reason=_MISSING)
        return nullcontext()
    return traces_to(OTLPSpanExporter())


@contextmanager
def traces_to(exporter: "SpanExporter") -> Iterator[None]:
    """Send all spans of this process to an exporter until the block ends."""
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

    class Ids(RandomIdGenerator):
        """Generates random ids, except for root spans."""

        @override
        def generate_trace_id(self) -> int:
            return _root[0] if _root else super().generate_trace_id()

        @override
        def generate_span_id(self) -> int:
            return _root[1] if _root else super().generate_span_id()

    global _tracer
    resource = Resource.create({SERVICE_NAME: "sextant"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, id_generator=Ids(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    _tracer = provider.get_tracer("sextant")
    try:
        yield
    finally:
        _tracer = None
        provider.shutdown()


@contextmanager
def run_span(kind: str, resource_id: str, run: int) -> Iterator[None]:
    """One worker's run of a session or other work, below the root span that all its runs share.

    The first run sends the root span at once, because a killed worker sends nothing later.

    Args:
        kind: Kind of the work, such as `session`.
        resource_id: Id of the work.
        run: Number of the run; 1 for the first worker that takes the work.
    """
    if _tracer is None:
        yield
        return
    from opentelemetry import trace

    global _root
    hashed = hashlib.sha256(resource_id.encode()).digest()
    _root = int.from_bytes(hashed[:16]), int.from_bytes(hashed[16:24])
    try:
        # Later runs start the root span, too, since it decides on sampling, but never send it.
        root = _tracer.start_span(kind, attributes={f"sextant.{kind}.id": resource_id})
    finally:
        _root = None
    if run == 1:
        root.end()
    with _tracer.start_as_current_span(
        "run",
        context=trace.set_span_in_context(root),
        attributes={"sextant.run": run},
        record_exception=False,
        set_status_on_exception=False,
    ):
        yield


def span(
    name: str, attributes: Mapping[str, Attribute], *, is_call: bool = False
) -> AbstractContextManager[None]:
    """A span of the present run.

    Args:
        name: Name of the operation.
        attributes: Attributes of the span; those with the value None are left out.
        is_call: Whether it waits for another machine; a failed call has its error's code.
    """
    return nullcontext() if _tracer is None else _span(_tracer, name, attributes, is_call=is_call)


def note(attributes: Mapping[str, Attribute]) -> None:
    """Add attributes to the present span; those with the value None are left out."""
    if _tracer is not None:
        from opentelemetry import trace

        trace.get_current_span().set_attributes(_known(attributes))


def note_evaluation(name: str, value: float | None, label: str | None) -> None:
    """Add a score to the present span, as the event `gen_ai.evaluation.result`.

    Args:
        name: Name of the scorer or of the figure.
        value: The score; None where there is none.
        label: The score in a word.
    """
    if _tracer is not None:
        from opentelemetry import trace

        score = "gen_ai.evaluation.score"
        told = {"gen_ai.evaluation.name": name, f"{score}.value": value, f"{score}.label": label}
        trace.get_current_span().add_event("gen_ai.evaluation.result", _known(told))


@contextmanager
def _span(
    tracer: "Tracer", name: str, attributes: Mapping[str, Attribute], *, is_call: bool
) -> Iterator[None]:
    from opentelemetry.trace import SpanKind, StatusCode

    # An exception's message may quote an item, so only its code is recorded.
    with tracer.start_as_current_span(
        name,
        kind=SpanKind.CLIENT if is_call else SpanKind.INTERNAL,
        attributes=_known(attributes),
        record_exception=False,
        set_status_on_exception=False,
    ) as one:
        try:
            yield
        except ExamineeError as error:
            one.set_attribute("error.type", error.code)
            one.set_status(StatusCode.ERROR)
            raise


def _known(attributes: Mapping[str, Attribute]) -> dict[str, str | int | float]:
    return {name: value for name, value in attributes.items() if value is not None}

"""OpenTelemetry traces: one for each session, ranking, calibration and installation.

The ids of the root span come from the SHA-256 of the resource's id, so that each worker that
continues it adds a run to the same tree. Below a run are steps, calls of endpoints and scoring,
named after the conventions for generative AI. No span holds a prompt, an answer, a key or an
address, except the host of a call.

The SDK reads its own variables, such as OTEL_SERVICE_NAME; it sends to the operator's collector.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import structlog
from typing_extensions import override

from app.errors import ExamineeError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

Attribute = str | int | float | None

logger = structlog.get_logger(__name__)

_MISSING = (
    "OTEL_EXPORTER_OTLP_ENDPOINT asks for traces, and these need the extra otel: "
    "uv sync --extra otel, or pip install 'sextant-server[otel]'."
)
_tracer: "Tracer | None" = None
#: Trace id and span id of a root span that is about to start.
_root: tuple[int, int] | None = None


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

"""Traces of real sessions, as a collector receives them."""

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, StatusCode
from structlog.testing import capture_logs

from app.observability import run_span, span, traces_sent, traces_to
from app.services.container import Services
from app.worker.loop import running_worker
from tests.services.sessions import figures_of, length
from tests.values import not_none
from tests.worker.models import Faults
from tests.worker.sessions import run_session


async def test_a_session_is_a_tree_with_spans_of_calls(services: Services, faults: Faults) -> None:
    exporter = InMemorySpanExporter()
    with traces_to(exporter):
        async with running_worker(services):
            endpoint = replace(faults.model("mixed"), api_key="sk-never-told")
            ended = await run_session(services, endpoint=endpoint, plan=length(40, concurrency=1))

    spans = exporter.get_finished_spans()
    (root,) = [one for one in spans if one.parent is None]
    assert root.name == "session"
    assert {one.parent.span_id for one in spans if one.parent} <= set(map(span_id, spans))
    hashed = hashlib.sha256(ended.id.encode()).hexdigest()
    assert {f"{ids(one).trace_id:032x}" for one in spans} == {hashed[:32]}

    assert len(named(spans, "step")) == figures_of(ended)["progress"]["items"]
    calls = named(spans, "chat m")
    assert len(calls) == figures_of(ended)["usage"]["calls"]
    failed = [told(one) for one in calls if one.status.status_code is StatusCode.ERROR]
    assert {"endpoint_fault", "endpoint_rate_limited"} <= {one["error.type"] for one in failed}
    tokens = sum(told(one).get("gen_ai.usage.output_tokens", 0) for one in calls)
    assert tokens == figures_of(ended)["usage"]["tokens_out"]
    scores = [event.attributes for one in named(spans, "score") for event in one.events]
    scored = [one for one in scores if one and "gen_ai.evaluation.score.value" in one]
    assert len(scored) == figures_of(ended)["outcomes"]["scored"]
    (run,) = named(spans, "run")
    (result,) = run.events
    score = not_none(result.attributes)["gen_ai.evaluation.score.value"]
    assert score == figures_of(ended)["score"]["value"]

    everything = "".join(one.to_json() for one in spans)
    prompt = faults.calls[0].body["messages"][-1]["content"]
    assert [text for text in ("sk-never-told", prompt[:20]) if text in everything] == []


def test_a_worker_that_takes_over_a_session_extends_its_tree() -> None:
    exporter = InMemorySpanExporter()
    with traces_to(exporter):
        killed = run_span("session", "ses_1", 1)
        killed.__enter__()  # after this it sends no spans
        with run_span("session", "ses_1", 2), span("step", {"sextant.step": 1}):
            pass
    root, step, run = exporter.get_finished_spans()
    assert (root.name, root.parent) == ("session", None)
    assert told(root) == {"sextant.session.id": "ses_1"}
    assert not_none(run.parent).span_id == span_id(root)
    assert not_none(step.parent).span_id == span_id(run)
    assert told(run) == {"sextant.run": 2}


def test_traces_without_the_extra_are_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with capture_logs() as lines, traces_sent("http://127.0.0.1:9"), span("step", {}):
        pass
    (line,) = lines
    assert "uv sync --extra otel" in line["reason"]


def ids(one: ReadableSpan) -> SpanContext:
    assert isinstance(one.context, SpanContext)
    return one.context


def span_id(one: ReadableSpan) -> int:
    return ids(one).span_id


def named(spans: Sequence[ReadableSpan], name: str) -> list[ReadableSpan]:
    return [one for one in spans if one.name == name]


def told(one: ReadableSpan) -> dict[str, Any]:
    return dict(one.attributes or {})

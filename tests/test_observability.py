import json
import logging
import socket
from collections.abc import Iterator
from typing import Any, Literal

import httpx2
import pytest
import structlog

from app.errors import InvalidInputError
from app.observability import (
    OUTCOMES,
    configure_logging,
    metrics_served,
    redact,
    redact_event,
    render_metrics,
)
from app.settings import Settings


@pytest.fixture(autouse=True)
def _logging_is_put_back() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


Capture = pytest.CaptureFixture[str]


def _lines(capsys: Capture) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_line_carries_its_level_time_logger_and_the_bound_context(capsys: Capture) -> None:
    configure_logging(Settings(log_format="json"))
    with structlog.contextvars.bound_contextvars(session_id="ses_1"):
        structlog.get_logger("app.worker").info("item_closed", theta=0.5)
    (line,) = _lines(capsys)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "item_closed",
        "level": "info",
        "logger": "app.worker",
        "session_id": "ses_1",
        "theta": 0.5,
    }


def test_libraries_log_in_the_same_form(capsys: Capture) -> None:
    configure_logging(Settings(log_format="json"))
    logging.getLogger("some.library").warning("lost %s", "it")
    (line,) = _lines(capsys)
    assert (line["event"], line["level"], line["logger"]) == ("lost it", "warning", "some.library")


def test_lines_below_the_level_are_left_out(capsys: Capture) -> None:
    configure_logging(Settings(log_format="json", log_level="warning"))
    structlog.get_logger("app").info("quiet")
    structlog.get_logger("app").warning("loud")
    assert [line["event"] for line in _lines(capsys)] == ["loud"]


def test_configuring_twice_does_not_log_twice(capsys: Capture) -> None:
    configure_logging(Settings(log_format="json"))
    configure_logging(Settings(log_format="json"))
    structlog.get_logger("app").info("once")
    assert len(_lines(capsys)) == 1


def test_console_lines_are_readable(capsys: Capture) -> None:
    configure_logging(Settings(log_format="console"))
    structlog.get_logger("app").info("server_started", port=8000)
    shown = capsys.readouterr().err
    assert "server_started" in shown
    assert "port=8000" in shown


@pytest.mark.parametrize("form", ["console", "json"])
def test_no_secret_reaches_the_log_wherever_it_stands(
    capsys: Capture, form: Literal["console", "json"]
) -> None:
    configure_logging(Settings(log_format=form))
    log = structlog.get_logger("app")
    error = ValueError("refused sk-proj-TOPSECRET1")
    log.error("call_failed", headers={"Authorization": "Basic TOPSECRET2"}, exc_info=error)
    log.info("sent Bearer TOPSECRET3 to it", nested=[{"api_key": "TOPSECRET4"}])
    log.info("connected", url="postgresql://u:TOPSECRET5@db/x", key=b"hf_TOPSECRET6")
    logging.getLogger("lib").warning("key %s", "sxt_TOPSECRET7")
    shown = capsys.readouterr().err
    assert "call_failed" in shown
    assert "TOPSECRET" not in shown


def test_other_values_are_left_unchanged() -> None:
    event = {"event": "asked", "tokens_in": 12, "key": "q7", "items": ["a", None, 1.5], "ok": True}
    assert redact_event(None, "info", dict(event)) == event
    assert redact("task-12 of risk-averse: https://host/a@b is fine") == (
        "task-12 of risk-averse: https://host/a@b is fine"
    )


def test_metrics_have_the_prometheus_format() -> None:
    OUTCOMES.labels("scored").inc()
    body, content_type = render_metrics()
    assert content_type.startswith("text/plain")
    assert b'sextant_outcomes_total{outcome="scored"}' in body
    assert b"sextant_items_asked_total" in body
    assert b"sextant_endpoint_latency_seconds_bucket" in body


def test_a_process_without_an_api_serves_its_metrics() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = pytest.raises(InvalidInputError, match=rf"METRICS_PORT: .* 127.0.0.1:{port}")
        with refused, metrics_served("127.0.0.1", port):
            pass
    url = f"http://127.0.0.1:{port}/metrics"
    with metrics_served("127.0.0.1", port):
        assert "sextant_tokens_total" in httpx2.get(url).text
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(url)


@pytest.mark.parametrize("form", ["console", "json"])
def test_an_exception_is_logged_without_words_that_may_quote_an_answer(
    capsys: Capture, form: Literal["console", "json"]
) -> None:
    configure_logging(Settings(log_format=form))
    answer = "Paris, of course"
    try:
        try:
            int(answer)
        except ValueError as error:
            raise OSError("no space left") from error
    except OSError:
        structlog.get_logger("app").exception("failed")
    shown = capsys.readouterr().err
    assert "Paris" not in shown
    for told in ("builtins.ValueError", "OSError: no space left", "test_observability.py"):
        assert told in shown

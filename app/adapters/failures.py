"""Classification of failures: the one place that interprets replies without an answer.

Endpoints report errors as `{"error": {...}}`, `{"error": str}`, `{"detail": str}`,
`{"detail": [...]}`, `{"message": str}`, plain text or an HTML page.
"""

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from app.adapters.transport import Reply, decoded
from app.errors import (
    ColdStartError,
    EndpointFaultError,
    EndpointRejectedError,
    EndpointUnauthorizedError,
    ExamineeError,
    ExamineeTimeoutError,
    RateLimitedError,
)
from app.items import JsonValue

MAX_QUOTED_CHARS: Final = 300
#: Longest wait that is read, seconds, which is beyond the end of the calendar (year 9999). The
#: retry policy decides how long to wait.
MAX_WAIT_S: Final = 1e12
_DECIMAL = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?")
_LOADING = re.compile(r"\b(loading|starting|initiali[sz]ing|warming|scaling|cold)\b", re.I)
_HTML = re.compile(rb"\s*<(!doctype html|html|head|body)\b", re.I)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.I | re.S)
_CONTENT_FILTER_CODES: Final = frozenset(
    {
        "content_filter",
        "content_policy_violation",
        "responsibleaipolicyviolation",
        "invalid_prompt",
        "moderation",  # our name for OpenRouter's refusals
    }
)
_TRANSIENT_4XX: Final = frozenset({409, 424, 425})


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """An endpoint's error body, whatever its form.

    Attributes:
        status: HTTP status, or the status named in the body of a 200.
        words: The endpoint's message, not shortened.
        code: Error code or type; empty if there is none.
        param: The rejected request parameter, if the endpoint names one.
        is_html: The body is a web page instead of JSON.
        estimated_s: Seconds until a loading model is expected to answer.
        within: Status of a successful reply that reports an error; None for a failed reply.
    """

    status: int
    words: str
    code: str = ""
    param: str | None = None
    is_html: bool = False
    estimated_s: float | None = None
    within: int | None = None

    @property
    def is_content_filter(self) -> bool:
        """Whether a content filter refused the prompt, which is an outcome, not a failure."""
        # LiteLLM names its class of errors instead of the provider's code.
        named = "ContentPolicyViolationError" in self.words
        return named or self.code.lower() in _CONTENT_FILTER_CODES


def read_complaint(reply: Reply) -> Complaint:
    """Find the message, code and parameter of an error body."""
    if is_html(reply):
        text = reply.body[:4096].decode("utf-8", "replace")
        title = _TITLE.search(text)
        return Complaint(
            status=reply.status,
            words=f"a web page{f' titled {title[1].strip()!r}' if title else ''}",
            is_html=True,
        )
    body = None
    with suppress(ValueError, RecursionError):
        body = decoded(reply.body)
    return complaint_in(body, reply.status) or Complaint(
        status=reply.status, words=reply.body.decode("utf-8", "replace").strip()
    )


def complaint_in(body: Any, status: int) -> Complaint | None:
    """The complaint inside a decoded body, which may be that of a 200, or `None`."""
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, dict):
        return None
    error = body.get("error") or body.get("detail") or body.get("errors")
    if isinstance(error, dict):
        return _structured(error, status)
    if isinstance(error, list):
        return Complaint(status=status, words="; ".join(_problem(entry) for entry in error))
    if isinstance(error, str):
        return Complaint(
            status=status,
            words=error,
            code=str(body.get("error_type") or ""),
            estimated_s=_seconds(body.get("estimated_time")),
        )
    if isinstance(body.get("message"), str) and status >= 400:
        return _structured(body, status)
    return None


def _structured(error: dict[str, JsonValue], status: int) -> Complaint:
    code = error.get("code")
    inner = error.get("innererror")
    if isinstance(inner, dict) and inner.get("code"):
        code = inner["code"]
    words = str(error.get("message") or error.get("msg") or json.dumps(error))
    metadata = error.get("metadata")
    if isinstance(metadata, dict):  # of OpenRouter
        if "flagged_input" in metadata:
            code = "moderation"
        if isinstance(metadata.get("raw"), str):  # the provider's own words
            words += f": {metadata['raw']}"
    if status < 400 and isinstance(code, int) and 400 <= code <= 599:
        status = code
    param = error.get("param")
    return Complaint(
        status=status,
        words=words,
        code=code if isinstance(code, str) and code else str(error.get("type") or ""),
        param=param if isinstance(param, str) else None,
    )


def _problem(entry: Any) -> str:
    """One entry of FastAPI's list of validation errors."""
    if not isinstance(entry, dict):
        return str(entry)
    place = entry.get("loc")
    where = ".".join(map(str, place)) if isinstance(place, list) else ""
    return f"{where}: {entry.get('msg')}" if where else str(entry.get("msg") or entry)


def is_html(reply: Reply) -> bool:
    """Whether the reply is a web page."""
    is_typed = reply.headers.get("content-type", "").startswith("text/html")
    is_json = reply.body.lstrip().startswith((b"{", b"["))  # small servers send it as a page
    return (is_typed and not is_json) or _HTML.match(reply.body) is not None


def classify(
    complaint: Complaint, headers: Mapping[str, str], *, where: str, is_503_cold: bool
) -> ExamineeError:
    """The classified error of a failed reply, by its complaint without secrets and its headers.

    `where` is the origin of the endpoint, and `is_503_cold` whether this kind answers 503 while
    no replica is up.
    """
    status = complaint.status
    said = f"{where} answered {status}"
    if complaint.within is not None:
        said = f"{where} answered {complaint.within} with an error in its body"
    if complaint.words:
        said += f": {shorten(complaint.words)}"
    retry_after_s = read_retry_after(headers)
    match status:
        case 401 | 403:
            checked = "check the endpoint's api_key, or SEXTANT_ENDPOINT_KEY for commands"
            return EndpointUnauthorizedError(f"{said} ({checked})", status=status)
        case 408:
            return ExamineeTimeoutError(said, status=status, retry_after_s=retry_after_s)
        case 429 if complaint.code == "insufficient_quota":
            return EndpointRejectedError(f"{said} (the account has no credit left)", status=status)
        case 429:
            return RateLimitedError(said, status=status, retry_after_s=retry_after_s)
        case 503 if is_503_cold or _LOADING.search(complaint.words):
            wait_s = complaint.estimated_s if retry_after_s is None else retry_after_s
            return ColdStartError(said, status=status, retry_after_s=wait_s)
        case _ if status >= 500 or status in _TRANSIENT_4XX:
            return EndpointFaultError(said, status=status, retry_after_s=retry_after_s)
        case _:
            return EndpointRejectedError(f"{said}{_advice(complaint)}", status=status)


def _advice(complaint: Complaint) -> str:
    if complaint.is_html and complaint.status in (404, 405):
        return " (JSON was expected; is base_url missing /v1?)"
    if complaint.status == 404:
        return " (check base_url, which often ends in /v1, and the model name)"
    if complaint.status in (301, 302, 303, 307, 308):
        return " (a redirect that cannot be followed; give the final base_url)"
    return ""


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait: `retry-after-ms`, or `Retry-After` in seconds or as an HTTP date."""
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    if value is None:
        return None
    seconds = _seconds(value)
    if seconds is not None:
        return seconds
    try:
        moment = parsedate_to_datetime(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError):  # not a date, or outside of the calendar
        return None
    return min(max(0.0, seconds), MAX_WAIT_S)


def _seconds(value: object) -> float | None:
    """Seconds as an endpoint wrote them; None unless they are a plain decimal number."""
    if isinstance(value, str) and not _DECIMAL.fullmatch(value.strip()):
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return min(seconds, MAX_WAIT_S) if math.isfinite(seconds) and seconds >= 0 else None


def shorten(text: str) -> str:
    """Shorten a text to one line of at most `MAX_QUOTED_CHARS` characters."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_QUOTED_CHARS else line[: MAX_QUOTED_CHARS - 1] + "…"

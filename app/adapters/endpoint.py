"""Parts of adapters over HTTP: URLs, keys, and a reply's answer, reasoning, tokens, finish."""

import base64
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast
from urllib.parse import quote

import httpx2

from app.adapters.base import Completion, EndpointConfig
from app.adapters.failures import (
    Complaint,
    classify,
    complaint_in,
    is_html,
    read_complaint,
    shorten,
)
from app.adapters.passing import NOTHING_PASSED, OUR_HEADERS, Passed, is_header_value
from app.adapters.transport import (
    SMALL,
    Reply,
    TooManyValuesError,
    Transport,
    decoded,
    off_the_loop,
    origin,
    parse_endpoint_url,
)
from app.errors import (
    AnswerTooLargeError,
    EndpointFaultError,
    ExamineeError,
    InvalidInputError,
    MalformedAnswerError,
)
from app.items import FinishReason, JsonValue

T = TypeVar("T")

_MIN_SECRET_CHARS = 4
"""Shorter header values (`1`, `on`) are no secrets; replacing them would garble every message."""

_MIN_KEY_CHARS = 8
"""Shorter keys stay in answers: `abc` may well be a part of one."""

_HEADER_OF_A_KEY = re.compile(r"key|token|secret|auth|cookie|password|signature")
_HIDDEN = "[redacted]"
_wrong = InvalidInputError.at

_WORDS_OF = {
    FinishReason.STOP: "stop eos eos_token end_turn stop_sequence complete",
    FinishReason.LENGTH: "length max_tokens model_length model_context_window_exceeded",
    FinishReason.CONTENT_FILTER: "content_filter safety refusal sensitive recitation blocklist "
    "prohibited_content spii guardrail_intervened error_toxic",
}
_FINISH = {word: finish for finish, words in _WORDS_OF.items() for word in words.split()}
_MAX_COUNT = 2**31 - 1  # largest integer of Postgres; no answer has more tokens
_BROKEN_OFF = frozenset(
    {"error", "abort", "cancelled", "timeout", "network_error", "insufficient_system_resource"}
)

#: Query parameters that are allowed: they select a provider's model or API revision.
_PUBLIC_PARAMETERS = frozenset(
    {"api-version", "api_version", "version", "deployment", "model", "project", "region"}
)
#: Query parameters that may hold a key; `code` is the key of Azure functions.
_NAMES_A_SECRET = re.compile(r".*(?:key|token|secret|password|signature)|sig|code", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, token


class FilteredError(EndpointFaultError):
    """A successful reply reports that a content filter refused the prompt."""


@dataclass(frozen=True, kw_only=True)
class JsonEndpoint:
    """One URL that receives and returns JSON.

    Attributes:
        credentials: Headers that are sent to the origin of `url` only.
        timeout_s: Time limit of one attempt, seconds.
        is_503_cold: Whether this kind answers 503 while no replica is up.
        passed: Extra parameters of the provider. Headers are sent here; adapters add the fields of
            the body.
    """

    transport: Transport
    url: str
    credentials: Mapping[str, str] = field(repr=False)
    timeout_s: float
    is_503_cold: bool = False
    passed: Passed = NOTHING_PASSED

    async def post(self, payload: Mapping[str, JsonValue]) -> Reply:
        """Send one request and return the reply, whatever its status."""
        try:
            return await self.transport.post_json(
                self.url,
                payload,
                credentials={**self.passed.headers, **self.credentials},
                timeout_s=self.timeout_s,
            )
        except ExamineeError as error:  # a redirect may contain sent secrets
            error.detail = self.redact(error.detail)
            raise

    async def ask(self, payload: Mapping[str, JsonValue], read: Callable[[Reply], T]) -> T:
        """Send one request and return the result of `read` on a successful reply.

        Raises:
            ExamineeError: A classified error.
        """
        reply = await self.post(payload)
        if reply.status >= 300:
            raise self.failure(reply, await self.complaint(reply))
        return await off_the_loop(reply, read)

    def read(self, reply: Reply) -> dict[str, JsonValue]:
        """The JSON object of a successful reply, or of a list of one object, without our key.

        Raises:
            MalformedAnswerError: Not a JSON object.
            AnswerTooLargeError: The object holds too many values.
            FilteredError: The body of a 200 reports a content filter.
            ExamineeError: The body of a 200 reports another error.
        """
        try:
            body = decoded(reply.body)
        except TooManyValuesError as exc:
            raise AnswerTooLargeError(f"{self.where} answered with {exc}.") from exc
        except (ValueError, RecursionError) as exc:
            raise self.malformed(reply, "is not JSON") from exc
        if isinstance(body, list) and len(body) == 1:
            body = body[0]
        if not isinstance(body, dict):
            raise self.malformed(reply, "is not a JSON object")
        if complaint := _complaint_of(body, reply.status):
            # An error in a successful reply counts as a server fault unless it names a status.
            status = complaint.status if complaint.status >= 400 else 502
            found = replace(self._redacted(complaint), status=status, within=reply.status)
            failure = self.failure(reply, found)
            if found.is_content_filter:
                raise FilteredError(failure.detail, status=status)
            raise failure
        try:
            return cast(dict[str, JsonValue], self._without_keys(body))
        except RecursionError as exc:
            raise self.malformed(reply, "is nested too deeply") from exc

    def _without_keys(self, value: Any) -> Any:
        if not self._answer_secrets:  # searching half a million values takes half a second
            return value
        match value:
            case str():
                return hide(value, self._answer_secrets)
            case list():
                return [self._without_keys(entry) for entry in value]
            case dict():
                return {
                    self._without_keys(name): self._without_keys(entry)
                    for name, entry in value.items()
                }
            case _:
                return value

    async def complaint(self, reply: Reply) -> Complaint:
        """Complaint of an unsuccessful reply, without secrets."""
        return await off_the_loop(reply, lambda sent: self._redacted(read_complaint(sent)))

    def failure(self, reply: Reply, complaint: Complaint) -> ExamineeError:
        """The classified error of a complaint."""
        return classify(complaint, reply.headers, where=self.where, is_503_cold=self.is_503_cold)

    def malformed(self, reply: Reply, what: str) -> MalformedAnswerError:
        """Error of a reply with status 200 that cannot be used."""
        if is_html(reply):
            return MalformedAnswerError(
                f"{self.where} answered with a web page instead of JSON; is base_url missing /v1?",
                status=reply.status,
            )
        start = shorten(self.redact(reply.body[:SMALL].decode("utf-8", "replace")))
        return MalformedAnswerError(
            f"The answer of {self.where} {what}; it begins {start!r}.", status=reply.status
        )

    def _redacted(self, complaint: Complaint) -> Complaint:
        return replace(complaint, words=self.redact(complaint.words[:SMALL]))

    @property
    def where(self) -> str:
        """Origin of the endpoint, for messages."""
        return origin(self.url)

    def redact(self, text: str) -> str:
        """Remove our credentials from an endpoint's error message."""
        values = self.credentials.values()
        found = [secret for value in values for secret in (value, _bare(value))]
        spelt = [each for secret in found for each in spellings(secret)]
        return clean(hide(text, [each for each in spelt if len(each) >= _MIN_SECRET_CHARS]))

    @cached_property
    def _answer_secrets(self) -> tuple[str, ...]:
        """Secrets to remove from answers; short or common values would remove ordinary words."""
        keys = [
            _bare(value)
            for name, value in self.credentials.items()
            if name == "authorization" or _HEADER_OF_A_KEY.search(name)
        ]
        return tuple(
            spelt for key in keys if len(key) >= _MIN_KEY_CHARS for spelt in spellings(key)
        )


def _complaint_of(body: dict[str, Any], status: int) -> Complaint | None:
    """The error in a successful reply; some gateways put it beside or into the choice."""
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        return complaint_in(body, status)
    for place in (body, choices[0]):
        error = place.get("error") if isinstance(place, dict) else None
        is_error = any(error.values()) if isinstance(error, dict) else bool(error)
        if is_error:
            return complaint_in({"error": error}, status)
    return None


def require_public_url(base_url: str) -> None:
    """Refuse a URL that could hold a secret, as it is stored and shown.

    Query parameters need to be on an allow list, so that no other name of a key gets through.

    Raises:
        InvalidInputError: Not a URL, or one with user information, a fragment, or a query parameter
            that is not on the list.
    """
    url = _parsed(base_url)
    if "#" in base_url:
        raise _wrong("/base_url", "base_url must not carry a fragment (#...): it is never sent.")
    refused = next((name for name in url.params if name not in _PUBLIC_PARAMETERS), None)
    if refused is not None:
        detail = (
            f"base_url must not carry the query parameter {refused!r}: it is stored and shown "
            f"in the clear, so its query may hold only {', '.join(sorted(_PUBLIC_PARAMETERS))}. "
            "Give a key as api_key or in headers."
        )
        raise _wrong("/base_url", detail)


def _parsed(base_url: str) -> httpx2.URL:
    try:
        return parse_endpoint_url(base_url)
    except ValueError as exc:
        detail = f"base_url {exc}; got {_shown(base_url)!r}."
        raise _wrong("/base_url", detail) from None


def json_endpoint(
    config: EndpointConfig,
    transport: Transport,
    *,
    route: str,
    is_503_cold: bool = False,
    passed: Passed = NOTHING_PASSED,
) -> JsonEndpoint:
    """The endpoint at `base_url` + `route`; a base_url that ends in the route is used as it is.

    A query (`?api-version=...`) remains behind the joined path.

    Raises:
        InvalidInputError: base_url, key or a header cannot be used, or the query holds a key.
    """
    url = _parsed(config.base_url)
    if secret := next(filter(_NAMES_A_SECRET.fullmatch, url.params), None):
        detail = (
            f"base_url must not carry a key in its query ({secret!r}): it is stored and shown in "
            "the clear. Give the key as api_key or in headers."
        )
        raise _wrong("/base_url", detail)
    path = url.path.rstrip("/")
    if not path.endswith(route):
        url = url.copy_with(path=path + route)
    if not 0 < config.timeout_s < math.inf:
        raise _wrong("/timeout_s", f"timeout_s: expected seconds above 0, got {config.timeout_s}.")
    return JsonEndpoint(
        transport=transport,
        url=str(url),
        credentials=_credentials(config),
        timeout_s=config.timeout_s,
        is_503_cold=is_503_cold,
        passed=passed,
    )


def _credentials(config: EndpointConfig) -> dict[str, str]:
    credentials = {}
    if config.api_key:
        if not is_header_value(config.api_key):
            raise _wrong("/api_key", "api_key holds characters that no HTTP header can carry.")
        credentials["authorization"] = f"Bearer {config.api_key}"
    for name, value in config.headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in OUR_HEADERS:
            raise _wrong(
                "/headers",
                f"The header {name!r} cannot be set: its name is invalid, or Sextant sets it "
                "itself.",
            )
        if not is_header_value(value):
            raise _wrong(
                "/headers", f"The header {name!r} holds characters that no HTTP header can carry."
            )
        credentials[name.lower()] = value
    return credentials


def require_model(config: EndpointConfig) -> None:
    """Refuse a configuration without a model name, by an `InvalidInputError`."""
    if not config.model:
        raise _wrong("/model", f"An endpoint of kind {config.kind!r} needs the name of a model.")


def _shown(url: str) -> str:
    """`url` without user information and query, which may be secret."""
    text = re.split("[?#]", url, maxsplit=1)[0]
    scheme, mark, rest = text.partition("://")
    return f"{scheme}{mark}…@{rest.rpartition('@')[2]}" if "@" in rest else text


def completion(
    *,
    raw: str,
    reasoning: str | None,
    finish_word: object,
    tags: tuple[str, str],
    stop: Iterable[str],
    tokens_in: object,
    tokens_out: object,
    latency_s: float,
    model: object,
) -> Completion:
    """Build a completion from the fields of an endpoint's reply, which are checked.

    The text ends at the first of `stop`: some models refuse stop sequences, some gateways drop
    them, and Text Generation Inference leaves them at the end.

    Raises:
        EndpointFaultError: The endpoint says that it aborted the answer.
    """
    # Some gateways give details behind a colon: `content_filter: RECITATION`.
    word = finish_word.lower().partition(":")[0] if isinstance(finish_word, str) else ""
    if word in _BROKEN_OFF:
        raise EndpointFaultError(f"The endpoint broke off its answer (finish_reason {word!r}).")
    raw = clean(raw)
    split = split_reasoning(
        raw,
        given=clean(reasoning) if reasoning else None,
        tags=tags,
        finish=_FINISH.get(word, FinishReason.UNKNOWN),
    )
    # Blank lines before an answer, as they stand behind hidden reasoning, do not end it.
    begin = len(split.text) - len(split.text.lstrip())
    found = (split.text.find(mark, begin if mark.isspace() else 0) for mark in stop)
    end = min((at for at in found if at >= 0), default=None)
    is_withheld = split.finish is FinishReason.CONTENT_FILTER  # what is left may be a refusal
    return Completion(
        text=split.text[:end],
        raw=raw,
        reasoning=split.reasoning,
        finish=split.finish if end is None or is_withheld else FinishReason.STOP,
        tokens_in=token_count(tokens_in),
        tokens_out=token_count(tokens_out),
        latency_s=latency_s,
        model=clean(model) if isinstance(model, str) else None,
    )


def token_count(value: object) -> int | None:
    """A number of tokens as an endpoint reported it; `None` if it is invalid."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= len(str(_MAX_COUNT)):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT:
        return value
    return None


def spellings(secret: str) -> list[str]:
    """A secret's spellings in texts, URLs, base64 and hexadecimal, the longest first."""
    raw = secret.encode()
    written = {secret, quote(secret), quote(secret, safe=""), raw.hex(), raw.hex().upper()}
    for before in range(3):  # base64 depends on the offset at which the secret begins
        coded = base64.b64encode(b"\0" * before + raw)
        # Keep the characters that do not depend on neighbouring bytes.
        inner = coded[-(-before * 4 // 3) : (before + len(raw)) * 4 // 3].decode()
        written |= {inner, inner.replace("+", "-").replace("/", "_")}
    return sorted(written, key=len, reverse=True)


def hide(text: str, secrets: Iterable[str]) -> str:
    """`text` without these secrets."""
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return text


def _bare(value: str) -> str:
    """A header's value without a scheme such as `Bearer`."""
    scheme, space, rest = value.partition(" ")
    return rest if space and scheme.isalpha() else value


def clean(text: str) -> str:
    """Replace what Postgres cannot store as text: lone surrogates and NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


@dataclass(frozen=True, slots=True)
class Split:
    """Visible answer, reasoning, and whether the reasoning was cut off."""

    text: str
    reasoning: str | None
    finish: FinishReason


def split_reasoning(
    raw: str, *, given: str | None, tags: tuple[str, str], finish: FinishReason
) -> Split:
    """Remove tagged reasoning from `raw`, and join it to that of a separate field, `given`.

    A closing tag without an opening one ends reasoning that began with the text, as some chat
    templates put the opening tag into the prompt. An opening tag without a closing one means that
    the reasoning was cut off, whatever the finish reason: none of it is an answer.
    """
    opening, closing = tags
    thoughts = [given] if given else []
    kept = []
    at = 0  # position in `raw`, as cutting the text would copy the rest for every tag
    if opening and closing:
        close = raw.find(closing)
        if close >= 0 and raw.find(opening, 0, close) < 0:
            thoughts.append(raw[:close])
            at = close + len(closing)
        while (begin := raw.find(opening, at)) >= 0:
            kept.append(raw[at:begin])
            begin += len(opening)
            close = raw.find(closing, begin)
            if close < 0:
                return Split("", _joined([*thoughts, raw[begin:]]), FinishReason.LENGTH)
            thoughts.append(raw[begin:close])
            at = close + len(closing)
    if not thoughts:
        return Split(raw, None, finish)
    return Split("".join([*kept, raw[at:]]).strip(), _joined(thoughts), finish)


def _joined(thoughts: list[str]) -> str | None:
    return "\n\n".join(stripped for thought in thoughts if (stripped := thought.strip())) or None

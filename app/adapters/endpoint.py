"""What every adapter over HTTP shares: where to send, with which key, and how to read a reply."""

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

_FINISH = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "eos_token": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
    "safety": FinishReason.CONTENT_FILTER,
}
_MAX_COUNT = 2**31 - 1  # no answer has more tokens, and Postgres' integer holds no more
_BROKEN_OFF = frozenset({"error", "abort"})

#: What a query may say: which of its models or revisions of its API a provider shall use.
_PUBLIC_PARAMETERS = frozenset(
    {"api-version", "api_version", "version", "deployment", "model", "project", "region"}
)
#: Parameters of a query that servers take keys by; `code` is that of Azure's functions.
_NAMES_A_SECRET = re.compile(r".*(?:key|token|secret|password|signature)|sig|code", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, token


@dataclass(frozen=True, kw_only=True)
class JsonEndpoint:
    """One URL that takes and gives JSON.

    Attributes:
        transport: The process's HTTP client.
        url: Where to POST.
        credentials: Headers for the origin of `url` only.
        timeout_s: For one attempt.
        is_503_cold: Whether this kind answers 503 while no replica is up.
        passed: Parameters of the provider: its headers go along; adapters put the body's where
            they belong.
    """

    transport: Transport
    url: str
    credentials: Mapping[str, str] = field(repr=False)
    timeout_s: float
    is_503_cold: bool = False
    passed: Passed = NOTHING_PASSED

    async def post(self, payload: Mapping[str, JsonValue]) -> Reply:
        """Send one request; any status comes back."""
        try:
            return await self.transport.post_json(
                self.url,
                payload,
                credentials={**self.passed.headers, **self.credentials},
                timeout_s=self.timeout_s,
            )
        except ExamineeError as error:  # a redirect may carry what was sent
            error.detail = self.redact(error.detail)
            raise

    async def ask(self, payload: Mapping[str, JsonValue], read: Callable[[Reply], T]) -> T:
        """Send one request; what `read` makes of a successful reply.

        Raises:
            ExamineeError: Classified.
        """
        reply = await self.post(payload)
        if reply.status >= 300:
            raise self.failure(reply, await self.complaint(reply))
        return await off_the_loop(reply, read)

    def read(self, reply: Reply) -> dict[str, JsonValue]:
        """The JSON object of a successful reply, our key taken out; a list of one is that one.

        Raises:
            MalformedAnswerError: Not a JSON object.
            AnswerTooLargeError: It holds too many values.
            ExamineeError: The body of a 200 reports an error.
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
        if "choices" not in body and (complaint := complaint_in(body, reply.status)):
            # An error dressed up as a success counts as a fault unless it names its status.
            status = complaint.status if complaint.status >= 400 else 502
            found = replace(self._redacted(complaint), status=status, within=reply.status)
            raise self.failure(reply, found)
        try:
            return cast(dict[str, JsonValue], self._without_keys(body))
        except RecursionError as exc:
            raise self.malformed(reply, "is nested too deeply") from exc

    def _without_keys(self, value: Any) -> Any:
        if not self._answer_secrets:  # looking through half a million values takes half a second
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
        """What an unsuccessful reply says, secrets taken out."""
        return await off_the_loop(reply, lambda sent: self._redacted(read_complaint(sent)))

    def failure(self, reply: Reply, complaint: Complaint) -> ExamineeError:
        """The error that `complaint` stands for."""
        return classify(complaint, reply.headers, where=self.where, is_503_cold=self.is_503_cold)

    def malformed(self, reply: Reply, what: str) -> MalformedAnswerError:
        """A reply of status 200 that cannot be used."""
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
        url = parse_endpoint_url(self.url)
        return f"{url.scheme}://{url.netloc.decode('ascii')}"

    def redact(self, text: str) -> str:
        """Take our own credentials out of an endpoint's words about a failure."""
        values = self.credentials.values()
        found = [secret for value in values for secret in (value, _bare(value))]
        spelt = [each for secret in found for each in spellings(secret)]
        return clean(hide(text, [each for each in spelt if len(each) >= _MIN_SECRET_CHARS]))

    @cached_property
    def _answer_secrets(self) -> tuple[str, ...]:
        """What answers must not hold: a short or everyday value would take words out of them."""
        keys = [
            _bare(value)
            for name, value in self.credentials.items()
            if name == "authorization" or _HEADER_OF_A_KEY.search(name)
        ]
        return tuple(
            spelt for key in keys if len(key) >= _MIN_KEY_CHARS for spelt in spellings(key)
        )


def require_public_url(base_url: str) -> None:
    """Refuse an address that is stored and shown if it could hold a secret.

    A query is let through by an allow rule: who invents a name for a key finds no gap in it.

    Raises:
        InvalidInputError: Not a URL, or one with user information, a fragment, or a query parameter
            that no provider needs to tell apart what it serves.
    """
    url = _parsed(base_url)
    if "#" in base_url:
        raise _wrong("/base_url", "base_url must not carry a fragment (#...): it is never sent.")
    refused = next((name for name in url.params if name not in _PUBLIC_PARAMETERS), None)
    if refused is not None:
        detail = (
            f"base_url must not carry the query parameter {refused!r}: it is stored and shown in "
            f"the clear, so of queries it takes {', '.join(sorted(_PUBLIC_PARAMETERS))} only. "
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
    passed: Passed | None = None,
) -> JsonEndpoint:
    """The endpoint at `base_url` + `route`; a base_url that ends in the route is taken as it is.

    A query (`?api-version=...`) stays behind the joined path.

    Raises:
        InvalidInputError: base_url, key or a header cannot be used; a query that holds a key.
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
        passed=passed or NOTHING_PASSED,
    )


def _credentials(config: EndpointConfig) -> dict[str, str]:
    credentials = {}
    if config.api_key:
        if not is_header_value(config.api_key):
            raise _wrong("/api_key", "api_key holds characters that no HTTP header can carry.")
        credentials["authorization"] = f"Bearer {config.api_key}"
    for name, value in config.headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in OUR_HEADERS:
            raise _wrong("/headers", f"The header {name!r} cannot be set.")
        if not is_header_value(value):
            raise _wrong("/headers", f"The header {name!r} holds characters that none can carry.")
        credentials[name.lower()] = value
    return credentials


def require_model(config: EndpointConfig) -> None:
    """Refuse a configuration without a model name.

    Raises:
        InvalidInputError: The name is empty.
    """
    if not config.model:
        raise _wrong("/model", f"An endpoint of kind {config.kind!r} needs the name of a model.")


def refuse_options(config: EndpointConfig) -> None:
    """Refuse options for a kind that has none.

    Raises:
        InvalidInputError: There are some.
    """
    if config.options:
        detail = f"An endpoint of kind {config.kind!r} takes no options, got {[*config.options]}."
        raise _wrong("/options", detail)


def _shown(url: str) -> str:
    """`url` without what may be secret: user information and query."""
    text = re.split("[?#]", url, maxsplit=1)[0]
    scheme, mark, rest = text.partition("://")
    return f"{scheme}{mark}…@{rest.rpartition('@')[2]}" if "@" in rest else text


def completion(
    *,
    raw: str,
    reasoning: str | None,
    finish_word: object,
    tags: tuple[str, str],
    tokens_in: object,
    tokens_out: object,
    latency_s: float,
    model: object,
) -> Completion:
    """Build a completion from fields as an endpoint gave them, each checked.

    Raises:
        EndpointFaultError: The endpoint says that it broke off.
    """
    word = finish_word.lower() if isinstance(finish_word, str) else ""
    if word in _BROKEN_OFF:
        raise EndpointFaultError(f"The endpoint broke off its answer (finish_reason {word!r}).")
    raw = clean(raw)
    split = split_reasoning(
        raw,
        given=clean(reasoning) if reasoning else None,
        tags=tags,
        finish=_FINISH.get(word, FinishReason.UNKNOWN),
    )
    return Completion(
        text=split.text,
        raw=raw,
        reasoning=split.reasoning,
        finish=split.finish,
        tokens_in=token_count(tokens_in),
        tokens_out=token_count(tokens_out),
        latency_s=latency_s,
        model=clean(model) if isinstance(model, str) else None,
    )


def token_count(value: object) -> int | None:
    """A number of tokens as an endpoint gave it; `None` where it makes no sense."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= len(str(_MAX_COUNT)):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT:
        return value
    return None


def spellings(secret: str) -> list[str]:
    """A secret as it is written in texts, URLs, base64 and hexadecimal; the longest first."""
    raw = secret.encode()
    written = {secret, quote(secret), quote(secret, safe=""), raw.hex(), raw.hex().upper()}
    for before in range(3):  # base64 looks different by where in the coded text the secret begins
        coded = base64.b64encode(b"\0" * before + raw)
        # Only the characters that no neighbour has a part in.
        inner = coded[-(-before * 4 // 3) : (before + len(raw)) * 4 // 3].decode()
        written |= {inner, inner.replace("+", "-").replace("/", "_")}
    return sorted(written, key=len, reverse=True)


def hide(text: str, secrets: Iterable[str]) -> str:
    """`text` without these secrets."""
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return text


def _bare(value: str) -> str:
    """A header's value without the scheme before a key, such as `Bearer`."""
    scheme, space, rest = value.partition(" ")
    return rest if space and scheme.isalpha() else value


def clean(text: str) -> str:
    """Replace what Postgres cannot store as text: lone surrogates and NUL."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


@dataclass(frozen=True, slots=True)
class Split:
    """Visible answer, thoughts, and whether a thought was left unfinished."""

    text: str
    reasoning: str | None
    finish: FinishReason


def split_reasoning(
    raw: str, *, given: str | None, tags: tuple[str, str], finish: FinishReason
) -> Split:
    """Cut every marked thought out of `raw`.

    A closing mark without an opening one ends a thought that began with the text: some chat
    templates put the opening mark into the prompt. An opening mark without a closing one means
    that the thought was cut off, whatever the endpoint said: nothing of it is an answer.

    Args:
        raw: The text as it came.
        given: Reasoning that came in a field of its own.
        tags: Opening and closing mark.
        finish: What the endpoint said.
    """
    opening, closing = tags
    thoughts = [given] if given else []
    kept = []
    at = 0  # a place in `raw`: to cut off what was read would copy the rest for every mark
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

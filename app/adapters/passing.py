"""A provider's parameters that are sent with every call: `extra_body` and `extra_headers`.

Both are stored and shown unencrypted with the endpoint and with every result, so they may not hold
secrets. They may not repeat or override the endpoint's other settings either.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from app.adapters.base import EndpointConfig
from app.errors import FieldProblem, InvalidInputError
from app.items import JsonValue

MAX_BODY_BYTES: Final = 16_384
MAX_HEADERS: Final = 16
MAX_HEADER_CHARS: Final = 1_000
_MAX_DEPTH: Final = 8

#: Fields that Sextant sets, by the prompt, the endpoint's `sampling` or the way of asking.
_OWN: Final = frozenset(
    {
        *("model", "messages", "prompt", "inputs", "input", "parameters"),
        *("stream", "stream_options", "n", "best_of", "response_format"),
        *("echo", "logprobs", "top_logprobs", "prompt_logprobs"),
        *("temperature", "top_p", "max_tokens", "max_completion_tokens", "max_new_tokens"),
        *("seed", "stop", "do_sample", "details", "decoder_input_details", "return_full_text"),
    }
)
_NAMES_A_SECRET: Final = re.compile(
    r"(?:^|[_\-.])(?:api_?-?key|apikey|access_?-?key|key|secret|password|passwd|credentials?|"
    r"authorization|auth|bearer|cookie|signature|token)$",
    re.IGNORECASE,
)
#: Names of fields that hold single tokens of a vocabulary, which are no secrets.
_NAMES_A_WORD: Final = re.compile(r"(?:bos|eos|pad|unk|sep|stop|end)_token$", re.IGNORECASE)
_IS_A_SECRET: Final = re.compile(
    r"\b(?:sk|pk|rk|hf|gh[pousr]|xox[abpr]|glpat)[-_][0-9A-Za-z_\-]{8,}|\bAKIA[0-9A-Z]{12,}|"
    r"\bBearer\s+\S{8,}|\beyJ[0-9A-Za-z_\-]{10,}\."
)
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9-]{1,100}")
OUR_HEADERS: Final = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "connection"}
)


@dataclass(frozen=True, slots=True)
class Passed:
    """Extra parameters of every call.

    Attributes:
        headers: Request headers, with lower-case names.
    """

    body: Mapping[str, JsonValue] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


NOTHING_PASSED: Final = Passed()


def passed_on(config: EndpointConfig) -> Passed:
    """Read the options of an endpoint that has these two options only.

    Raises:
        InvalidInputError: An option is unknown, holds a secret, or repeats another setting.
    """
    for name in config.options:
        if name not in ("extra_body", "extra_headers"):
            raise _wrong(
                name,
                f"an endpoint of kind {config.kind!r} takes extra_body and extra_headers, got "
                f"{name!r}",
            )
    body, headers = config.options.get("extra_body", {}), config.options.get("extra_headers", {})
    if not isinstance(body, Mapping):
        raise _wrong("extra_body", f"expected a JSON object, got {type(body).__name__}")
    if not isinstance(headers, Mapping):
        raise _wrong("extra_headers", f"expected an object of texts, got {type(headers).__name__}")
    _check_body(body, config)
    _check_headers(headers, config)
    return Passed(dict(body), {name.lower(): value for name, value in headers.items()})


def _check_body(body: Mapping[str, JsonValue], config: EndpointConfig) -> None:
    taken = sorted(_OWN & body.keys())
    if taken:
        raise _wrong(
            f"extra_body/{taken[0]}",
            f"{taken[0]!r} is set by Sextant from the model, the prompt or `sampling`: leave it "
            "out",
        )
    _check_value(body, "extra_body", config, depth=0)
    size = len(json.dumps(body, ensure_ascii=False).encode(errors="replace"))
    if size > MAX_BODY_BYTES:
        raise _wrong("extra_body", f"expected at most {MAX_BODY_BYTES} bytes, got {size}")


def _check_value(value: object, where: str, config: EndpointConfig, *, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise _wrong("extra_body", f"expected at most {_MAX_DEPTH} levels, got more")
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if _NAMES_A_SECRET.search(name) and not _NAMES_A_WORD.search(name):
                raise _secret(where, f"{name!r}")
            _check_value(inner, where, config, depth=depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _check_value(inner, where, config, depth=depth + 1)
    elif isinstance(value, str) and _holds_a_secret(value, config):
        raise _secret(where, "a value that looks like a key")


def _check_headers(headers: Mapping[str, object], config: EndpointConfig) -> None:
    if len(headers) > MAX_HEADERS:
        raise _wrong("extra_headers", f"expected at most {MAX_HEADERS}, got {len(headers)}")
    for name, value in headers.items():
        where = f"extra_headers/{name}"
        if not _HEADER_NAME.fullmatch(name) or name.lower() in {*OUR_HEADERS, "accept"}:
            raise _wrong(
                "extra_headers",
                f"the header {name[:100]!r} cannot be set: its name is invalid, or Sextant sets "
                "it itself",
            )
        if not (isinstance(value, str) and is_header_value(value, MAX_HEADER_CHARS)):
            raise _wrong(
                where, f"expected a text of at most {MAX_HEADER_CHARS} printable ASCII characters"
            )
        if _NAMES_A_SECRET.search(name) or _holds_a_secret(value, config):
            raise _secret(where, f"the header {name!r}")
        if name.lower() in {given.lower() for given in config.headers}:
            raise _wrong(where, f"the header {name!r} is given in headers already")


def is_header_value(text: str, most: float = math.inf) -> bool:
    """Whether `text` is a valid header value of at most `most` characters."""
    is_plain = text.isascii() and text.isprintable() and text == text.strip()
    return is_plain and len(text) <= most


def _holds_a_secret(text: str, config: EndpointConfig) -> bool:
    known = [secret for secret in (config.api_key, *config.headers.values()) if secret]
    held = any(len(secret) >= 8 and secret in text for secret in known)
    return held or _IS_A_SECRET.search(text[:MAX_BODY_BYTES]) is not None


def _secret(where: str, what: str) -> InvalidInputError:
    return _wrong(
        where,
        f"{what} looks like a secret, and options are stored and shown in the clear: give it as "
        "api_key or in headers",
    )


def _wrong(name: str, detail: str) -> InvalidInputError:
    return InvalidInputError(
        f"options: {detail}.", problems=[FieldProblem(f"/options/{name}", detail)]
    )

"""Parse one item of a file or a request: named fields in, a checked `ItemRecord` out.

The table of fields is in `app/exchange/items.py`.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import cast, get_args

from typing_extensions import TypedDict

from app.errors import InvalidInputError
from app.exchange.files import MAX_PROBLEMS, Problems
from app.exchange.parameters import SLOPE, WrittenParameters, is_too_flat, own_names
from app.items import ItemContent, JsonValue, Message, Role, ScorerSpec, choice_letter

MAX_KEY_CHARS = 512
MAX_CHOICES = 26
MAX_TAGS = 64
MAX_TOKENS = 10_000_000
MAX_DEPTH = 32
#: Characters of an unknown field's name that are compared with known names, for a suggestion.
_MAX_NAME = 100
# With this limit, products of two parameters and their exponentials remain finite.
MAX_PARAMETER = 1e6
_LIMITS = dict.fromkeys(("a", "b", "c", "d", "k"), MAX_PARAMETER) | {"intercept": MAX_PARAMETER**2}

PARAMETER_FIELDS = ("a", "b", "intercept", "c", "d", "k")
SLOPES = "slopes"
FIELDS = frozenset(
    {"id", "key", "prompt", "messages", "choices", "target", "tags", "group", "scorer"}
    | {"expected_tokens", "difficulty", SLOPES, *PARAMETER_FIELDS}
)


class ItemFields(TypedDict, total=False):
    """Fields of an item as our own code writes them; see the table in `app/exchange/items.py`."""

    key: str
    prompt: str
    messages: list[dict[str, str]]
    choices: list[str]
    target: str | list[str] | None
    tags: list[str]
    expected_tokens: dict[str, int]
    a: float
    intercept: float
    c: float
    d: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemRecord:
    """One item of a file or a request.

    Attributes:
        parameters: Parameters written beside the item; `None` if the row has none.
        difficulty: An author's guess of the difficulty, on any scale that rises with it.
        row: Line in the file, from 1; 0 for an item that is not from a file.
    """

    key: str
    content: ItemContent
    scorer: ScorerSpec | None = None
    tags: tuple[str, ...] = ()
    group: str | None = None
    expected_tokens_in: int | None = None
    expected_tokens_out: int | None = None
    parameters: WrittenParameters | None = None
    difficulty: float | None = None
    row: int = 0


def parse_item(
    fields: Mapping[str, object],
    *,
    row: int = 0,
    place: Callable[[str], str] = "/{}".format,
) -> ItemRecord:
    """Parse one item from its named fields (table in `app/exchange/items.py`).

    `row` is stored in the record. `place` turns a field's name into the pointer of its faults.

    Raises:
        InvalidInputError: There are faulty fields; the error has one problem for each.
    """
    return _ItemParser(cast(Mapping[str, JsonValue], fields), place).parse(row)


#: Names that other formats use for our fields.
_OTHER_NAMES = {
    **dict.fromkeys(("question", "input", "text", "query", "problem"), "prompt"),
    **dict.fromkeys(("answer", "output", "expected", "gold", "label", "solution"), "target"),
    "options": "choices",
}


class _ItemParser:
    """Checks the fields of one item and collects every fault before it gives up."""

    def __init__(self, fields: Mapping[str, JsonValue], place: Callable[[str], str]) -> None:
        self._fields = {name: value for name, value in fields.items() if value is not None}
        self._place = place
        self._problems = Problems()

    def parse(self, row: int) -> ItemRecord:
        unknown = self._fields.keys() - FIELDS
        for name in islice(unknown, MAX_PROBLEMS):
            self._unknown(name)
        tokens = self._expected_tokens()
        record = ItemRecord(
            key=self._key(),
            content=self._content(),
            scorer=self._scorer(),
            tags=self._tags(),
            group=self._text("group", max_chars=MAX_KEY_CHARS),
            expected_tokens_in=tokens[0],
            expected_tokens_out=tokens[1],
            parameters=self._parameters(),
            difficulty=self._difficulty(),
            row=row,
        )
        self._problems.raise_any("The item", InvalidInputError)
        return record

    def _unknown(self, name: str) -> None:
        if ours := _OTHER_NAMES.get(name.lower()):
            self._problems.add(
                self._place(name),
                f"no such field; if it is the {ours}, name it {ours!r} or map it: "
                f"--map {ours}={name}",
            )
        elif close := get_close_matches(name[:_MAX_NAME], FIELDS, n=1):
            self._problems.add(self._place(name), f"no such field; did you mean {close[0]!r}?")
        else:
            self._fault(name, f"one of the fields {', '.join(sorted(FIELDS))}", name)

    def _fault(self, field: str, expected: str, got: object) -> None:
        shown = repr(got)
        if len(shown) > 80:
            shown = f"{shown[:77]}..."
        self._problems.add(self._place(field), f"expected {expected}, got {shown}")

    def _text(self, field: str, *, max_chars: int | None = None) -> str | None:
        value = self._fields.get(field)
        if value is None:
            return None
        if not isinstance(value, str) or not value.strip():
            self._fault(field, "a text that is not blank", value)
            return None
        if not is_clean_json(value):
            self._fault(field, "text without NUL or half a surrogate pair", value)
            return None
        if max_chars is not None and len(value) > max_chars:
            self._fault(field, f"at most {max_chars} characters", f"{len(value)} characters")
            return None
        return value

    def _key(self) -> str:
        given = [name for name in ("key", "id") if name in self._fields]
        if len(given) != 1:
            self._fault("key", "exactly one of `key` and `id`", given or "neither")
            return ""
        name = given[0]
        # Some data sets number their items: 17 and "17" are the same name.
        if isinstance(self._fields[name], int) and not isinstance(self._fields[name], bool):
            self._fields[name] = str(self._fields[name])
        return (self._text(name, max_chars=MAX_KEY_CHARS) or "").strip()

    def _content(self) -> ItemContent:
        prompt = self._text("prompt")
        messages = self._messages()
        given = [name for name in ("prompt", "messages") if name in self._fields]
        if len(given) != 1:
            self._fault("prompt", "exactly one of `prompt` and `messages`", given or "neither")
        choices = self._choices()
        return ItemContent(
            prompt=prompt, messages=messages, choices=choices, target=self._target(choices)
        )

    def _messages(self) -> tuple[Message, ...]:
        value = self._fields.get("messages")
        if value is None:
            return ()
        roles = get_args(Role)
        if not isinstance(value, list) or not value:
            self._fault("messages", "a list of {role, content} that is not empty", value)
            return ()
        messages = []
        for message in value:
            if (
                not isinstance(message, dict)
                or message.keys() != {"role", "content"}
                or message["role"] not in roles
                or not isinstance(message["content"], str)
                or not is_clean_json(message["content"])
            ):
                self._fault("messages", f"role of {', '.join(roles)} and content text", message)
                return ()
            messages.append(Message(cast(Role, message["role"]), message["content"]))
        return tuple(messages)

    def _choices(self) -> tuple[str, ...]:
        value = self._fields.get("choices")
        if value is None or value == []:
            return ()
        if not isinstance(value, list) or not 2 <= len(value) <= MAX_CHOICES:
            self._fault("choices", f"a list of 2 to {MAX_CHOICES} options", value)
            return ()
        texts = [_as_text(option) for option in value]
        if None in texts:
            wrong = next(option for option in value if _as_text(option) is None)
            self._fault("choices", "options that are texts or numbers, not blank", wrong)
            return ()
        options = cast(list[str], texts)
        twice = next((text for i, text in enumerate(options) if text in options[:i]), None)
        if twice is not None:
            self._fault("choices", "options that differ", f"{twice!r} twice")
            return ()
        return tuple(options)

    def _target(self, choices: tuple[str, ...]) -> tuple[str, ...]:
        value = self._fields.get("target")
        if value is None or value == []:
            return ()
        targets: list[str] = []
        for answer in value if isinstance(value, list) else [value]:
            text = _right_option(answer, choices) if choices else _as_text(answer)
            if text is None:
                last = choice_letter(len(choices) - 1) if choices else ""
                self._fault(
                    "target",
                    f"an option's text, a letter A-{last} or an index 0-{len(choices) - 1}"
                    if choices
                    else "a text or number that is not blank, or a list of them",
                    answer,
                )
            elif text not in targets:
                targets.append(text)
        return tuple(targets)

    def _tags(self) -> tuple[str, ...]:
        value = self._fields.get("tags", [])
        listed = value if isinstance(value, list) and len(value) <= MAX_TAGS else None
        tags = [
            tag.strip()
            for tag in listed or ()
            if isinstance(tag, str)
            and tag.strip()
            and len(tag) <= MAX_KEY_CHARS
            and is_clean_json(tag)
        ]
        if listed is None or len(tags) < len(listed):
            self._fault("tags", f"a list of at most {MAX_TAGS} texts, none blank", value)
            return ()
        return tuple(dict.fromkeys(tags))

    def _scorer(self) -> ScorerSpec | None:
        value = self._fields.get("scorer")
        if value is None:
            return None
        spec = value if isinstance(value, dict) else {"name": value}
        name, params = spec.get("name"), spec.get("params", {})
        if (
            not spec.keys() <= {"name", "params"}
            or not isinstance(name, str)
            or not isinstance(params, dict)
            or not is_clean_json(spec)
        ):
            self._fault("scorer", "a scorer's name, or {name, params}", value)
            return None
        return ScorerSpec(name, params)

    def _expected_tokens(self) -> tuple[int | None, int | None]:
        value = self._fields.get("expected_tokens", {})
        if not isinstance(value, dict) or not value.keys() <= {"in", "out"}:
            self._fault("expected_tokens", '{"in": n, "out": n}', value)
            return None, None
        counts: dict[str, int] = {}
        for direction, count in value.items():
            if type(count) is int and 0 <= count <= MAX_TOKENS:
                counts[direction] = count
            elif count is not None:
                expected = f"a whole number from 0 to {MAX_TOKENS}"
                self._fault(f"expected_tokens_{direction}", expected, count)
                return None, None
        return counts.get("in"), counts.get("out")

    def _difficulty(self) -> float | None:
        value = self._fields.get("difficulty")
        number = _finite(value)
        if value is not None and number is None:
            self._fault("difficulty", "a number that rises with difficulty", value)
        return number

    def _slopes(self) -> dict[str, float] | None:
        value = self._fields[SLOPES]
        given = value if isinstance(value, dict) else {}
        numbers = {name: _finite(given[name]) for name in own_names(list(given))}
        slopes = {name: number for name, number in numbers.items() if number is not None}
        if not slopes or len(slopes) < len(given):
            self._fault(SLOPES, "numbers by ability: general, dimension_1, dimension_2, ...", value)
            return None
        return slopes

    def _parameters(self) -> WrittenParameters | None:
        slopes = self._slopes() if SLOPES in self._fields else None
        if slopes is not None and "intercept" not in self._fields:
            self._fault("intercept", "an intercept beside slopes in several abilities", "nothing")
            return None
        if not any(name in self._fields for name in PARAMETER_FIELDS):
            return None
        values: dict[str, float] = {"a": 1.0, "c": 0.0, "d": 1.0}
        place = "intercept" if "intercept" in self._fields else "b"
        for name in PARAMETER_FIELDS:
            value = self._fields.get(name, values.get(name))
            if value is None and name != place:  # either b or intercept suffices
                continue
            number = _finite(value)
            if number is None or abs(number) > _LIMITS[name]:
                expected = f"a number from -{_LIMITS[name]:g} to {_LIMITS[name]:g}"
                self._fault(name, expected, "nothing" if value is None else value)
                return None
            values[name] = number
        if slopes is None and is_too_flat(values["a"]):
            self._fault("a", SLOPE, values["a"])
            return None
        a, c, d = values["a"], values["c"], values["d"]
        if not 0 <= c < d <= 1:
            self._fault("c", "0 <= c < d <= 1", f"c = {c:g}, d = {d:g}")
            return None
        intercept = values["intercept"] if place == "intercept" else -a * values["b"]
        if "b" in values and not math.isclose(-a * values["b"], intercept, rel_tol=1e-6):
            got = f"b = {values['b']:g} and intercept = {intercept:g} with a = {a:g}"
            self._fault("b", "intercept = -a b where both are given", got)
            return None
        k = values.get("k")
        if k is not None and k <= 0:
            self._fault("k", "a dispersion k > 0", k)
            return None
        if slopes is not None and (c, d, k) != (0.0, 1.0, None):
            got = f"c = {c:g}, d = {d:g}, k = {k}"
            self._fault("c", "c = 0, d = 1 and no k beside slopes in several abilities", got)
            return None
        return WrittenParameters(a, intercept, c, d, k, slopes)


def is_clean_json(value: object, depth: int = 0) -> bool:
    """Whether Postgres can store a JSON value: no NUL, no lone surrogate, finite, not too deep."""
    if isinstance(value, str):
        return "\0" not in value and not _SURROGATE.search(value)
    if isinstance(value, dict | list):
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        return depth < MAX_DEPTH and all(is_clean_json(part, depth + 1) for part in parts)
    return not isinstance(value, float) or math.isfinite(value)


_SURROGATE = re.compile("[\ud800-\udfff]")


def _finite(value: object) -> float | None:
    """A number as a float; `None` for other values, and for numbers beyond the range of floats."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _as_text(value: object) -> str | None:
    """A text or number as the text of an answer; `None` for other values."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    text = value if isinstance(value, str) else json.dumps(value)
    return text if text.strip() and is_clean_json(value) else None


def _right_option(answer: object, choices: tuple[str, ...]) -> str | None:
    """The option that `answer` names: by its text, else its letter, else its index from 0."""
    if isinstance(answer, str):
        if answer in choices:
            return answer
        answer = answer.strip()
        if answer in choices:
            return answer
        if re.fullmatch("[A-Za-z]", answer):
            answer = ord(answer.upper()) - ord("A")
        elif re.fullmatch(r"[0-9]{1,2}", answer):
            answer = int(answer)
    if type(answer) is int and 0 <= answer < len(choices):
        return choices[answer]
    return None

"""JSON in slices is what the decoder of the standard library reads."""

import json
from typing import Any

import pytest

from app import json_in_slices
from app.json_in_slices import InSlices, TooManyValuesError

LONG = 200_000

_GOOD = [
    "{}",
    " [ ] ",
    '{"a" : [1, 2.5e3, -0, true, null, {"b": {}}] , "c":"d"}',
    json.dumps([[n, {"a": [n, {}]}, "b" * 20] for n in range(2000)]),
    json.dumps({"a": [["b" * 5000, [1]] * 3, {"c": "d" * 5000}], "e": [" ]}"] * 900}),
    json.dumps("a" * LONG),
    json.dumps({"k\n" * LONG: "1,2\n" * LONG}),
    json.dumps('"\\' * LONG),
    json.dumps(["\U0001f600" * LONG, "é\U0001f600" * LONG, "a\U0001f600" * LONG]),
    json.dumps("é" * LONG, ensure_ascii=False),
    '"' + "\\ud83d" * LONG + '"',
    '"' + "\\ude00\\ud83d" * LONG + '\\ude00"',
    '"' + "\\/\\b\\f\\r\\t" * LONG + '"',
]
_FAULTY = [
    "",
    "{",
    "[1,",
    '{"a"}',
    '{"a":}',
    '{"a":1 "b":2}',
    "{1:2}",
    '"abc',
    '"' + "a" * LONG,
    '"' + "\\n" * LONG,
    '"' + "\\n" * LONG + '\\x"',
    '"' + "\\n" * LONG + '\\u12g4"',
    '"' + "a\\n" * LONG + '\n"',
    '"' + "a" * LONG + "\\",
    '["a"] x',
    "[[1,], 2]",
    '[{"a": {"b": [1, 2}}]',
    "[" + "[1], " * LONG + "[1 2]]",
]


@pytest.mark.parametrize("text", _GOOD, ids=range(len(_GOOD)))
def test_it_reads_the_same(text: str) -> None:
    assert json.loads(text, cls=InSlices) == json.loads(text)


@pytest.mark.parametrize("text", _FAULTY, ids=range(len(_FAULTY)))
def test_it_finds_a_fault_at_the_same_place(text: str) -> None:
    with pytest.raises(json.JSONDecodeError) as expected:
        json.loads(text)
    with pytest.raises(json.JSONDecodeError) as found:
        json.loads(text, cls=InSlices)
    assert found.value.pos == expected.value.pos


@pytest.mark.parametrize("value", [[1, [2, 3]], {"a": [1, 2], "b": 4}, [[], [[]], {}]])
def test_values_are_counted_at_every_depth(monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
    monkeypatch.setattr(json_in_slices, "MAX_VALUES", 4)
    assert json.loads(json.dumps(value), cls=InSlices) == value
    monkeypatch.setattr(json_in_slices, "MAX_VALUES", 3)
    with pytest.raises(TooManyValuesError):
        json.loads(json.dumps(value), cls=InSlices)


def test_lists_in_lists_take_no_longer_than_lists_beside_each_other() -> None:
    decoder, tried = InSlices(), list[str]()
    in_one_go = decoder._in_one_go

    def counted(text: str, at: int) -> tuple[Any, int]:
        tried.append(text)
        return in_one_go(text, at)

    decoder._in_one_go = counted
    nested = json.dumps([["a" * 5000]] * 3).replace("[", "[" * 50).replace("]", "]" * 50)
    assert decoder.decode(nested) == json.loads(nested)
    assert sum(map(len, tried)) <= len(nested)


@pytest.mark.parametrize("number", ["1." + "1" * LONG, "1" * LONG, "1" * LONG + "e5"])
def test_numbers_that_are_long_to_convert_are_refused(number: str) -> None:
    with pytest.raises(ValueError, match="digits"):
        json.loads(number, cls=InSlices)

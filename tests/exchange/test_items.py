"""Item files, in our form or with their fields mapped: what is read, and how faults are named."""

import gzip
import io
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from typing_extensions import override

from app.errors import FileFormatError, InvalidInputError
from app.exchange import items as module
from app.exchange.files import MAX_PROBLEMS
from app.exchange.item_record import FIELDS, ItemRecord, parse_item
from app.exchange.items import field_map, read_items, scan_lines
from app.exchange.parameters import WrittenParameters
from app.items import ItemContent, Message, ScorerSpec


def jsonl(*rows: dict[str, Any]) -> bytes:
    return "\n".join(json.dumps(row) for row in rows).encode()


def faults(source: bytes, name: str = "items.jsonl") -> dict[str, str]:
    with pytest.raises(FileFormatError) as caught:
        read_items(source, name=name)
    return {problem.pointer: problem.detail for problem in caught.value.problems}


def test_a_jsonl_row_gives_every_field() -> None:
    row = {
        "id": "q1",
        "prompt": "2 + 2?",
        "choices": ["3", "4"],
        "target": "B",
        "tags": ["maths", "easy"],
        "group": "sums",
        "scorer": {"name": "choice", "params": {"x": 1}},
        "expected_tokens": {"in": 20, "out": 3},
        "a": 1.5,
        "b": -0.5,
        "c": 0.25,
    }
    (item,) = read_items(jsonl(row))
    assert item.key == "q1"
    assert item.content == ItemContent(prompt="2 + 2?", choices=("3", "4"), target=("4",))
    assert (item.tags, item.group) == (("maths", "easy"), "sums")
    assert item.scorer == ScorerSpec("choice", {"x": 1})
    assert (item.expected_tokens_in, item.expected_tokens_out) == (20, 3)
    assert item.parameters == WrittenParameters(1.5, 0.75, 0.25, 1.0)


def test_csv_gives_the_same_records_as_jsonl() -> None:
    csv = (
        "\ufeffkey,prompt,messages,choices,target,tags,group,scorer,"
        "expected_tokens_in,expected_tokens_out,a,b,c,d\r\n"
        'q1,"two\nlines",,red | green,1,x|y,g,choice,20,3,1.5,-0.5,0.25,1\r\n'
        'q2,,"[{""role"": ""user"", ""content"": ""Hi""}]",,"[""a"", ""b""]",,,'
        '"{""name"": ""numeric"", ""params"": {""tolerance"": 1}}",,,,,,\r\n'
        'q3,List it,,,"[3, 4]",,,,,,,,,\r\n'
    ).encode()
    rows = jsonl(
        {
            "key": "q1",
            "prompt": "two\nlines",
            "choices": ["red", "green"],
            "target": 1,
            "tags": ["x", "y"],
            "group": "g",
            "scorer": "choice",
            "expected_tokens": {"in": 20, "out": 3},
            "a": 1.5,
            "b": -0.5,
            "c": 0.25,
            "d": 1,
        },
        {
            "id": "q2",
            "messages": [{"role": "user", "content": "Hi"}],
            "target": ["a", "b"],
            "scorer": {"name": "numeric", "params": {"tolerance": 1}},
        },
        {"id": "q3", "prompt": "List it", "target": "[3, 4]"},
    )
    from_csv, from_jsonl = read_items(csv, name="i.csv"), read_items(rows, name="i.jsonl")
    assert [r.row for r in from_csv] == [2, 4, 5]
    assert [replace(r, row=0) for r in from_csv] == [replace(r, row=0) for r in from_jsonl]


@pytest.mark.parametrize(
    ("choices", "target", "right"),
    [
        (["red", "blue"], "blue", "blue"),
        (["red", "blue"], "b", "blue"),
        (["red", "blue"], "A", "red"),
        (["red", "blue"], 1, "blue"),
        (["red", "blue"], "0", "red"),
        (["B", "A"], "A", "A"),  # the text takes precedence over the letter
        (["1", "0"], "1", "1"),  # and over the index
        (["1", "0"], 1, "0"),  # but a JSON number is an index
        ([3, 4], "4", "4"),
    ],
)
def test_a_choice_target_is_a_text_then_a_letter_then_an_index(
    choices: list[Any], target: object, right: str
) -> None:
    record = parse_item({"key": "q", "prompt": "?", "choices": choices, "target": target})
    assert record.content.target == (right,)


@pytest.mark.parametrize(
    "target",
    ["E", 4, -1, "green", True, 1.5, {"x": 1}, "ß", "ǰ", "ﬁ", "ſ", "½", "٣"],
)
def test_a_target_that_is_no_option_is_refused(target: object) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_item({"key": "q", "prompt": "?", "choices": list("wxyz"), "target": target})
    (problem,) = caught.value.problems
    assert problem.pointer == "/target"
    assert "a letter A-D or an index 0-3" in problem.detail


def test_a_line_that_is_no_json_is_told_without_lines_and_characters_of_its_own() -> None:
    (detail,) = faults(b'{"key": "a",').values()
    assert detail.endswith("(Expecting property name enclosed in double quotes, character 13)")


def test_every_fault_is_named_with_file_row_field_expected_and_got() -> None:
    found = faults(
        jsonl(
            {"key": "ok", "prompt": "fine"},
            {"prompt": "no name"},
            {"key": "both", "prompt": "p", "messages": [{"role": "user", "content": "m"}]},
            {"key": "odd", "prompt": " ", "tags": "x", "difficulty": "hard", "hardness": 3},
            {"key": "ok", "prompt": "again"},
            {"key": "c", "prompt": "p", "b": 0, "c": 0.9, "d": 0.5},
            {"key": "d", "prompt": "p", "a": 1},
            {"key": "e", "prompt": "p", "b": True},
            {"key": "f", "prompt": "p", "choices": ["x", "x"]},
            {"key": "g", "prompt": "p\0"},
            {"key": "h", "prompt": "p", "expected_tokens": {"in": -1}},
        )
    )
    assert found["items.jsonl:2:key"] == "expected exactly one of `key` and `id`, got 'neither'"
    assert "exactly one of `prompt` and `messages`" in found["items.jsonl:3:prompt"]
    assert found["items.jsonl:4:prompt"] == "expected a text that is not blank, got ' '"
    assert "items.jsonl:4:tags" in found
    assert "items.jsonl:4:hardness" in found
    assert "a number that rises with difficulty" in found["items.jsonl:4:difficulty"]
    assert "'ok', which row 1 has too" in found["items.jsonl:5:key"]
    assert found["items.jsonl:6:c"] == "expected 0 <= c < d <= 1, got 'c = 0.9, d = 0.5'"
    assert found["items.jsonl:7:b"] == "expected a number from -1e+06 to 1e+06, got 'nothing'"
    assert found["items.jsonl:8:b"] == "expected a number from -1e+06 to 1e+06, got True"
    assert "options that differ" in found["items.jsonl:9:choices"]
    assert "without NUL" in found["items.jsonl:10:prompt"]
    assert "a whole number" in found["items.jsonl:11:expected_tokens_in"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"key": "n", "prompt": "p", "b": NaN}',
        b'{"key": "n", "prompt": "p", "b": 1e999}',
        b'{"key": "n", "prompt": "p", "b": ' + b"9" * 400 + b"}",
        b'{"key": "n", "prompt": "p", "b": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"key": "n", "prompt": "\\ud800"}',
        b"[1, 2]",
        b"{",
    ],
)
def test_what_is_not_a_plain_json_object_is_a_fault_of_its_row(line: bytes) -> None:
    (pointer,) = faults(jsonl({"key": "a", "prompt": "p"}) + b"\n" + line)
    assert pointer.startswith("items.jsonl:2")


def test_a_name_that_stands_twice_in_a_line_is_a_fault_of_its_row() -> None:
    line = b'{"key": "n", "prompt": "p", "target": "1", "target": "2"}'
    (found,) = faults(jsonl({"key": "a", "prompt": "p"}) + b"\n" + line).items()
    assert found[0] == "items.jsonl:2"
    assert "the name 'target' stands twice" in found[1]


def test_a_misspelt_field_gets_a_suggestion() -> None:
    found = faults(jsonl({"key": "q", "promt": "?", "target": "x", "colour": "red"}))
    assert found["items.jsonl:1:promt"] == "no such field; did you mean 'prompt'?"
    assert found["items.jsonl:1:colour"].startswith("expected one of the fields a, b, c, choices")


@pytest.mark.parametrize(
    ("theirs", "ours"), [("question", "prompt"), ("answer", "target"), ("options", "choices")]
)
def test_a_field_under_the_name_that_others_give_it_says_how_it_is_mapped(
    theirs: str, ours: str
) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_item({"key": "a", "prompt": "1 + 1 = ?", theirs: "2"})
    (problem,) = [one for one in caught.value.problems if one.pointer == f"/{theirs}"]
    assert f"--map {ours}={theirs}" in problem.detail


@pytest.mark.parametrize("cell", ["nan", "inf", "x", "1e7"])
def test_a_csv_parameter_that_is_no_finite_number_is_a_fault(cell: str) -> None:
    found = faults(f"key,prompt,b\nq,p,{cell}\n".encode(), name="i.csv")
    assert "a number from" in found["i.csv:2:b"]


def test_bytes_that_are_not_utf8_are_named_by_row_and_place() -> None:
    found = faults(jsonl({"key": "a", "prompt": "p"}) + b'\n{"key": "\xff"}')
    assert found == {"items.jsonl:2": "expected UTF-8, got byte 0xff at 10"}
    found = faults("key,prompt\né,p\n".encode("latin-1"), name="i.csv")
    assert found == {"i.csv:2": "expected UTF-8, got byte 0xe9 at 1"}


def test_utf16_is_recognised() -> None:
    with pytest.raises(FileFormatError, match="UTF-16"):
        read_items("key,prompt\n".encode("utf-16"))


@pytest.mark.parametrize("source", [b"", b"\n\n", b"\xef\xbb\xbf", b"key,prompt\n"])
def test_a_file_without_items_is_refused(source: bytes) -> None:
    with pytest.raises(FileFormatError, match="at least one item"):
        read_items(source)


def test_a_line_of_ten_megabytes_is_one_fault_and_never_held_whole() -> None:
    class Counting(io.BytesIO):
        longest = 0

        @override
        def readline(self, size: int | None = -1, /) -> bytes:
            line = super().readline(size)
            self.longest = max(self.longest, len(line))
            return line

    long = b'{"key": "a", "prompt": "' + b"x" * 10_000_000 + b'"}\n'
    source = Counting(long + jsonl({"key": "b", "prompt": "p"}))
    rows = list(scan_lines(source, "items.jsonl"))
    assert [row.problems[0].detail if row.problems else "good" for row in rows] == [
        "expected a line of at most 1048576 bytes, got more",
        "good",
    ]
    assert source.longest == module.MAX_ROW_BYTES + 1


def test_a_file_above_the_cap_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 100)
    with pytest.raises(FileFormatError, match="at most 100 bytes"):
        read_items(jsonl(*({"key": str(i), "prompt": "p"} for i in range(10))))


def test_only_the_first_faults_are_listed() -> None:
    with pytest.raises(FileFormatError, match="1000 faults") as caught:
        read_items(b"{\n" * 1000)
    assert len(caught.value.problems) == MAX_PROBLEMS


def test_wrong_csv_columns_are_all_named() -> None:
    found = faults(b"question,answer,prompt,prompt\n", name="i.csv")
    assert set(found) == {"i.csv:1:question", "i.csv:1:answer", "i.csv:1:prompt", "i.csv:1"}


@pytest.mark.parametrize("rows", [b"q,p,extra\n", b"q\n", b'q,"open\n'])
def test_a_csv_row_of_another_shape_is_a_fault(rows: bytes) -> None:
    (pointer,) = faults(b"key,prompt\n" + rows, name="i.csv")
    assert pointer == "i.csv:2"


def test_numbered_items_keep_their_number_as_key() -> None:
    assert [item.key for item in read_items(jsonl({"id": 17, "prompt": "p"}))] == ["17"]


def test_messages_are_kept_in_order() -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    record = parse_item({"key": "q", "messages": turns, "target": ["Hello", 3]})
    assert record.content.messages == (Message("system", "Be brief."), Message("user", "Hi"))
    assert record.content.target == ("Hello", "3")


@pytest.mark.parametrize("role", [["user"], {"a": 1}, "tool", None])
def test_a_message_of_an_unknown_role_is_a_fault(role: object) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_item({"key": "q", "messages": [{"role": role, "content": "x"}]})
    assert caught.value.problems[0].pointer == "/messages"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
field_names = st.sampled_from(sorted(FIELDS | {"other"}))


@given(st.dictionaries(field_names, json_values, max_size=6))
def test_any_fields_give_an_item_or_clear_faults(fields: dict[str, Any]) -> None:
    try:
        record = parse_item(fields)
    except InvalidInputError as error:
        problems = error.problems
    else:
        assert record.key
        assert len(record.content.content_hash) == 64
        return
    assert problems


@given(st.binary(max_size=200), st.sampled_from(["i.csv", "i.jsonl", "items"]))
def test_any_bytes_give_items_or_a_file_error(source: bytes, name: str) -> None:
    try:
        message = "" if read_items(source, name=name) else "no item, and no error"
    except FileFormatError as error:
        message = error.detail.removeprefix(name)[:1].strip(":")
    assert message == ""


# Fields mapped


SUMS = [
    {"question": "2 + 2?", "answer": "2 + 2 = 4\n#### 4"},
    {"question": "2 + 3?", "answer": "#### is 5 #### 5"},
]
CHOICES = [
    {
        "id": "Mercury_1",
        "question": "Which is red?",
        "choices": {"text": ["sky", "blood", "sea"], "label": ["1", "2", "3"]},
        "answerKey": "2",
    }
]


def as_parquet(rows: object) -> bytes:
    output = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), output)
    return output.getvalue()


def read(content: bytes, text: str, after: str | None = None) -> list[ItemRecord]:
    return read_items(content, name="file", mapping=field_map(text, after))


@pytest.mark.parametrize("write", [lambda rows: jsonl(*rows), as_parquet])
def test_fields_are_taken_where_the_map_says(write: Callable[[Any], bytes]) -> None:
    records = read(write(SUMS), "prompt=question, target=answer", "####")
    assert [record.key for record in records] == ["1", "2"]
    assert [record.content.prompt for record in records] == ["2 + 2?", "2 + 3?"]
    assert [record.content.target for record in records] == [("4",), ("5",)]
    (record,) = read(write(CHOICES), "prompt=question,choices=choices.text,target=answerKey,key=id")
    # By its label: as an index from 0 it would be the third.
    assert (record.key, record.content.target) == ("Mercury_1", ("blood",))


def test_cells_are_read_as_those_of_item_files() -> None:
    table = b'q,options,right,number,level\n"Which, then?",red|blue,B,7,2.5\n'
    (record,) = read(table, "prompt=q,choices=options,target=right,key=number,difficulty=level")
    assert record.difficulty == 2.5
    assert (record.key, record.content.prompt) == ("7", "Which, then?")
    assert (record.content.choices, record.content.target) == (("red", "blue"), ("blue",))


def test_another_separator_gives_a_hint_about_commas() -> None:
    table = b"q;right\nWhich?;red\n"
    with pytest.raises(FileFormatError, match="Cells are separated by commas"):
        read(table, "prompt=q")
    with pytest.raises(FileFormatError, match="Cells are separated by commas"):
        read_items(table, name="items.csv")


@pytest.mark.parametrize(
    ("text", "after", "field", "words"),
    [
        ("prompt=asked", None, "prompt", "expected a field 'asked', found question, answer"),
        ("prompt=question,target=answer", "=>", "target", "expected '=>' in the target"),
    ],
)
def test_a_row_that_lacks_something_is_named(
    text: str, after: str | None, field: str, words: str
) -> None:
    with pytest.raises(FileFormatError, match=words) as caught:
        read(jsonl(*SUMS), text, after)
    assert caught.value.problems[0].pointer == f"file:1:{field}"


@pytest.mark.parametrize("reads", [read_items, partial(read_items, mapping=field_map("key=a"))])
def test_a_compressed_file_is_distinguished_from_another_encoding(reads: Any) -> None:
    with pytest.raises(FileFormatError, match="is packed by gzip: unpack it first"):
        reads(gzip.compress(b'{"a": 1}'))


@pytest.mark.parametrize("text", ["", "prompt", "question=prompt", "=a", "key=a,key=b"])
def test_an_invalid_map_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="prompt=question,target=answer"):
        field_map(text)

"""Item files of other forms, with their fields mapped."""

import gzip
import io
import json
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from app.errors import FileFormatError, InvalidInputError
from app.exchange.item_record import ItemRecord
from app.exchange.items import read_items
from app.exchange.mapped_items import field_map, read_mapped

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


def as_jsonl(rows: object) -> bytes:
    assert isinstance(rows, list)
    return "\n".join(map(json.dumps, rows)).encode()


def as_parquet(rows: object) -> bytes:
    output = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), output)
    return output.getvalue()


def read(content: bytes, text: str, after: str | None = None) -> list[ItemRecord]:
    return read_mapped(content, name="file", mapping=field_map(text, after))


@pytest.mark.parametrize("write", [as_jsonl, as_parquet])
def test_fields_are_taken_where_the_map_says(write: object) -> None:
    assert callable(write)
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
        read(as_jsonl(SUMS), text, after)
    assert caught.value.problems[0].pointer == f"file:1:{field}"


@pytest.mark.parametrize("reads", [read_items, partial(read_mapped, mapping=field_map("key=a"))])
def test_a_compressed_file_is_distinguished_from_another_encoding(reads: Any) -> None:
    with pytest.raises(FileFormatError, match="is packed by gzip: unpack it first"):
        reads(gzip.compress(b'{"a": 1}'))


@pytest.mark.parametrize("text", ["", "prompt", "question=prompt", "=a", "key=a,key=b"])
def test_an_invalid_map_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="prompt=question,target=answer"):
        field_map(text)

"""Items of banks: single changes, batches, and what makes items immutable."""

import pytest

from app.errors import AlreadyExistsError, InvalidInputError, InvalidStateError
from app.items import ItemContent
from app.services.banks.imports import BankImport
from app.services.banks.items import ItemService
from app.services.banks.service import BankService
from app.storage.database import Database
from tests.services.test_banks import SUMS, record, table


@pytest.fixture
def banks(database: Database) -> BankService:
    return BankService(database)


@pytest.fixture
def items(database: Database) -> ItemService:
    return ItemService(database)


async def test_each_line_of_a_batch_is_independent(banks: BankService, items: ItemService) -> None:
    await banks.create_bank(SUMS)
    await items.add("sums", record("old"))
    body = (
        b'{"key": "new", "prompt": "p", "target": "1"}\n'
        b'{"key": "old", "prompt": "What is old?", "target": "1"}\n'
        b'{"key": "old2", "prompt": 3}\n'
        b'{"key": "with", "prompt": "p", "b": 1}\n'
        b'{"key": "odd", "prompt": "p", "scorer": "nope"}\n'
        b"not json\n"
        b'{"key": "far", "prompt": "p", "target": "far", "scorer": {"name": "closeness", '
        b'"params": {"abs_limit": 1}}}\n'
    )
    lines = await items.add_batch("sums", body)
    assert [(line.row, line.status) for line in lines] == [
        (1, "created"),
        (2, "unchanged"),
        (3, "failed"),
        (4, "failed"),
        (5, "failed"),
        (6, "failed"),
        (7, "failed"),
    ]
    assert "expected a number" in str(lines[6].error)
    again = await items.add_batch("sums", body)
    assert again[0].status == "unchanged"
    assert again[0].item_id == lines[0].item_id
    other = b'{"key": "old", "prompt": "Another?"}'
    (conflict,) = await items.add_batch("sums", other)
    assert isinstance(conflict.error, AlreadyExistsError)


async def test_an_item_can_change_until_a_version_uses_it(
    banks: BankService, items: ItemService
) -> None:
    await banks.create_bank(SUMS)
    item = await items.add("sums", record("q1", tags=("t",)))
    changed = await items.update(
        "sums", "q1", 1, {"choices": ["x", "1"], "target": "A", "tags": None}
    )
    assert changed.content == ItemContent(prompt="What is q1?", choices=("x", "1"), target=("x",))
    assert (changed.tags, changed.revision, changed.id) == ((), 2, item.id)
    with pytest.raises(InvalidInputError) as caught:
        await items.update("sums", "q1", 2, {"choices": ["a", "b"]})
    assert caught.value.problems[0].pointer == "/target"
    await banks.import_into("sums", BankImport(parameters=table("q1")))
    with pytest.raises(InvalidStateError, match="version 1"):
        await items.update("sums", "q1", 2, {"tags": ["new"]})
    with pytest.raises(InvalidStateError, match="version 1"):
        await items.delete("sums", "q1", 2)

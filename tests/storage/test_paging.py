"""Paging of long lists: pages may end early, lose nothing, and need few queries."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.storage.paging import MOST_CHARS, Page, within_size

ROOM = MOST_CHARS


class Table:
    """Numbered entries of a given length."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self.rows = list(enumerate(sizes))
        self.asked: list[int] = []

    async def page(self, limit: int, after: int = -1) -> Page[tuple[int, int]]:
        async def fetch(last: tuple[int, int] | None, n: int) -> Sequence[tuple[int, int]]:
            start = (last[0] if last else after) + 1
            self.asked.append(n)
            return self.rows[start : start + n]

        return await within_size(fetch, limit, lambda row: row[1])


@given(
    st.lists(st.sampled_from([0, 10, ROOM // 3, ROOM // 2, ROOM, 3 * ROOM]), max_size=60),
    st.integers(1, 30),
)
async def test_pages_lose_nothing_and_keep_their_limit(sizes: list[int], limit: int) -> None:
    table = Table(sizes)
    seen: list[tuple[int, int]] = []
    while True:
        page = await table.page(limit, seen[-1][0] if seen else -1)
        assert len(page.items) <= limit
        assert len(page.items) == 1 or sum(size for _, size in page.items) <= ROOM
        seen += page.items
        if not page.has_more:
            break
        assert page.items
        first, n = page.items[0][0], len(page.items)
        assert n == limit or sum(size for _, size in table.rows[first : first + n + 1]) > ROOM
    assert seen == table.rows


@pytest.mark.parametrize(("size", "asks"), [(1000, 2), (256_000, 8)])
async def test_few_queries_are_sent(size: int, asks: int) -> None:
    table = Table([size] * 2000)
    assert (await table.page(1000)).has_more
    assert len(table.asked) <= asks
    assert sum(table.asked) * size < 2 * ROOM
    assert all(n * size <= ROOM // 8 for n in table.asked[1:])

"""The items of a version: a table to sort, filter and divide into pages, and an item's curve."""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal
from weakref import WeakValueDictionary

import numpy as np
from cachetools import TTLCache
from markupsafe import Markup

from app.api.schemas.versions import VersionItemRead
from app.engine.bank import FloatArray
from app.printable import percent
from app.records.banks import BankVersion, ItemAnswer, ItemUse, VersionItem
from app.records.figures import ProfileFigures
from app.reports.charts import Line, line_chart
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService
from app.services.container import Services
from app.storage.paging import PageRequest

Column = Literal["position", "key", "b", "a", "c", "d", "status", "flags", "asked", "mean"]
PER_PAGE: Final = 100
#: Versions whose rows are kept, and for how many seconds: use of the items grows meanwhile.
_KEPT, _KEPT_S = 4, 60.0
#: Rows that are read before other requests have their turn.
_AT_ONCE: Final = 1_000
_REACH, _WIDEST = 4.0, 10.0
#: Points of a curve, and the number of them from one row of its table to the next.
_POINTS, _EVERY = 65, 8
#: Most groups of examinees in the chart of an item.
_GROUPS = 8
#: Least number of answers that are compared with the curve.
_LEAST_HELD = 10


@dataclass(frozen=True, slots=True)
class ItemRow:
    """An item, its tags, and its use in sessions."""

    item: VersionItemRead
    tags: tuple[str, ...]
    use: ItemUse | None


@dataclass(frozen=True, slots=True)
class Items:
    """All items of a version.

    Attributes:
        n_tests: Number of sessions on the version; use of an item is a share of it.
        flags: Number of items with each finding, the most frequent first.
    """

    rows: Sequence[ItemRow]
    n_tests: int
    flags: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Filters and order of the items."""

    sort: Column = "position"
    descending: bool = False
    status: str | None = None
    tag: str | None = None
    flag: str | None = None
    text: str | None = None
    page: int = 1


_tables: TTLCache[tuple[str, str], Items] = TTLCache(_KEPT, _KEPT_S)
_making: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()


async def items_of(
    opened: Services, version: BankVersion, loaded: LoadedVersion, *, seen_by: str
) -> Items:
    """The rows of a version, ordered by position.

    Only sessions of the project `seen_by` count; rows kept for one project serve no other.
    """
    key = (version.id, seen_by)
    # Requests that come while the rows are read wait for them.
    async with _making.setdefault(key, asyncio.Lock()):
        found = _tables.get(key)
        if found is None:
            rows, (n_tests, used) = [], await opened.item_uses.of_version(version.id)
            async for item in _stored(opened.versions, version):
                tags = loaded.tags[item.position] if item.position < len(loaded.tags) else ()
                rows.append(ItemRow(VersionItemRead.read(item), tags, used.get(item.position)))
            found = _tables[key] = Items(rows, n_tests, flag_counts(rows))
    return found


async def _stored(versions: VersionService, version: BankVersion) -> AsyncIterator[VersionItem]:
    after, more = None, True
    while more:
        request = PageRequest(limit=_AT_ONCE, after=after, descending=False)
        found = await versions.items(version.bank_id, version.id, request)
        for item in found.items:
            yield item
        after, more = found.items[-1].item_id if found.items else None, found.has_more


def chosen(items: Items, wanted: Wanted) -> list[ItemRow]:
    """Rows that pass the filters, in order; rows without a value come last."""
    text = (wanted.text or "").casefold()
    rows = [
        row
        for row in items.rows
        if (wanted.status is None or row.item.status == wanted.status)
        and (wanted.tag is None or wanted.tag in row.tags)
        and (wanted.flag is None or any(flag.code == wanted.flag for flag in row.item.flags))
        and text in row.item.key.casefold()
    ]
    known = [row for row in rows if _value(row, wanted.sort) is not None]
    unknown = [row for row in rows if _value(row, wanted.sort) is None]
    known.sort(key=lambda row: _value(row, wanted.sort) or 0, reverse=wanted.descending)
    return known + unknown


def flag_counts(rows: Sequence[ItemRow]) -> Mapping[str, int]:
    """Number of rows with each finding, the most frequent first."""
    codes = (code for row in rows for code in {flag.code for flag in row.item.flags})
    return dict(Counter(codes).most_common())


def _value(row: ItemRow, column: Column) -> float | str | None:
    match column:
        case "flags":
            return len(row.item.flags)
        case "asked":
            return row.use.asked if row.use else 0
        case "mean":
            return row.use.mean if row.use else None
        case _:
            value: float | str | None = getattr(row.item, column)
            return value


@dataclass(frozen=True, slots=True)
class Curve:
    """The curve of an item, with its table.

    Attributes:
        picture: Chart of the curve; None where the item has no curve over one ability.
        table: Pairs of ability (logits) and expected score.
        here: Expected score at the ability of the examinee.
        points: Pairs of mean ability and mean score of groups of sessions.
    """

    picture: Markup | None
    table: Sequence[tuple[float, float]] = ()
    here: float | None = None
    points: Sequence[tuple[float, float]] = ()


def item_curve(
    version: LoadedVersion,
    position: int,
    *,
    theta: float | None = None,
    profile: ProfileFigures | None = None,
    answers: Sequence[ItemAnswer] = (),
) -> Curve:
    """The curve of an item, with the place of an examinee on it, or the scores in sessions.

    If the bank measures several abilities, the curve is along the main one, with the others as in
    the examinee's profile, or else as those of the average reference model. Answers are shown as
    mean scores of examinees of similar ability. An item in pretest has no curve.
    """
    if version.is_pretest(position):
        return Curve(None)
    edge = max(_REACH, min(math.ceil(abs(theta or 0.0)), _WIDEST))
    grid = np.linspace(-edge, edge, _POINTS)
    values = _expected(version, position, grid, profile).tolist()
    points = observed(answers)
    here = band = None
    said = f"; {len(points)} points show what tests saw" if points else ""
    if theta is not None:
        here = float(_expected(version, position, np.array([theta]), profile)[0])
        said = f"; at the ability {theta:+z.2f} a mean score of {percent(here)} is expected"
        band = (max(theta - edge / 125, -edge), min(theta + edge / 125, edge))
    picture = line_chart(
        grid.tolist(),
        [Line(values=values)],
        title="Expected score by ability",
        description=f"The curve of the item{said}.",
        y_label="expected score",
        top=1.0,
        band=band,
        points=points,
    )
    table = list(zip(grid.tolist(), values, strict=True))[::_EVERY]
    return Curve(picture, table, here, points)


def _expected(
    version: LoadedVersion, position: int, thetas: FloatArray, profile: ProfileFigures | None
) -> FloatArray:
    """Expected scores on an item at values of the main ability, shape (n,)."""
    abilities = version.bank.abilities
    if abilities is None:
        return version.bank.expected_score(thetas, [position])[:, 0]
    others = abilities.population.mean
    if profile and profile["abilities"]:
        others = np.array([ability["value"] for ability in profile["abilities"]])
    along = abilities.composite
    at = others + np.outer(thetas - along @ others, along)
    return abilities.take(np.array([position])).items.expected_score(at)[:, 0]


def observed(answers: Sequence[ItemAnswer]) -> list[tuple[float, float]]:
    """Mean ability and mean score of groups of answers, from the lowest ability up."""
    known = sorted(
        (answer.theta, answer.score)
        for answer in answers
        if answer.theta is not None and answer.score is not None
    )
    if not known:
        return []
    parts = np.array_split(np.asarray(known), min(_GROUPS, len(known)))
    return [(float(part[:, 0].mean()), float(part[:, 1].mean())) for part in parts]


@dataclass(frozen=True, slots=True)
class Held:
    """How answers in sessions compare with the curve of their item.

    Attributes:
        n: Number of answers from sessions with an ability.
        mean: Mean score of these answers.
        expected: Mean expected score on the curve, at the final abilities of their sessions.
        se: Standard error of `mean` if the curve holds.
    """

    n: int
    mean: float
    expected: float
    se: float

    @property
    def z(self) -> float:
        """Mean score minus expected score, in standard errors."""
        return (self.mean - self.expected) / self.se


def held(version: LoadedVersion, position: int, answers: Sequence[ItemAnswer]) -> Held | None:
    """Compare the answers to an item with its curve; None with too few answers.

    It is also None unless all scores are 0 or 1, and in a bank of several abilities, as the main
    one alone does not tell the score. Each ability is estimated with the answer itself, which
    brings the curve a little nearer to it. So differences are found later than they should be,
    not more often.
    """
    known = [(a.theta, a.score) for a in answers if a.theta is not None and a.score is not None]
    is_told = version.bank.abilities is None and not version.is_pretest(position)
    if not is_told or len(known) < _LEAST_HELD:
        return None
    thetas, scores = np.asarray(known, dtype=float).T
    if not np.isin(scores, (0.0, 1.0)).all():
        return None
    p = version.bank.expected_score(thetas, [position])[:, 0]
    se = math.sqrt(float((p * (1 - p)).sum())) / len(known)
    return Held(len(known), float(scores.mean()), float(p.mean()), se) if se > 0 else None

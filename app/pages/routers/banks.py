"""Banks, their versions, the items of a version, one item, and a bank's leaderboard."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from cachetools import TTLCache
from fastapi import Path, Query, Response
from markupsafe import Markup

from app.api.parameters import BankRef, VersionRef
from app.api.schemas.banks import BankRead
from app.api.schemas.items import ItemRead
from app.api.schemas.results import LeaderboardRead
from app.api.schemas.sessions import SessionRead
from app.api.schemas.versions import VersionItemRead, VersionRead
from app.errors import NotFoundError
from app.pages.items import PER_PAGE, Column, Items, Wanted, chosen, held, item_curve, items_of
from app.pages.model_results import namesakes, strip_of
from app.pages.routing import After, PageCall, Read, make_router
from app.records.banks import BankVersion
from app.records.sessions import SessionRecord
from app.reports.joins import join_caution
from app.reports.version.page import FLAG_WORDS, sections
from app.services.banks.loaded import LoadedVersion
from app.storage.paging import PageRequest

router = make_router()

_LISTED = 50
#: Most models of the leaderboard that a bank's page places among the reference models.
_PLACED = 10
#: Answers that an item's page shows at once; its chart shows the latest ones.
_ANSWERS = 200
#: Recorded answers of the calibration that an item's page shows at once.
_RECORDED = 100
#: Reports by project and version, kept for some seconds, since many people open a shared link.
_reports: Final[TTLCache[tuple[str, str], Markup]] = TTLCache(32, 30.0)
PageNumber = Annotated[int, Query(ge=1, le=100_000, alias="page")]
ItemRef = Annotated[str, Path(min_length=1, max_length=512)]
Word = Annotated[str | None, Query(max_length=512)]
ItemStatus = Literal["", "active", "quarantined", "pretest"]


@router.get("/banks")
async def bank_list(call: Read, after: After = None) -> Response:
    """Banks, the newest first."""
    found = await call.services.banks.list_banks(PageRequest(limit=_LISTED, after=after))
    rows = [BankRead.of(overview, call.visit.view) for overview in found.items]
    return await call.page("banks.html", rows=rows, more=found.has_more)


@router.get("/banks/{bank}")
async def bank_page(bank: BankRef, call: Read) -> Response:
    """One bank: how it is asked, and its versions."""
    visit, opened = call.visit, call.services
    shown = BankRead.of(await opened.banks.get_bank(bank), visit.view)
    found = await opened.versions.list_page(bank, PageRequest(limit=_LISTED))
    rows = [VersionRead.read(version) for version in found.items]
    numbers = {version.id: version.number for version in rows}
    strip, joins = None, {}
    if rows:
        latest = await opened.versions.load(bank=shown.id)
        present = await opened.leaderboards.present(shown.id, latest.bank.scale)
        joins = {one.bank_version_id: join_caution(one.join) for one in present}
        strip = strip_of(latest, [SessionRead.of(one, visit.view) for one in present[:_PLACED]])
    return await call.page(
        "bank.html", bank=shown, versions=rows, numbers=numbers, joins=joins, strip=strip
    )


@router.get("/banks/{bank}/versions/{version}")
async def version_page(bank: BankRef, version: VersionRef, call: Read) -> Response:
    """One version: its precision, its faults, and how evenly sessions use its items."""
    opened = call.services
    found = await opened.versions.get(bank, version)
    return await call.page(
        "version.html",
        exposure=await opened.item_uses.exposure(await opened.versions.load(found.id)),
        bank=BankRead.of(await opened.banks.get_bank(bank), call.visit.view),
        version=VersionRead.read(found),
        sections=await _report(call, found),
    )


async def _report(call: PageCall, version: BankVersion) -> Markup:
    """The report without its heading; its sessions are those of the visitor's project."""
    key = (call.visit.project, version.id)
    found = _reports.get(key)
    if found is None:
        report = await call.services.version_reports.report(version.bank_id, version.id)
        found = _reports[key] = await asyncio.to_thread(sections, report)
    return found


@router.get("/banks/{bank}/versions/{version}/items")
async def item_list(
    bank: BankRef,
    version: VersionRef,
    call: Read,
    sort: Column = "position",
    order: Literal["asc", "desc"] = "asc",
    status: ItemStatus = "",
    tag: Word = None,
    flag: Word = None,
    text: Annotated[str | None, Query(max_length=200)] = None,
    number: PageNumber = 1,
) -> Response:
    """The items of a version: sorted, filtered, a page at a time."""
    found, loaded, items = await _items(call, bank, version)
    wanted = Wanted(sort, order == "desc", status or None, tag or None, flag or None, text, number)
    rows = await asyncio.to_thread(chosen, items, wanted)
    return await call.page(
        "items.html",
        "parts/items.html",
        version=VersionRead.read(found),
        bank_name=loaded.bank_name,
        rows=rows[PER_PAGE * (number - 1) : PER_PAGE * number],
        total=len(rows),
        flags=items.flags,
        tags=sorted(loaded.tag_counts, key=lambda name: -loaded.tag_counts[name])[:200],
        wanted=wanted,
        pages=max(1, -(-len(rows) // PER_PAGE)),
        flag_words=FLAG_WORDS,
    )


@router.get("/banks/{bank}/versions/{version}/items/{item:path}")
async def item_page(
    bank: BankRef, version: VersionRef, item: ItemRef, call: Read, number: PageNumber = 1
) -> Response:
    """One item: its text, its curve with the scores in sessions, and all answers to it."""
    opened = call.services
    found, loaded, items = await _items(call, bank, version)
    stored = await opened.items.get(bank, item, reveal=call.visit.view.is_whole)
    row = next((row for row in items.rows if row.item.item_id == stored.id), None)
    if row is None:
        raise NotFoundError("item in this version:", item)
    answers = latest = await opened.item_uses.answers(found.id, row.item.position, limit=_ANSWERS)
    if number > 1:
        answers = await opened.item_uses.answers(
            found.id, row.item.position, limit=_ANSWERS, skip=_ANSWERS * (number - 1)
        )
    chart = await asyncio.to_thread(item_curve, loaded, row.item.position, answers=latest)
    recorded = None
    if found.calibration is not None:
        with contextlib.suppress(NotFoundError):  # a lent bank's answers stay with the lender
            calibration = await opened.calibrations.get(found.calibration["id"])
            recorded = await opened.response_sets.answers_to(
                calibration.response_set_id,
                row.item.key,
                limit=_RECORDED,
                skip=_RECORDED * (number - 1),
            )
    return await call.page(
        "item.html",
        version=VersionRead.read(found),
        bank_name=loaded.bank_name,
        item=ItemRead.of(stored),
        row=row,
        parameters=_parameters(row.item),
        n_tests=items.n_tests,
        answers=answers,
        held=await asyncio.to_thread(held, loaded, row.item.position, latest),
        recorded=recorded,
        number=number,
        pages=max(
            -(-(row.use.asked if row.use else 0) // _ANSWERS),
            -(-(recorded.total if recorded else 0) // _RECORDED),
        ),
        chart=chart,
        flag_words=FLAG_WORDS,
    )


async def _items(
    call: PageCall, bank: str, version: str
) -> tuple[BankVersion, LoadedVersion, Items]:
    found = await call.services.versions.get(bank, version)
    loaded = await call.services.versions.load(found.id)
    items = await items_of(call.services, found, loaded, seen_by=call.visit.project)
    return found, loaded, items


@router.get("/banks/{bank}/leaderboard")
async def leaderboard(
    bank: BankRef,
    call: Read,
    confidence: Annotated[float, Query(ge=0.5, lt=1)] = 0.95,
    name: Word = None,
    value: Word = None,
) -> Response:
    """The leaderboard of a bank: a result of each examinee, with ties."""
    found = await call.services.leaderboards.of_bank(bank, confidence=confidence)
    shown = [found.board, *found.others]
    sessions: list[SessionRecord] = []
    apart: dict[str, Markup] = {}
    for one in shown:
        rows = [entry.session for entry in one.entries] + [row.session for row in one.unranked]
        apart |= namesakes(rows)
        sessions += rows
    kept = {session.id for session in sessions if _has(session.metadata, name, value)}
    known = sorted({key for session in sessions for key in session.metadata})
    board = LeaderboardRead.of_bank(found, call.visit.view)
    boards_shown = [
        (one, [entry for entry in one.data if entry.session_id in kept])
        for one in (board, *board.other_scales)
    ]
    return await call.page(
        "leaderboard.html", board=board, boards=boards_shown, metadata=known, kept=kept, apart=apart
    )


def _has(metadata: Mapping[str, str], name: str | None, value: str | None) -> bool:
    """Whether a session's metadata pass the filter; without a value, the name is enough."""
    return not name or (name in metadata and value in (None, "", metadata[name]))


def _parameters(item: VersionItemRead) -> list[tuple[str, float, str]]:
    meanings = {
        "b": "difficulty, logits",
        "a": "discrimination: how sharply it tells models apart",
        "c": "lower asymptote: what guessing gets",
        "d": "upper asymptote: what the ablest get",
        "k": "dispersion of its scores",
    }
    found = [(name, getattr(item, name), told) for name, told in meanings.items()]
    return [(name, value, told) for name, value, told in found if value is not None]

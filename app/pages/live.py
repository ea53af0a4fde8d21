"""The live parts of a session's page, made once for all visitors who watch it.

A frame holds what changed after an event: the new figures and charts, and the questions that were
asked or answered since. All who watch the same session from the same event get the same frame, so
that a process reads, draws and renders it once.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from weakref import WeakValueDictionary

from cachetools import LRUCache, TTLCache

from app.api.schemas.answers import ResponseRead
from app.api.schemas.sessions import SessionRead
from app.items import ItemContent, Json
from app.pages.model_results import strip_of
from app.pages.rendering import fragment
from app.records.fields import ends
from app.records.leased import ENDED, StoredEvent
from app.records.sessions import UNDERWAY, SessionRecord
from app.reports.charts import course_charts
from app.reports.figures import begins_alike, is_surprising
from app.reports.session.build import expected_scores
from app.services.banks.loaded import LoadedVersion
from app.services.container import Services
from app.services.sessions.service import SessionService
from app.services.visibility import View

#: Most points of a chart, and most estimates in the table below it.
_DRAWN, _LISTED = 120, 40
_EVENTS_AT_ONCE: Final = 500
#: Most questions in one frame; a page that is further behind must be loaded again.
_MOST_ROWS: Final = 60
#: Most frames kept, and for how many seconds: few, as a bank may be withheld in the meantime.
_FRAMES, _FRAME_S = 256, 1.0
#: Sessions whose estimates are kept; for any other, all events are read again.
_COURSES = 64

#: `answers, theta, lo, hi, score, lo, hi`; None where a figure is not known yet.
Point = tuple[float | int | None, ...]


class AnswerKind(StrEnum):
    """Kinds of answers by which a list can be filtered."""

    WRONG = "wrong"
    UNPARSED = "unparsed"
    TRUNCATED = "truncated"
    REFUSED = "refused"
    ERROR = "error"
    SURPRISING = "surprising"


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """A question as pages show it.

    Attributes:
        content: Content of the item; None where it may not be shown.
        expected: Mean score of examinees of the session's ability, as in its report.
        question: Text without the beginning that all questions share; None where not shown.
    """

    answer: ResponseRead
    content: ItemContent | None
    tags: tuple[str, ...]
    expected: float | None
    question: str | None = None

    def is_like(self, kind: AnswerKind) -> bool:
        """Whether the answer is of a kind."""
        score, outcome = self.answer.score, self.answer.outcome
        match kind:
            case AnswerKind.WRONG:
                return score == 0.0
            case AnswerKind.SURPRISING:
                return is_surprising(score, self.expected)
            case _:
                return outcome == kind.value

    def holds(self, text: str) -> bool:
        """Whether the id, question, options or answer contain `text`, ignoring case."""
        content, answer = self.content, self.answer
        texts = [answer.item_id, answer.answer or "", answer.extracted or "", self.question or ""]
        texts += [] if content is None else content.choices
        return any(text.lower() in one.lower() for one in texts)


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of the stream."""

    seq: int
    data: Mapping[str, Json] = field(repr=False)
    type: str = "live"
    created_at: datetime | None = None


async def answers_of(
    opened: Services, view: View, record: SessionRecord, *, after: int = 0, limit: int | None = None
) -> list[AnswerRow]:
    """Questions after step `after`, in order of asking, as this caller may see them."""
    asked = await opened.sessions.responses(record.id, after_step=after, limit=limit)
    version = await opened.versions.load(record.bank_version_id)
    contents: Mapping[int, Any] = {}
    if asked and view.shows(withheld=record.withheld):
        contents = await opened.versions.items_at(version, sorted({one.position for one in asked}))
    texts = {position: _text(item.content) for position, item in contents.items()}
    begins = begins_alike(list(texts.values()))
    counted = [one.position for one in asked if not one.is_pretest]
    expected = expected_scores(counted, record.summary, version.bank)
    expected_at = dict(zip(counted, expected, strict=True))
    rows = []
    for one in asked:
        answer, item = ResponseRead.of(one, view), contents.get(one.position)
        rows.append(
            AnswerRow(
                answer,
                None if item is None else item.content,
                () if one.is_pretest else version.tags[one.position],
                None if answer.score is None else expected_at.get(one.position),
                None if item is None else texts[one.position][begins:],
            )
        )
    return rows


def _text(content: ItemContent) -> str:
    return content.prompt or (content.messages[-1].content if content.messages else "")


def is_over(event: Any) -> bool:
    """Whether a frame is the last one."""
    return bool(event.data["over"])


def state_of(record: SessionRecord) -> str:
    """State of a session as far as it decides the buttons of its page."""
    return "underway" if record.status in UNDERWAY else record.status


def course_values(points: Sequence[Point]) -> dict[str, Any]:
    """Values for the templates of the course: charts, and the last estimates."""
    every = max(1, -(-len(points) // _DRAWN))
    drawn = [*points[:-1:every], *points[-1:]]
    return {"pictures": course_charts(drawn), "points": points[: -_LISTED - 1 : -1]}


class Live:
    """The frames of all sessions that are watched."""

    def __init__(self) -> None:
        self._courses: LRUCache[str, tuple[tuple[Point, ...], int]] = LRUCache(_COURSES)
        self._frames: TTLCache[tuple[str, int, bool], list[Frame]] = TTLCache(_FRAMES, _FRAME_S)
        self._making: WeakValueDictionary[tuple[str, int, bool], asyncio.Lock] = (
            WeakValueDictionary()
        )

    async def course_of(
        self, sessions: SessionService, record: SessionRecord
    ) -> tuple[tuple[Point, ...], int]:
        """Theta and score after each answer so far, and the number of the last event read."""
        points, after = self._courses.get(record.id, ((), 0))
        while after < record.event_seq:
            events = await sessions.events(record.id, after=after, limit=_EVENTS_AT_ONCE)
            if not events:
                break
            points, after = (*points, *_points(events)), events[-1].seq
        self._courses[record.id] = points, after
        return points, after

    async def since(self, opened: Services, view: View, session_id: str, seq: int) -> list[Frame]:
        """Changes after event `seq`: one frame, or none."""
        key = (session_id, seq, view.is_whole)
        # Those who ask while a frame is made wait for it.
        async with self._making.setdefault(key, asyncio.Lock()):
            found = self._frames.get(key)
            if found is None:
                found = await self._read(opened, view, session_id, seq)
                if found:
                    self._frames[key] = found
        return found

    async def _read(self, opened: Services, view: View, session_id: str, seq: int) -> list[Frame]:
        events = await opened.sessions.events(session_id, after=seq, limit=_EVENTS_AT_ONCE)
        if not events:
            return []
        record = await opened.sessions.get(session_id)
        shown = SessionRead.of(record, view)
        steps = sorted({event.data["step"] for event in events if "step" in event.data})
        steps = steps[-_MOST_ROWS:]
        rows: list[AnswerRow] = []
        if steps:
            after, limit = steps[0] - 1, steps[-1] - steps[0] + 1
            asked = await answers_of(opened, view, record, after=after, limit=limit)
            rows = [row for row in asked if row.answer.step in steps]
        points = (await self.course_of(opened.sessions, record))[0] if _points(events) else ()
        version = await opened.versions.load(record.bank_version_id)
        data: Mapping[str, Json] = {
            "parts": await asyncio.to_thread(_parts, shown, version, points),
            "rows": await asyncio.to_thread(_rows, rows, shown),
            "state": state_of(record),
            "over": record.status in ENDED and events[-1].seq >= record.event_seq,
        }
        return [Frame(events[-1].seq, data)]


def _parts(session: SessionRead, version: LoadedVersion, points: Sequence[Point]) -> dict[str, str]:
    """New HTML by its place on the page; the course only where it has grown."""
    strip = strip_of(version, [session])
    parts = {"figures": fragment("parts/figures.html", {"session": session, "strip": strip})}
    if points:
        course = course_values(points)
        parts["course"] = fragment("parts/course.html", course)
        parts["numbers"] = fragment("parts/course_numbers.html", course)
    return parts


def _rows(rows: Sequence[AnswerRow], session: SessionRead) -> list[dict[str, Any]]:
    return [
        {
            "step": row.answer.step,
            "html": fragment("parts/answer_row.html", {"row": row, "session": session}),
        }
        for row in rows
    ]


def _points(events: Sequence[StoredEvent]) -> list[Point]:
    found: list[Point] = []
    for event in events:
        if event.type != "estimate.updated":
            continue
        estimate, told = event.data["estimate"], event.data["score"]
        lo, hi = ends(estimate["interval"])
        score: list[float | None] = [None] * 3
        if told is not None:
            known = told["value"]  # replaces the ends of an absent interval
            score = [known, *(known if end is None else end for end in ends(told["interval"]))]
        values = [estimate["theta"], lo, hi, *score]
        found.append((event.data["progress"]["scored"], *values))
    return found

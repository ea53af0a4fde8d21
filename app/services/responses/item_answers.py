"""The recorded answers to one item of a response set."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.items import Outcome
from app.records.response_sets import ResponseSet, StoredSheet
from app.services.responses.sheets import CODE_OF, FRACTION, NOT_RUN, RIGHT, WRONG, Sheet
from app.storage.database import Database

_OUTCOMES = {code: outcome for outcome, code in CODE_OF.items()}
_WORDS = {WRONG: "wrong", RIGHT: "right", FRACTION: "in between"}


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """One of them.

    Attributes:
        score: None where the answer has none, as its outcome tells.
    """

    examinee: str
    trial: int
    score: float | None
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class RecordedAnswers:
    """All of them, the first by name.

    Attributes:
        counts: `right`, `wrong`, `in between` or an outcome, to the number of answers.
        first: In the order in which the examinees came into the set.
    """

    response_set: ResponseSet
    counts: Mapping[str, int]
    first: Sequence[RecordedAnswer]

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(self.counts.values())


async def answers_to(
    database: Database, set_id: str, key: str, *, limit: int, skip: int = 0
) -> RecordedAnswers | None:
    """What a response set holds of an item; None where it does not have the item.

    Args:
        database: Where it is stored.
        set_id: Of the set.
        key: Of the item.
        limit: Answers that are told one by one.
        skip: Answers before them.

    Raises:
        NotFoundError: No such set.
    """
    async with database.reading() as uow:
        found = await uow.response_sets.find(set_id)
        counted = await uow.response_sets.codes_of(found.id, key)
        if counted is None:
            return None
        position, counts = counted
        sheets = await uow.response_sets.sheets_with(
            found.id, position, but=NOT_RUN, limit=limit, skip=skip
        )
    told = {
        _WORDS.get(code) or _OUTCOMES[code].value: n
        for code, n in sorted(counts.items())
        if code != NOT_RUN
    }
    first = await asyncio.to_thread(lambda: [_answer(sheet, position) for sheet in sheets])
    return RecordedAnswers(found, told, first)


def _answer(stored: StoredSheet, position: int) -> RecordedAnswer:
    score = Sheet.of_stored(stored).score(position)
    outcome = _OUTCOMES.get(stored.codes[position], Outcome.SCORED)
    return RecordedAnswer(stored.examinee, stored.trial, score, outcome)

"""Answers with and without credit: tables of answers, scorer by scorer."""

from collections.abc import Iterator

import pytest

from app.items import Outcome, ScorerSpec
from app.scorers import Scored
from tests.scorers import claims
from tests.scorers.claims import forms, pairs
from tests.scorers.scoring import result_of, score_of

EXACT, CHOICE, INCLUDES = ScorerSpec("exact"), ScorerSpec("choice"), ScorerSpec("includes")
PATTERN = ScorerSpec("pattern", {"pattern": r"\b(Paris|Berlin|Rome|Oslo)\b", "group": 1})
NUMERIC = ScorerSpec("numeric")
TOKEN_SET = ScorerSpec("similarity", {"method": "token_set"})
CITIES = ("Berlin", "Paris", "Rome", "Oslo")
NO_CREDIT = (0.0, *(outcome.value for outcome in Outcome))

Case = tuple[ScorerSpec, str, str]
"""Scorer, target and answer."""


async def _score(spec: ScorerSpec, target: str, text: str) -> float | str:
    choices = CITIES if spec.name == "choice" else ()
    return await score_of(spec.name, text, target, choices=choices, **spec.params)


def _of(spec: ScorerSpec, *tables: str) -> Iterator[Case]:
    for table in tables:
        for text in forms(table, "Paris", "Berlin"):
            yield spec, "Paris", text


GAMING: dict[str, list[Case]] = {
    "exact": [*_of(EXACT, claims.TAKEN_BACK)],
    "choice": [*_of(CHOICE, claims.TAKEN_BACK, claims.CHOICE_GAMING)],
    "includes": [*_of(INCLUDES, claims.TAKEN_BACK)],
    "pattern": [*_of(PATTERN, claims.TAKEN_BACK)],
    "numeric": [(NUMERIC, *pair) for pair in pairs(claims.NUMERIC_GAMING)],
    "token_set": [
        (TOKEN_SET, target, text)
        for text in forms(claims.EMPTY, "", "")
        for target in claims.TARGETS_OF_WORDS
    ],
}
HONEST: dict[str, list[Case]] = {
    "exact": [
        *_of(EXACT, claims.UPHELD_EXACT),
        *((EXACT, *pair) for pair in pairs(claims.NEGATIVES)),
    ],
    "choice": [
        case
        for case in _of(CHOICE, claims.UPHELD_EXACT, claims.CHOICE_HONEST)
        if not case[2].startswith("Paris. It is ")  # names two options equally
    ],
    "includes": [
        *_of(INCLUDES, claims.UPHELD, claims.UPHELD_EXACT),
        *((INCLUDES, *pair) for pair in pairs(claims.NEGATIVES)),
    ],
    "pattern": [
        case
        for case in _of(PATTERN, claims.UPHELD, claims.UPHELD_EXACT)
        if case[2].rfind("Berlin") < case[2].rfind("Paris")  # the last match counts
    ],
    "numeric": [(NUMERIC, *pair) for pair in pairs(claims.NUMERIC_HONEST)],
    "token_set": [(TOKEN_SET, *pair) for pair in pairs(claims.TOKEN_SET_HONEST)],
}


@pytest.mark.parametrize("cases", GAMING.values(), ids=GAMING)
async def test_no_credit_is_earned_by(cases: list[Case]) -> None:
    assert [case for case in cases if await _score(*case) not in NO_CREDIT] == []


@pytest.mark.parametrize("cases", HONEST.values(), ids=HONEST)
async def test_credit_is_earned_by(cases: list[Case]) -> None:
    assert [case for case in cases if await _score(*case) != 1.0] == []


@pytest.mark.parametrize("spec", [EXACT, CHOICE, INCLUDES, PATTERN, NUMERIC, TOKEN_SET])
@pytest.mark.parametrize(
    "text",
    [
        *("Paris. No, ", "Paris? No, ", "Paris! A. B! C? No, ", "no, wait, ", "wait " * 9 + "\n"),
        *("; actually " + "a " * 9, "not the ", "is it the not ", "5 is ", "that is "),
        *("5 thousand ", "2x ", "5 - ", "n't" + " " * 999, ". " + "no " * 99),
        *(" ", "\n", ".", "?", "**", "\\, "),
    ],
)
async def test_a_megabyte_of_one_thing_is_read_in_time(spec: ScorerSpec, text: str) -> None:
    amount = "2x" if any(map(str.isdigit, text)) else "2"  # formulas take long to compare
    text = text * (1_000_000 // len(text))
    for answer in (text + "Paris", "Paris" + text):
        targets = ("Paris", amount)
        result = await result_of(spec.name, answer, *targets, choices=CITIES, **spec.params)
        assert isinstance(result, Scored) or result.code is None, result
        assert isinstance(result, Scored) or "no result" not in result.reason, result

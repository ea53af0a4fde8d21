"""The demo bank: every answer is recomputed here from the text of the question."""

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from app.calibration.multidimensional.score_curves import fit_curves
from app.demo.bank import (
    DEFAULT_SEED,
    N_REFERENCE,
    demo_bank,
    learn,
    learned,
    reference_answers,
)
from app.demo.questions import FAMILIES
from app.engine.knowledge import curves_of
from app.items import Answer
from app.scorers import Scored, build, mark
from tests.values import not_none

BANK = demo_bank()
LEARNED = curves_of(BANK.item_bank(), learned())
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
DAY_NAMES = [dt.date(2024, 1, day).strftime("%A") for day in range(1, 8)]
RATIOS = {
    ("kilometres", "metres"): 10**3,
    ("hours", "minutes"): 60,
    ("kilograms", "grams"): 10**3,
    ("weeks", "days"): 7,
    ("feet", "inches"): 12,
    ("weeks", "hours"): 7 * 24,
    ("square metres", "square centimetres"): 100 * 100,
    ("miles", "feet"): 5280,
    ("days", "seconds"): 24 * 60 * 60,
    ("cubic metres", "litres"): 10**3,
    ("fortnights", "minutes"): 14 * 24 * 60,
}


def _numbers(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"-?\d+", text)]


def _quoted(text: str) -> str:
    match = not_none(re.search(r'"([a-z ]+)"', text))
    return match[1]


def _dates(text: str) -> list[dt.date]:
    return [dt.date.fromisoformat(d) for d in re.findall(r"\d{4}-\d\d-\d\d", text)]


def _joined(values: list[int]) -> str:
    return ", ".join(str(value) for value in values)


def _expression(prompt: str) -> str:
    written = prompt.removeprefix("What is ").rstrip("?")
    assert re.fullmatch(r"[\d +*-]+", written)
    return str(eval(written))  # only digits and + - *, checked above


def _remainder(prompt: str) -> str:
    x, y, m = _numbers(prompt)
    return str((x * y) % m)


def _next_by_differences(prompt: str) -> str:
    """Return the next value of the polynomial through all terms."""
    terms = np.array(_numbers(prompt))
    return str(round(float(np.polyval(np.polyfit(range(len(terms)), terms, 2), len(terms)))))


def _next_by_ratio(prompt: str) -> str:
    terms = _numbers(prompt)
    return str(terms[-1] * terms[-1] // terms[-2])


def _next_interleaved(prompt: str) -> str:
    terms = _numbers(prompt)
    before, last = terms[-4], terms[-2]
    additive = len(terms) % 2 == 0
    return str(2 * last - before if additive else last * last // before)


def _one_conversion(prompt: str) -> str:
    match = not_none(re.fullmatch(r"How many (.+) are (\d+) (.+)\?", prompt))
    return str(int(match[2]) * RATIOS[match[3], match[1]])


def _seconds(prompt: str) -> str:
    h, m, s = _numbers(prompt)
    return str(int(dt.timedelta(hours=h, minutes=m, seconds=s).total_seconds()))


def _distance(prompt: str) -> str:
    metres, minutes = _numbers(prompt)
    kilometres = metres * minutes * 60 / 1000
    assert kilometres.is_integer()
    return str(int(kilometres))


def _weekday_after(prompt: str) -> str:
    today = next(day for day in DAY_NAMES if day in prompt)
    return DAY_NAMES[(DAY_NAMES.index(today) + _numbers(prompt)[0]) % 7]


def _days_between(prompt: str) -> str:
    earlier, later = _dates(prompt)
    return str(later.toordinal() - earlier.toordinal())


def _shifted(prompt: str) -> str:
    shift = _numbers(prompt)[0]
    return _quoted(prompt).translate(str.maketrans(ALPHABET, ALPHABET[shift:] + ALPHABET[:shift]))


def _pipeline(prompt: str) -> str:
    listed = _numbers(prompt.split("list ")[1].split(". Drop")[0])
    return _joined(sorted((v for v in listed if v % 3 != 0), reverse=True)[:4])


ANSWER_OF: dict[str, Callable[[str], str]] = {
    "add": _expression,
    "subtract": _expression,
    "multiply": _expression,
    "precedence": _expression,
    "remainder": _remainder,
    "constant_step": _next_by_differences,
    "constant_factor": _next_by_ratio,
    "growing_step": _next_by_differences,
    "sum_of_two": lambda prompt: str(sum(_numbers(prompt)[-2:])),
    "interleaved": _next_interleaved,
    "one_factor": _one_conversion,
    "two_factors": _one_conversion,
    "time_to_seconds": _seconds,
    "temperature": lambda prompt: str(round(_numbers(prompt)[0] * 1.8 + 32)),
    "speed": _distance,
    "weekday_after": _weekday_after,
    "date_after": lambda prompt: str(_dates(prompt)[0] + dt.timedelta(days=_numbers(prompt)[0])),
    "days_between": _days_between,
    "weekday_of": lambda prompt: _dates(prompt)[0].strftime("%A"),
    "length": lambda prompt: str(len(_quoted(prompt))),
    "vowels": lambda prompt: str(len(re.findall("[aeiou]", _quoted(prompt)))),
    "reverse": lambda prompt: "".join(reversed(_quoted(prompt))),
    "sort": lambda prompt: "".join(sorted(_quoted(prompt))),
    "shift": _shifted,
    "largest": lambda prompt: str(max(_numbers(prompt))),
    "total": lambda prompt: str(sum(_numbers(prompt))),
    "sorted": lambda prompt: _joined(sorted(_numbers(prompt))),
    "odd_sum": lambda prompt: str(sum(n for n in _numbers(prompt) if n % 2 == 1)),
    "pipeline": _pipeline,
}


@pytest.mark.parametrize("seed", [DEFAULT_SEED, 1, 2])
def test_every_answer_is_what_the_question_asks_for(seed: int) -> None:
    for item in demo_bank(seed).items:
        assert item.right_answer == ANSWER_OF[item.tags[1]](not_none(item.content.prompt)), item


def test_every_kind_of_question_occurs() -> None:
    assert {item.tags[1] for item in BANK.items} == set(ANSWER_OF)


@pytest.mark.parametrize("seed", [DEFAULT_SEED, 3])
async def test_each_items_own_scorer_tells_right_from_wrong(seed: int) -> None:
    for item in demo_bank(seed).items:
        scorer = build(item.scorer)
        right = await mark(scorer, item.content, Answer(text=item.right_answer))
        assert isinstance(right, Scored), (item, right)
        assert right.score == 1.0, (item, right)
        for text in item.wrong_answers:
            wrong = await mark(scorer, item.content, Answer(text=text))
            assert isinstance(wrong, Scored), (item, text, wrong)
            assert wrong.score == 0.0, (item, text, wrong)


def test_the_seed_determines_the_bank() -> None:
    assert demo_bank.__wrapped__(5) == demo_bank(5)
    assert demo_bank(5).items != demo_bank(6).items


def test_there_are_at_least_300_items_of_all_families_and_no_two_are_the_same() -> None:
    assert Counter(item.tags[0] for item in BANK.items) == dict.fromkeys(FAMILIES, 60)
    assert len({item.content.content_hash for item in BANK.items}) == len(BANK.items)
    assert len({item.key for item in BANK.items}) == len(BANK.items)


@pytest.mark.parametrize("seed", [DEFAULT_SEED, 1, 2])
def test_no_prompt_stands_inside_another(seed: int) -> None:
    prompts = [not_none(item.content.prompt) for item in demo_bank(seed).items]
    inside = [(p, q) for p in prompts for q in prompts if p is not q and p in q]
    assert inside == []


def test_difficulties_spread_evenly_and_rise_with_the_level_within_a_family() -> None:
    counts, _ = np.histogram([item.b for item in BANK.items], bins=6, range=(-3, 3))
    assert counts.sum() == len(BANK.items)
    assert counts.min() >= 40
    for family in FAMILIES:
        b = [item.b for item in BANK.items if item.tags[0] == family]
        assert np.corrcoef(b, range(len(b)))[0, 1] > 0.95


def test_half_of_the_items_are_multiple_choice_and_guessing_is_one_in_n() -> None:
    assert sum(bool(item.content.choices) for item in BANK.items) == len(BANK.items) // 2
    for item in BANK.items:
        n = len(item.content.choices)
        assert item.c == (pytest.approx(1 / n, abs=1e-4) if n else 0.0)


def test_positions_of_right_options_are_uniform() -> None:
    for n in (4, 5):
        places = Counter(
            item.content.target_letters for item in BANK.items if len(item.content.choices) == n
        )
        assert len(places) == n
        assert max(places.values()) - min(places.values()) <= 1


def test_options_are_distinct_and_cannot_be_taken_for_letters() -> None:
    for item in BANK.items:
        assert len(set(item.content.choices)) == len(item.content.choices)
        assert not any(re.fullmatch("[A-Za-z]", text) for text in item.content.choices)


def test_the_parameters_are_provisional_and_measure_over_the_whole_range() -> None:
    assert BANK.provisional
    assert "provisional" in BANK.scale
    assert "PROVISIONAL" in BANK.description
    bank = BANK.item_bank()
    assert bank.item_ids == tuple(item.key for item in BANK.items)
    np.testing.assert_allclose(bank.b, [item.b for item in BANK.items])
    information = bank.information(np.array([-2.5, 0.0, 2.5])).sum(axis=-1)
    assert information.min() > 1 / 0.2**2


def test_stored_knowledge_belongs_to_the_present_bank() -> None:
    assert LEARNED is not None
    fitted = fit_curves(reference_answers(BANK))
    np.testing.assert_allclose(LEARNED.curves.intercept, fitted.intercept, atol=0.05)
    np.testing.assert_allclose(LEARNED.curves.slopes[0], fitted.slopes[0], atol=0.05)
    assert LEARNED.n_reference == N_REFERENCE


def test_learning_again_gives_the_stored_file() -> None:
    again = not_none(curves_of(BANK.item_bank(), learn(BANK)))
    assert LEARNED is not None
    np.testing.assert_allclose(again.curves.slopes, LEARNED.curves.slopes, atol=1e-6)


def test_they_differ_in_ability_as_models_do() -> None:
    scores = reference_answers(BANK).mean(axis=1)
    assert scores[:10].mean() < 0.35
    assert scores[-10:].mean() > 0.8

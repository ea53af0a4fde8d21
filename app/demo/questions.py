"""Question families of the demo bank: functions of a random generator and a level.

Every family makes harder questions as `level` goes from 0 to 1. Answers are right by construction.
Wrong answers come from plausible slips: one off, the wrong operation, the neighbour.
"""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

AnswerKind = Literal["number", "text"]

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
VOWELS = "aeiou"
# fmt: off
WORDS = (
    "river", "stone", "candle", "garden", "planet", "silver", "window", "market", "bridge",
    "forest", "lantern", "harvest", "journey", "kitchen", "library", "mountain", "orchard",
    "painter", "quarter", "sailor", "horizon", "compass", "anchor", "captain", "voyage",
    "meridian", "latitude", "longitude", "navigator", "telescope", "algorithm", "parameter",
    "benchmark", "precision", "instrument", "calendar", "discovery", "evidence", "framework",
    "hypothesis", "measurement", "observation", "independent", "examination", "temperature",
    "relationship", "understanding", "characteristic", "representation", "administration",
)
# fmt: on


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with its answer and plausible wrong answers, most plausible first."""

    template: str
    prompt: str
    answer: str
    wrong: tuple[str, ...]
    kind: AnswerKind


Rng = np.random.Generator
Family = Callable[[Rng, float], Question]


def _pick(rng: Rng, low: int, high: int) -> int:
    """A whole number from `low` to `high`, both included."""
    return int(rng.integers(low, high + 1))


def _number(template: str, prompt: str, answer: int, *slips: int) -> Question:
    """A question whose answer is a whole number; `slips` are results of plausible mistakes."""
    near: tuple[int, ...] = (
        answer + 1,
        answer - 1,
        answer + 10,
        answer - 10,
        answer + 2,
        2 * answer,
        answer + 100,
    )
    if answer >= 0:
        near = tuple(w for w in near if w >= 0)
    wrong = dict.fromkeys(str(w) for w in (*slips, *near) if w != answer)
    return Question(
        template=template, prompt=prompt, answer=str(answer), wrong=tuple(wrong)[:6], kind="number"
    )


def _text(template: str, prompt: str, answer: str, wrong: list[str]) -> Question:
    distinct = tuple(dict.fromkeys(w for w in wrong if w and w != answer))
    return Question(
        template=template, prompt=prompt, answer=answer, wrong=distinct[:6], kind="text"
    )


def arithmetic(rng: Rng, level: float) -> Question:
    """Questions from sums of small numbers to remainders of products."""
    if level < 0.2:
        top = 10 + round(90 * level)
        x, y = _pick(rng, 2, top), _pick(rng, 2, top)
        return _number("add", f"What is {x} + {y}?", x + y, x + y + 1, x + y - 1)
    if level < 0.4:
        x, y = _pick(rng, 200, 999), _pick(rng, 21, 199)
        return _number("subtract", f"What is {x} - {y}?", x - y, x - y + 10, x - y - 10)
    if level < 0.6:
        x, y = _pick(rng, 12, 40 + round(100 * level)), _pick(rng, 6, 19)
        return _number("multiply", f"What is {x} * {y}?", x * y, x * (y - 1), (x + 1) * y)
    if level < 0.8:
        w, x, y, z = (_pick(rng, 7, 29) for _ in range(4))
        return _number(
            "precedence",
            f"What is {w} + {x} * {y} - {z}?",
            w + x * y - z,
            (w + x) * y - z,
            w + x * (y - z),
            w + x * y + z,
        )
    x, y, m = _pick(rng, 120, 989), _pick(rng, 120, 989), _pick(rng, 11, 97)
    rest = x * y % m
    return _number(
        "remainder",
        f"What is the remainder when {x} * {y} is divided by {m}?",
        rest,
        (x % m + y % m) % m,
        m - rest,
    )


def patterns(rng: Rng, level: float) -> Question:
    """The next term of a sequence: with constant steps, then growing and interleaved ones."""
    first, step = _pick(rng, 1, 30), _pick(rng, 2, 14)
    if level < 0.2:
        template, terms = "constant_step", [first + step * i for i in range(6)]
    elif level < 0.4:
        first, step = _pick(rng, 1, 9), _pick(rng, 2, 5)
        template, terms = "constant_factor", [first * step**i for i in range(6)]
    elif level < 0.6:
        template, terms = "growing_step", [first + step * i + i * (i - 1) // 2 for i in range(7)]
    elif level < 0.8:
        terms = [_pick(rng, 1, 9), _pick(rng, 2, 15)]
        while len(terms) < 8:
            terms.append(terms[-1] + terms[-2])
        template = "sum_of_two"
    else:
        other, factor = _pick(rng, 2, 9), _pick(rng, 2, 4)
        template = "interleaved"
        terms = [
            first + step * (i // 2) if i % 2 == 0 else other * factor ** (i // 2) for i in range(9)
        ]
        terms = terms[: 8 + _pick(rng, 0, 1)]
    *shown, answer = terms
    last_step = shown[-1] - shown[-2]
    return _number(
        template,
        f"Which number comes next: {', '.join(map(str, shown))}, ...?",
        answer,
        shown[-1] + last_step,
        shown[-1] + abs(last_step) + 1,
        answer + step,
        answer - step,
    )


#: Larger unit, smaller unit, and the number of smaller units in one larger unit.
_UNITS_EASY = (
    ("kilometres", "metres", 1000),
    ("hours", "minutes", 60),
    ("kilograms", "grams", 1000),
    ("weeks", "days", 7),
    ("feet", "inches", 12),
)
_UNITS_HARD = (
    ("weeks", "hours", 168),
    ("square metres", "square centimetres", 10_000),
    ("miles", "feet", 5280),
    ("days", "seconds", 86_400),
    ("cubic metres", "litres", 1000),
    ("fortnights", "minutes", 20_160),
)


def units(rng: Rng, level: float) -> Question:
    """Conversions: one factor, two factors, speeds and temperatures."""
    if level < 0.3:
        name, to, factor = _UNITS_EASY[_pick(rng, 0, len(_UNITS_EASY) - 1)]
        n = _pick(rng, 2, 15 + round(60 * level))
        return _number(
            "one_factor",
            f"How many {to} are {n} {name}?",
            n * factor,
            n * factor * 10,
            (n + 1) * factor,
        )
    if level < 0.5:
        h, m, s = _pick(rng, 2, 11), _pick(rng, 2, 59), _pick(rng, 2, 59)
        total = 3600 * h + 60 * m + s
        return _number(
            "time_to_seconds",
            f"How many seconds are {h} hours, {m} minutes and {s} seconds?",
            total,
            60 * h + 60 * m + s,
            total - s,
            total + 60,
        )
    if level < 0.7:
        name, to, factor = _UNITS_HARD[_pick(rng, 0, len(_UNITS_HARD) - 1)]
        n = _pick(rng, 3, 60)
        return _number(
            "two_factors",
            f"How many {to} are {n} {name}?",
            n * factor,
            n * factor // 10,
            n * factor * 10,
        )
    if level < 0.85:
        celsius = 5 * _pick(rng, -18, 40)
        fahrenheit = celsius * 9 // 5 + 32
        return _number(
            "temperature",
            f"What is {celsius} degrees Celsius in degrees Fahrenheit?",
            fahrenheit,
            celsius * 9 // 5,
            celsius * 2 + 32,
            (celsius + 32) * 9 // 5,
        )
    metres, minutes = 25 * _pick(rng, 3, 40), _pick(rng, 2, 50)
    return _number(
        "speed",
        f"A train moves at {metres} metres per second. How many kilometres does it cover "
        f"in {20 * minutes} minutes?",
        metres * 20 * minutes * 60 // 1000,
        metres * 20 * minutes // 1000,
        metres * minutes * 60 // 1000,
        metres * 20 * minutes * 36 // 1000,
    )


def dates(rng: Rng, level: float) -> Question:
    """Weekdays after some days, dates after some days, days between dates."""
    day = dt.date(2000, 1, 1) + dt.timedelta(days=_pick(rng, 0, 10_900))
    if level < 0.35:
        start, n = _pick(rng, 0, 6), _pick(rng, 2, 8 + round(250 * level))
        answer = (start + n) % 7
        return _text(
            "weekday_after",
            f"Today is {WEEKDAYS[start]}. Which day of the week is it {n} days from now?",
            WEEKDAYS[answer],
            [WEEKDAYS[(answer + shift) % 7] for shift in (1, -1, 2, -2, 3)],
        )
    if level < 0.6:
        n = _pick(rng, 9, round(150 * level))
        end = day + dt.timedelta(days=n)
        return _text(
            "date_after",
            f"Which date is {n} days after {day}? Write it as YYYY-MM-DD.",
            str(end),
            [str(end + dt.timedelta(days=shift)) for shift in (1, -1, 2, -2, 30, 7)],
        )
    if level < 0.8:
        n = _pick(rng, 40, 900)
        return _number(
            "days_between",
            f"How many days after {day} is {day + dt.timedelta(days=n)}?",
            n,
            n + 1,
            n - 1,
            n + 30,
            n - 30,
        )
    return _text(
        "weekday_of",
        f"Which day of the week was {day}?",
        WEEKDAYS[day.weekday()],
        [WEEKDAYS[(day.weekday() + shift) % 7] for shift in (1, -1, 2, -2, 3)],
    )


def strings(rng: Rng, level: float) -> Question:
    """Counting letters, reversing, sorting, shifting through the alphabet."""
    words = sorted(WORDS, key=len)
    middle = round(level * (len(words) - 1))
    word = words[int(np.clip(middle + _pick(rng, -12, 12), 0, len(words) - 1))]
    if level < 0.2:
        return _number("length", f'How many letters are in the word "{word}"?', len(word))
    if level < 0.4:
        other = WORDS[_pick(rng, 0, len(WORDS) - 1)]
        total = sum(letter in VOWELS for letter in word + other)
        return _number(
            "vowels",
            f'How many vowels (a, e, i, o, u) are there in "{word} {other}"?',
            total,
            total + 1,
            total + 2,
        )
    if level < 0.6:
        answer = word[::-1]
        template, prompt = "reverse", f'Write the word "{word}" backwards.'
    elif level < 0.8:
        answer = "".join(sorted(word))
        template, prompt = "sort", f'Write the letters of "{word}" in alphabetical order.'
    else:
        shift = _pick(rng, 2, 11)
        answer = "".join(chr((ord(letter) - 97 + shift) % 26 + 97) for letter in word)
        template = "shift"
        prompt = (
            f'Replace every letter of "{word}" by the letter {shift} places later in the alphabet, '
            "going on from z to a. What is the result?"
        )
    return _text(template, prompt, answer, _letter_slips(rng, answer))


def _letter_slips(rng: Rng, answer: str) -> list[str]:
    """`answer` with two neighbours swapped, a letter doubled, and a letter dropped."""
    slips = []
    for position in rng.permutation(len(answer) - 1)[:3]:
        i = int(position)
        slips.append(answer[:i] + answer[i + 1] + answer[i] + answer[i + 2 :])
        slips.append(answer[:i] + answer[i] + answer[i:])
        slips.append(answer[:i] + answer[i + 1 :])
    return slips


def lists(rng: Rng, level: float) -> Question:
    """Questions from the largest of a few numbers to several operations on a long list."""
    n = 4 + round(8 * level)
    values = [int(v) for v in rng.choice(np.arange(-40, 100), size=n, replace=False)]
    shown = ", ".join(map(str, values))
    ordered = sorted(values)
    if level < 0.2:
        return _number(
            "largest",
            f"What is the largest number in the list {shown}?",
            ordered[-1],
            *ordered[-4:-1],
        )
    if level < 0.4:
        total = sum(values)
        return _number("total", f"What is the sum of the list {shown}?", total, total - values[-1])
    if level < 0.6:
        return _text(
            "sorted",
            f"Sort the list {shown} from smallest to largest. "
            "Write the numbers separated by commas.",
            ", ".join(map(str, ordered)),
            _list_slips(rng, ordered),
        )
    if level < 0.8:
        size = len([v for v in values if v % 2 == 0])
        odd_sum = sum(v for v in values if v % 2)
        return _number(
            "odd_sum",
            f"Add up only the odd numbers in the list {shown}. What is the total?",
            odd_sum,
            sum(values) - odd_sum,
            odd_sum + size,
        )
    kept = [v for v in ordered[::-1] if v % 3][:4]
    return _text(
        "pipeline",
        f"Take the list {shown}. Drop every multiple of 3, sort the rest from largest to smallest "
        "and keep the first four. Write the numbers separated by commas.",
        ", ".join(map(str, kept)),
        _list_slips(rng, kept),
    )


def _list_slips(rng: Rng, answer: list[int]) -> list[str]:
    """`answer` with two neighbours swapped, or one number off by one."""
    slips = []
    for position in rng.permutation(len(answer) - 1):
        i = int(position)
        swapped = [*answer[:i], answer[i + 1], answer[i], *answer[i + 2 :]]
        changed = [*answer[:i], answer[i] + 1, *answer[i + 1 :]]
        slips += [", ".join(map(str, swapped)), ", ".join(map(str, changed))]
    return slips


FAMILIES: dict[str, Family] = {
    "arithmetic": arithmetic,
    "patterns": patterns,
    "units": units,
    "dates": dates,
    "strings": strings,
    "lists": lists,
}

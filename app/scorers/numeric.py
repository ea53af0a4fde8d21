"""Compares a number or a formula with the targets by value.

Plain numbers are compared here, exactly and at once. If the answer or a target is a formula,
symbolic algebra decides in a helper process, which is killed when it takes too long.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from functools import partial
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from app.errors import InvalidInputError
from app.items import Answer, ItemContent, Outcome
from app.scorers.base import WORK_S, Mark, NotScored, Scored, Scorer
from app.scorers.confined import Failed, confined
from app.scorers.numbers import Number, has_factor, is_formula, numbers_in, prepare, whole_number
from app.scorers.text import last_boxed, last_line, no_answer, sole_emphasis, stands, statements

_EQUALS = re.compile(r"=|≈|≃|\\approx|:=")
_SENTENCE_END = re.compile(r"(?<=[^\s])(?:[.;?]|(?<!\d)!)(?:\s|$)")
_MATHS = re.compile(
    r"\\[{a-zA-Z]|\^|√|π|\bsqrt\b|\bpi\b|\d\s*(?:\*\*|[*+/×·])\s*\d|\d\s*-\s*\d|\b[a-z]\s*[-+*/]|"
    r"\d[a-z]\b|\([^()]*,[^()]*\)"
)
_INLINE = re.compile(r"\$\$?([^$\n]+)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]")
_RUN = re.compile(r"[-+(√\d][\d\s.,+\-*/^×·()√]*")
#: Text in brackets after a word is an aside: "25 boxes (5 in each)".
_ASIDE = re.compile(r"(?<=[\w%*]) \([^()]*\)")
_ALTERNATIVES = re.compile(r"(?:.*\bor|between\b.*\band|from\b.*\bto)\s+[$€£]?", re.IGNORECASE)
#: In an explicit claim, "1 000" is one number.
_GROUPED_BY_BLANK = re.compile(r"(?<=\d) (?=\d{3}(?!\d))")
#: So is, anywhere, "5 000" or "1 234 567".
_CLEARLY_GROUPED = re.compile(
    r"(?<!\d )(?<![\d.,])[1-9]\d{0,2}(?:(?: 000)+|(?: \d{3}){2,})(?! ?\d)"
)
_COMMAND = re.compile(r"\\[a-zA-Z]")
#: Mathematics at the end of a line, behind words if any: no words but LaTeX's commands.
_FORMULA_AT_END = re.compile(
    r"(?:^|(?<=[a-zA-Z]{2}[\s:]))"
    r"(?:\\(?:[a-zA-Z]+|[^a-zA-Z])|(?<![a-zA-Z])[a-zA-Z](?![a-zA-Z])|[^a-zA-Z\\])+$"
)
#: Most characters of a formula; no sensible answer is longer.
_MAX_EXPRESSION = 500
_NOTHING_TO_COMPARE = "The item's targets hold no number or formula to compare with."


@dataclass(frozen=True, slots=True)
class _Expression:
    """A formula whose value takes symbolic algebra."""

    text: str


@dataclass(frozen=True, slots=True)
class Several:
    """Two numbers with equal claims to be the answer: "25 or 26", "between 20 and 30"."""

    texts: tuple[str, str]


_Content = Number | _Expression | Several


class Numeric(Scorer):
    r"""A number or formula, compared by value within a tolerance; units are ignored.

    A target is a formula if letters other than units follow a number directly ("2x", "5a"). So is
    one with a function or a sign that compares ("ln(2)", "x < 2").

    The number that counts is the one in `\boxed{}`, after `####`, after "the answer is", in bold
    on the last line, or else the last one of the answer.

    Attributes:
        abs_tol: Largest absolute difference that counts as equal.
        rel_tol: Largest difference relative to the target; the larger of the two tolerances holds.
        timeout_s: Seconds that symbolic comparison may take; after these the answer is unparsed.
    """

    version: ClassVar[str] = "6"
    libraries: ClassVar[tuple[str, ...]] = ("app.scorers.libraries.algebra",)

    abs_tol: Annotated[float, Field(ge=0)] = 0.0
    rel_tol: Annotated[float, Field(ge=0, lt=1)] = 1e-9
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 5.0

    @override
    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        """Score 1 if the answer equals any target, else 0; unparsed if no number is found.

        The outcome is an error if no target is a number or formula: no answer could be right.
        """
        if not item.target:
            return NotScored(outcome=Outcome.ERROR, reason="The item has no target.")
        if not any(map(_is_comparable, item.target)):
            return NotScored(outcome=Outcome.ERROR, reason=_NOTHING_TO_COMPARE)
        targets = [whole_number(target) for target in item.target]
        text = prepare(answer.text)
        found = stated_number(text, formulas=None in targets)
        if found is None:
            return no_answer(answer.text, "No number could be found in the answer.")
        extractor, content = found
        if isinstance(content, Several):
            named = " and ".join(content.texts)
            return no_answer(answer.text, f"The answer names several numbers: {named}.")
        if not stands(content.text, text):
            return no_answer(text, f"The answer retracts what it claimed: {content.text}.")
        formulas = [*filter(is_formula, item.target)]
        if any(_states(content.text, formula) for formula in formulas):
            return Scored(score=1.0, extracted=content.text, extractor=extractor)
        if isinstance(content, Number) and any(
            target is not None and self._equal(content, target) for target in targets
        ):
            return Scored(score=1.0, extracted=content.text, extractor=extractor)
        if isinstance(content, Number) and None not in targets:
            return Scored(score=0.0, extracted=content.text, extractor=extractor)
        # Algebra reads "3d" as 3, so a number is compared with no such formula, unless with pi.
        alike = {*filter(has_factor, item.target)} if isinstance(content, Number) else set()
        others = [t for t in item.target if t not in alike or "pi" in t]
        return await self._compare(content.text, others, extractor)

    @override
    def unmarkable(self, item: ItemContent) -> str | None:
        short = [text for text in item.target if len(text) <= _MAX_EXPRESSION]
        if len(short) < len(item.target) or not short or any(map(_is_comparable, short)):
            return None
        return "a number or a formula"

    @property
    @override
    def work_s(self) -> float:
        return WORK_S + self.timeout_s

    @override
    def gave_up(self, reason: str) -> NotScored:
        return NotScored(
            outcome=Outcome.UNPARSED, reason=f"The formula could not be compared: {reason}."
        )

    def _equal(self, number: Number, target: Number) -> bool:
        return number.equals(target, abs_tol=self.abs_tol, rel_tol=self.rel_tol)

    async def _compare(self, expression: str, targets: Sequence[str], extractor: str) -> Mark:
        if len(expression) > _MAX_EXPRESSION:
            return NotScored(outcome=Outcome.UNPARSED, reason="The formula is too long to compare.")
        work = partial(compare, answer=expression, targets=[prepare(target) for target in targets])
        result = await confined(work, timeout_s=self.timeout_s, libraries=self.libraries)
        if isinstance(result, Failed):
            return self.unmarked(result)
        if result is None:
            return NotScored(outcome=Outcome.UNPARSED, reason="The formula could not be read.")
        equal, value, wanted = result
        right = equal or any(self._values_equal(value, target) for target in wanted)
        if not right and value is None and None not in wanted:
            return NotScored(outcome=Outcome.UNPARSED, reason="The answer is not a number.")
        return Scored(score=float(right), extracted=expression, extractor=extractor)

    def _values_equal(self, answer: str | None, target: str | None) -> bool:
        if answer is None or target is None:
            return False
        mine, wanted = whole_number(answer), whole_number(target)
        return mine is not None and wanted is not None and self._equal(mine, wanted)

    @override
    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        """The first target, and a number that differs from every target."""
        if not item.target:
            raise InvalidInputError("A numeric item needs a target.")
        if not any(map(_is_comparable, item.target)):
            raise InvalidInputError(_NOTHING_TO_COMPARE)
        targets = [whole_number(target) for target in item.target]
        if targets[0] is None:
            return rf"\boxed{{{item.target[0]}}}", rf"\boxed{{{item.target[0]} + 1}}"
        largest = max(abs(t.value) * max(Decimal(1), t.scale) for t in targets if t is not None)
        # Twice as much differs by more than any tolerance.
        wrong = 2 * (largest + Decimal(self.abs_tol)) + int(rng.integers(1, 9))
        return item.target[0], f"{wrong.to_integral_value(ROUND_CEILING):f}"


def compare(*, answer: str, targets: list[str]) -> tuple[bool, str | None, list[str | None]] | None:
    """Call `algebra.compare`, which only helper processes import."""
    from app.scorers.libraries import algebra

    return algebra.compare(answer, targets)


def stated_number(text: str, *, formulas: bool) -> tuple[str, _Content] | None:
    """Name of the extractor that found the stated number or formula, and what it found.

    Only where a target is a formula can a bare formula in the prepared text be the answer.
    """
    claims = [("boxed", last_boxed(text))]
    if "####" in text:
        claims.append(("hash", text.rpartition("####")[2].strip().partition("\n")[0]))
    claims += [("statement", claim) for claim in reversed(statements(text))]
    claims.append(("emphasis", sole_emphasis(text)))
    for extractor, claim in claims:
        content = (
            _content(claim, formulas=formulas, prose=extractor == "emphasis") if claim else None
        )
        if content is not None:
            return extractor, content
    if formulas:
        inline = [next(filter(None, groups)) for groups in _INLINE.findall(text)]
        expression = inline[-1] if inline else last_line(text)
        if inline or _MATHS.search(expression) or is_formula(expression):
            return "expression", _Expression(_after_equals(expression))
    return _last_number(text)


def _states(claim: str, formula: str) -> bool:
    """Whether `claim` ends in `formula`, or adds only a reason; blanks and case do not matter."""
    wanted = r"[\s*$\\]*".join(map(re.escape, re.sub(r"[\s*$\\]", "", prepare(formula))))
    after = r"[\s*$]*(?:$|[.;](?!\d)|,\s(?!or\b|and\b)[a-z]{2})"
    found = re.search(rf"(?<![\w.+*/^(-])(?<![+*/^-]\s)({wanted}){after}", claim, re.IGNORECASE)
    return found is not None and stands(found[1], claim)


def _is_comparable(target: str) -> bool:
    """Whether an answer that states `target` could be parsed."""
    if whole_number(target) is not None:
        return True
    return _content(prepare(target), formulas=True, prose=False) is not None


def _content(claim: str, *, formulas: bool, prose: bool) -> _Content | None:
    """The number, formula or alternatives that an explicit claim states.

    Args:
        claim: The text that is marked as the answer.
        formulas: Whether a target is a formula; a number within a formula is then not the answer.
        prose: Whether `claim` may be emphasised prose, in which a number must stand alone.
    """
    claim = _GROUPED_BY_BLANK.sub("", _after_equals(claim))
    numbers = list(numbers_in(claim))
    maths = _MATHS.search(claim) or (formulas and is_formula(claim))
    if numbers and not numbers[0].in_expression and not (formulas and maths):
        if prose and (len(numbers) > 1 or numbers[0].start > 1):
            return None
        if len(numbers) > 1 and _ALTERNATIVES.fullmatch(claim[: numbers[1].start]):
            return Several((numbers[0].text, numbers[1].text))
        return numbers[0]
    claim = _SENTENCE_END.split(claim)[0].strip(" *_`.")
    inline = _INLINE.search(claim)
    if inline is not None:
        claim = next(filter(None, inline.groups()))
    return _Expression(claim) if maths else None


def _after_equals(claim: str) -> str:
    return _EQUALS.split(claim)[-1].strip() or claim


def _last_number(text: str) -> tuple[str, Number | _Expression] | None:
    text = _CLEARLY_GROUPED.sub(lambda m: m[0].replace(" ", ""), text)
    without_asides = _ASIDE.sub("", text)
    numbers = list(numbers_in(without_asides))
    if numbers:
        text = without_asides
    else:
        numbers = list(numbers_in(text))
    if not numbers:
        return None
    last = numbers[-1]
    if not last.in_expression:
        return "last_number", last
    inline = [m for m in _INLINE.finditer(text) if m.start() <= last.start < m.end()]
    if inline:
        return "last_number", _Expression(_after_equals(next(filter(None, inline[0].groups()))))
    line = last_line(text)
    formula = _FORMULA_AT_END.search(line)
    if formula and last.text in formula[0] and _COMMAND.search(formula[0]):
        return "last_number", _Expression(_after_equals(formula[0]).rstrip(". "))
    run = [match[0].strip() for match in _RUN.finditer(text) if match.start() <= last.start]
    return "last_number", _Expression(run[-1] if run else last.text)


class Closeness(Scorer):
    r"""Nearness of the answer's number to the target: 1 at the target, 0 from the limit on.

    The score falls linearly with the error. The limit is the larger of `abs_limit` and `rel_limit`
    times the target's absolute value. The number is found as by `numeric`.

    Attributes:
        rel_limit: Error from which the score is 0, as a share of the target's absolute value.
        abs_limit: Error from which the score is 0, as an absolute difference.
    """

    version: ClassVar[str] = "5"

    rel_limit: Annotated[float, Field(gt=0)] | None = None
    abs_limit: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _some_limit(self) -> Self:
        if self.rel_limit is None and self.abs_limit is None:
            raise ValueError("give rel_limit, abs_limit or both: the error from which it is 0")
        return self

    @override
    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        """Score by the nearest target; unparsed where no number or several are stated."""
        targets = [number for text in item.target if (number := whole_number(text)) is not None]
        if not any(self._limit(target.value) for target in targets):
            return NotScored(
                outcome=Outcome.ERROR,
                reason="The item has no target."
                if not targets
                else "The target is 0, which has no relative error: the scorer needs abs_limit.",
            )
        found = stated_number(prepare(answer.text), formulas=False)
        if found is None:
            return no_answer(answer.text, "No number could be found in the answer.")
        extractor, content = found
        if isinstance(content, Several):
            named = " and ".join(content.texts)
            return no_answer(answer.text, f"The answer names several numbers: {named}.")
        if not isinstance(content, Number):
            return no_answer(answer.text, "The answer is not a plain number.")
        marks = [
            1 - abs(float(value) - float(wanted)) / limit
            for target in targets
            for value, wanted in content.readings(target)
            if (limit := self._limit(wanted))
        ]
        return Scored(score=max(0.0, *marks), extracted=content.text, extractor=extractor)

    @override
    def unmarkable(self, item: ItemContent) -> str | None:
        if not item.target or any(whole_number(text) is not None for text in item.target):
            return None
        return "a number"

    def _limit(self, wanted: Decimal) -> float:
        return max(self.abs_limit or 0.0, (self.rel_limit or 0.0) * abs(float(wanted)))

    @override
    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        """The first target, and a number beyond the limit of every target."""
        targets = [number for text in item.target if (number := whole_number(text)) is not None]
        if not targets:
            raise InvalidInputError("A closeness item needs a number as target.")
        highest = max(float(target.value) + self._limit(target.value) for target in targets)
        return item.target[0], f"{highest + 1 + rng.integers(9):f}"

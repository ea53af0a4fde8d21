"""What recorded results give for a bank: its items, how they were asked, what had to be settled."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from typing_extensions import TypedDict

from app.exchange.item_record import ItemFields
from app.exchange.results.recorded import Method
from app.items import Json, ScorerSpec
from app.printable import percent

_RIGHT = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Something that the files left open, and how it was settled.

    Attributes:
        what: `filter`, `metric`, `prompt`, ...
        taken: What was taken.
        others: What else there was.
        detail: One sentence.
        option: Of the command, by which it is chosen otherwise; None where there is none.
    """

    what: str
    taken: str
    detail: str
    others: tuple[str, ...] = ()
    option: str | None = None


class Style(TypedDict, total=False):
    """The prompt of a bank, as JSON."""

    mode: str
    normalise: str
    blank: str
    stop: list[str]
    free_instruction: str
    choice_instruction: str
    layout: dict[str, str]
    item_shots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The items of a bank, JSON-able but for its parts, and how they were asked.

    Attributes:
        items: Fields of each item, as an item file has them.
        style: Prompt of the bank.
        asked: How the answers were obtained, as far as the files say.
        scorers: Scorers that may mark as the files did, the likeliest first; empty where the
            likeliest option is the answer.
        answers: Some recorded answers: key of the item, text, score.
        choices: What had to be settled.
        left_out: Items that cannot be asked: reason to keys.
    """

    items: list[ItemFields]
    style: Style
    asked: Method
    scorers: list[ScorerSpec]
    answers: list[tuple[str, str, float]]
    choices: list[Choice]
    left_out: dict[str, list[str]]

    def renamed(self, names: Mapping[str, str]) -> "Found":
        """The same with other keys; what is left out is only counted."""
        return replace(
            self,
            items=[{**item, "key": names[item["key"]]} for item in self.items],
            answers=[(names[key], text, score) for key, text, score in self.answers],
            left_out={reason: ["-"] * len(keys) for reason, keys in self.left_out.items()},
        )

    def to_dict(self) -> dict[str, Json]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: object) -> "Found":
        """What `to_dict` wrote."""
        from pydantic import TypeAdapter  # children that read files need it not

        return TypeAdapter(cls).validate_python(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How a scorer marks recorded answers, those marked right and those marked wrong apart.

    One share of both would be blind: where 95 of 100 answers are right, a scorer that calls
    everything right gives 95 % of the marks again.

    Attributes:
        n_right: Recorded answers with a score of 0.5 or more.
        n_wrong: The others.
        right: Share of the former that it marks as they were; None where there are none.
        wrong: Share of the latter; None where there are none.
        differing: Places of the answers that it marks otherwise.
    """

    n_right: int
    n_wrong: int
    right: float | None
    wrong: float | None
    differing: tuple[int, ...] = ()

    @property
    def least(self) -> float | None:
        """The smaller share; None where nothing was compared."""
        known = [share for share in (self.right, self.wrong) if share is not None]
        return min(known, default=None)

    @property
    def words(self) -> str:
        """Both shares, in words."""
        told = [
            f"{percent(share, 1)} of {n} {name}"
            for share, n, name in (
                (self.right, self.n_right, "right"),
                (self.wrong, self.n_wrong, "wrong"),
            )
            if share is not None
        ]
        return " and ".join(told) or "no answers"


def agreement(marks: Sequence[float | None], recorded: Sequence[float]) -> Agreement:
    """How far a scorer gives recorded marks again; what it cannot read counts as wrong."""
    same = [
        math.isclose(0.0 if mark is None else mark, score, abs_tol=1e-6)
        for mark, score in zip(marks, recorded, strict=True)
    ]
    right = [is_same for is_same, score in zip(same, recorded, strict=True) if is_right(score)]
    wrong = [is_same for is_same, score in zip(same, recorded, strict=True) if not is_right(score)]
    return Agreement(
        n_right=len(right),
        n_wrong=len(wrong),
        right=sum(right) / len(right) if right else None,
        wrong=sum(wrong) / len(wrong) if wrong else None,
        differing=tuple(place for place, is_same in enumerate(same) if not is_same),
    )


def is_right(score: float) -> bool:
    """Whether a recorded score counts as right here."""
    return score >= _RIGHT

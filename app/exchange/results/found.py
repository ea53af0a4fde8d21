"""The contents of a bank made from recorded results: items, prompt, and choices that were made."""

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
    """Something that the files left open, and the choice that was made.

    Attributes:
        what: Subject of the choice: `filter`, `metric`, `prompt`, ...
        taken: The alternative that was taken.
        others: The other alternatives.
        detail: One sentence about the choice.
        option: Command-line option that changes the choice; None if there is none.
    """

    what: str
    taken: str
    detail: str
    others: tuple[str, ...] = ()
    option: str | None = None


class Style(TypedDict, total=False):
    """The prompt style of a bank, as JSON."""

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
    """The items of a bank made from recorded results, and how they were asked.

    Attributes:
        asked: How the answers were obtained, as far as the files say.
        scorers: Scorers that may score as the files did, the likeliest first; empty if the
            answer is the likeliest option.
        answers: A sample of recorded answers: key of the item, text, score.
        left_out: Reason to keys of the items that cannot be asked.
    """

    items: list[ItemFields]
    style: Style
    asked: Method
    scorers: list[ScorerSpec]
    answers: list[tuple[str, str, float]]
    choices: list[Choice]
    left_out: dict[str, list[str]]

    def renamed(self, names: Mapping[str, str]) -> "Found":
        """Rename the keys of the items; of left-out items only the number is kept."""
        return replace(
            self,
            items=[{**item, "key": names[item["key"]]} for item in self.items],
            answers=[(names[key], text, score) for key, text, score in self.answers],
            left_out={reason: ["-"] * len(keys) for reason, keys in self.left_out.items()},
        )

    def to_dict(self) -> dict[str, Json]:
        """Write as JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: object) -> "Found":
        """Read what `to_dict` wrote."""
        from pydantic import TypeAdapter  # child processes that read files do not need it

        return TypeAdapter(cls).validate_python(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far a scorer reproduces recorded scores, for right and for wrong answers separately.

    One share for both would be misleading: if 95 of 100 answers are right, a scorer that calls
    every answer right reproduces 95 % of the scores.

    Attributes:
        n_right: Number of recorded answers with a score of 0.5 or more.
        n_wrong: Number of recorded answers with a lower score.
        right: Share of the right answers that are scored as recorded; None if there are none.
        wrong: Share of the wrong answers that are scored as recorded; None if there are none.
        differing: Positions of the answers that the scorer scores differently.
    """

    n_right: int
    n_wrong: int
    right: float | None
    wrong: float | None
    differing: tuple[int, ...] = ()

    @property
    def least(self) -> float | None:
        """The smaller share; None if no answers were compared."""
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
    """How far a scorer reproduces recorded scores; unparsed answers count as wrong."""
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

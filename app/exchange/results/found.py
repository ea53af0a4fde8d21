"""What recorded results give for a bank: its items, how they were asked, what had to be settled."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from app.items import ScorerSpec


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

    items: list[dict[str, Any]]
    style: dict[str, Any]
    asked: dict[str, Any]
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

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "Found":
        """What `to_dict` wrote."""
        return cls(
            **{
                **value,
                "scorers": [ScorerSpec(**spec) for spec in value["scorers"]],
                "answers": [(key, text, score) for key, text, score in value["answers"]],
                "choices": [
                    Choice(**{**c, "others": tuple(c["others"])}) for c in value["choices"]
                ],
            }
        )


def agreement(marks: Sequence[float | None], recorded: Sequence[float]) -> float:
    """Share of recorded marks that a scorer gives again; what it cannot read counts as wrong."""
    same = sum(
        math.isclose(0.0 if mark is None else mark, score, abs_tol=1e-6)
        for mark, score in zip(marks, recorded, strict=True)
    )
    return same / len(recorded) if recorded else 1.0

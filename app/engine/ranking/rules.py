"""What a ranking of several examinees is told: when it is content, and what it may cost."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from app.engine.bank import ItemBank
from app.engine.design.selection import CriterionName
from app.engine.models.continuous import CONTINUOUS
from app.errors import InvalidInputError


class Metric(StrEnum):
    """What members are ranked by."""

    SCORE = "score"
    THETA = "theta"


class RankingDecision(StrEnum):
    """What decides a pair: see `app.engine.ranking.ranking`."""

    PLANNED_LOOKS = "planned_looks"
    ONE_LOOK = "one_look"


class RankingPreset(StrEnum):
    """Rankings as they were published."""

    CONTINUOUS_PAPER = "continuous-paper"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRanking:
    """What a preset gives where nothing else is given.

    Attributes:
        rules: Fields of `RankingRules`.
        asking: Sections of each member's design.
    """

    rules: Mapping[str, Any]
    asking: Mapping[str, Any]


RANKING_PRESETS: Mapping[RankingPreset, PublishedRanking] = {
    # arXiv 2601.13885, Algorithm 1.
    RankingPreset.CONTINUOUS_PAPER: PublishedRanking(
        rules={
            "metric": Metric.THETA,
            "decision": RankingDecision.ONE_LOOK,
            "shared_items": False,
        },
        asking={
            "estimator": {"prior_sd": 5.0},
            "selection": {"criterion": CriterionName.MAXIMUM_INFORMATION.value},
        },
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingRules:
    """When a ranking is content.

    Attributes:
        metric: By the score that the tests are about, or by ability.
        decision: At a few looks planned beforehand, or as published: by eq. 10 after every answer,
            as if looked at once.
        confidence: With which a pair is decided, or found equal.
        holm: For all pairs together (Holm), not for each; see `app.engine.ranking.ranks`.
        min_items: Warm-up: scored answers of each member before anything is decided; of whom more
            can be asked, as many as a result takes.
        max_items: Most items asked of one member, whatever became of them.
        tie_width: Difference that does not matter, in logits or as a share of the score; 0 counts
            every difference.
        futility: A pair that all its items left would decide with no larger probability is too
            close, and gets no more. 0 asks on to the end: answers that will not decide a pair still
            make it likelier that it comes out in its right order.
        shared_items: Prefer items that the rival has answered: what is special about an item then
            cancels out of the difference.

    Raises:
        InvalidInputError: A number out of its range.
    """

    metric: Metric = Metric.THETA
    decision: RankingDecision = RankingDecision.PLANNED_LOOKS
    confidence: float = 0.95
    holm: bool = False
    min_items: int = 10
    max_items: int = 100
    tie_width: float = 0.0
    futility: float = 0.0
    shared_items: bool = True

    def __post_init__(self) -> None:
        if not 0.5 < self.confidence < 1:
            raise InvalidInputError(
                f"The confidence of a ranking lies between 0.5 and 1, got {self.confidence!r}."
            )
        if not 1 <= self.min_items <= self.max_items:
            raise InvalidInputError(
                "A ranking needs 1 <= min_items <= max_items, got "
                f"min_items {self.min_items} and max_items {self.max_items}."
            )
        if not (math.isfinite(self.tie_width) and self.tie_width >= 0):
            raise InvalidInputError(f"tie_width is at least 0, got {self.tie_width!r}.")
        if not 0 <= self.futility < 0.5:
            raise InvalidInputError(f"futility lies in [0, 0.5), got {self.futility!r}.")

    def usual_budget(self, n_members: int) -> int:
        """Items for all members where nobody says how many: half of what each may be asked.

        So those who are settled early leave some to those who are not.
        """
        return n_members * max(self.max_items // 2, self.min_items)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingBudget:
    """What all members together may cost; None is no limit.

    Money and tokens for the calls in flight and for the next one are set aside at the mean cost of
    the member's closed calls, so that a cap is kept and not merely noticed.
    """

    items: int | None = None
    usd: float | None = None
    tokens: int | None = None


NO_LIMIT = RankingBudget()


def usual_criterion(bank: ItemBank) -> CriterionName:
    """What chooses items where nobody says.

    Continuous scores tell nearly as much on any item (mu (1 - mu) / k hardly varies), so that
    choosing among them buys little information, and pays with an order on the chosen kind of item
    instead of the whole bank's. Right and wrong answers tell much on few items.
    """
    continuous = bank.model.name == CONTINUOUS.name
    return CriterionName.RANDOM if continuous else CriterionName.MAXIMUM_INFORMATION

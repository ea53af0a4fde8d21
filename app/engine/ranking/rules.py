"""Rules and budget of a ranking of several examinees."""

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
    """The measure by which members are ranked."""

    SCORE = "score"
    THETA = "theta"


class RankingDecision(StrEnum):
    """Rule that decides a pair; see the field `decision` of a ranking."""

    PLANNED_LOOKS = "planned_looks"
    ONE_LOOK = "one_look"


class RankingPreset(StrEnum):
    """Published ranking procedures."""

    CONTINUOUS_PAPER = "continuous-paper"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRanking:
    """Defaults of a preset: fields of `RankingRules`, and sections of each member's test design."""

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
    """When pairs are decided, and when a ranking ends.

    Attributes:
        metric: Measure of the ranking: the score that the tests are about, or ability.
        decision: Planned looks, or the published rule: eq. 10 after every answer, as if there were
            one look.
        confidence: Confidence with which a pair is decided or found equal.
        holm: Whether the confidence holds for all pairs together, as in `app.engine.ranking.ranks`.
        min_items: Warm-up: scored answers of each member before any decision. Members with more
            items get at least as many as a result needs.
        max_items: Most items asked of one member, whether they are scored or not.
        tie_width: Difference that does not matter, in logits or as a share of the score; 0 if every
            difference matters.
        futility: A pair is too close, and gets no more items, if all its remaining items would
            decide it with at most this probability. With 0 the ranking asks on to the end: answers
            that do not decide a pair still make its right order likelier.
        shared_items: Whether to prefer items that the rival has answered: peculiarities of an item
            then cancel in the difference.

    Raises:
        InvalidInputError: A number is out of its range.
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
        """Default budget of items for all members: half of the most that each may be asked.

        Members who are settled early leave items to the others.
        """
        return n_members * max(self.max_items // 2, self.min_items)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingBudget:
    """Limits of the cost of all members together; None is no limit.

    The cost of the calls in flight and of the next call is reserved, at the mean cost of the
    member's closed calls, so that a limit is kept and not exceeded first.
    """

    items: int | None = None
    usd: float | None = None
    tokens: int | None = None


NO_LIMIT = RankingBudget()


def usual_criterion(bank: ItemBank) -> CriterionName:
    """Default criterion of selection.

    Continuous scores are nearly equally informative on all items (mu (1 - mu) / k hardly varies).
    A choice among them adds little information, and it orders members on the chosen kind of item
    instead of the whole bank. Right and wrong answers are very informative on few items only.
    """
    continuous = bank.model.name == CONTINUOUS.name
    return CriterionName.RANDOM if continuous else CriterionName.MAXIMUM_INFORMATION

"""How a response set is calibrated, and whether it can be. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from app.calibration.continuous.checks import require_calibratable
from app.calibration.continuous.filters import filter_continuous
from app.calibration.filters import (
    Dropped,
    DropReason,
    Filtered,
    FilterSettings,
    apply_filters,
    filter_items,
    point_biserials,
)
from app.calibration.linking.drift import DriftSettings
from app.calibration.linking.linked import LinkMethod, anchors_of
from app.calibration.linking.partition import LEAST_PART
from app.calibration.logistic.beliefs import ItemBeliefs
from app.calibration.logistic.calibrate import CalibrationSettings
from app.calibration.logistic.curves import Family
from app.calibration.logistic.priors import Priors
from app.calibration.matrix import MISSING, ScoreMatrix
from app.calibration.multidimensional.fit import check_dimensions
from app.calibration.multidimensional.settings import MultidimensionalSettings
from app.engine.bank import FloatArray, ItemBank
from app.engine.responses import ResponseTable
from app.errors import InvalidInputError, UnknownNameError

CONTINUOUS_SCORES, NESTED, MIRT = "continuous", "nested", "mirt"
SEVERAL_ABILITIES = (NESTED, MIRT)
MODELS = (*(family.value for family in Family), CONTINUOUS_SCORES, *SEVERAL_ABILITIES)
"""Response models that can be calibrated: the rows of `fit.FITS`."""


#: A new item with fewer answers stays in pretest: its parameters would be guesses.
LEAST_ANSWERS = DriftSettings().least_answers

_BEYOND_CHANCE = 3.0  # standard errors: one item in a thousand by chance


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPlan:
    """The bank on whose scale a calibration lands, and how.

    Attributes:
        method: A `LinkMethod`.
        anchors: Items that carry the link; all that both have where empty.
        bank_version_id: The bank, where it is stored.
        check_drift: Items whose new answers leave their old curve carry nothing: they are
            calibrated anew and flagged.

    Raises:
        UnknownNameError: No such method.
        InvalidInputError: A check for drift without fixed anchors.
    """

    method: str = LinkMethod.STOCKING_LORD.value
    anchors: tuple[str, ...] = ()
    bank_version_id: str | None = None
    check_drift: bool = False

    def __post_init__(self) -> None:
        if self.method not in tuple(LinkMethod):
            raise UnknownNameError("link method", self.method, tuple(LinkMethod))
        if self.check_drift and self.method != LinkMethod.FIXED_ANCHOR:
            raise InvalidInputError(
                "Drift is looked for where the old items keep their parameters: link by "
                f"{LinkMethod.FIXED_ANCHOR.value}, not by {self.method}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationPlan:
    """What a calibration is told, as it is stored; see `CalibrationSettings`.

    Attributes:
        model: Response model: a family, `1pl` to `4pl`, `continuous`, or one of several abilities,
            `nested` or `mirt`.
        priors: Weak priors on slopes and asymptotes; without them maximum likelihood.
        negative_slopes: Items may fall with ability. None: if some of those that take part do, see
            `decided`.
        estimate_density: The latent density is estimated, too.
        max_cycles: Most cycles of the estimation.
        partition_size: Items of a part, where parts are calibrated each for itself and linked.
        seed: Deals the items to the parts.
        compare: Families that are calibrated as well, by maximum likelihood, and compared.
        report_card: Test examinees on banks calibrated without them, and learn from it how wide
            intervals must be; takes about as long again.
        families: Of examinees by name, for the report card, which holds families out; None takes
            what stands before the first / of a name.
        filters: Which items and examinees take no part.
        moments: Continuous scores by the published closed forms instead of likelihood.
        dimensions: Of several abilities; None takes what parallel analysis finds.
        link: Onto the scale of which bank; None: onto a scale of its own.
        prior_version_id: Version from whose beliefs about its items the estimation starts, however
            few the answers; it decides the model, and nothing is filtered.
        beliefs: These; loaded by whoever runs the plan, and not stored with it.
        target: That bank's items that may carry the link, loaded by whoever runs the plan; it is
            not stored with it.
        target_se: Standard errors of their difficulties, NaN where unknown; not stored, as that.
        aside: Keys of the bank's other items, which are quarantined and take no part; not stored.

    Raises:
        UnknownNameError: No such model, or no such family to compare.
        InvalidInputError: Settings that exclude each other.
    """

    model: str = Family.TWO_PL.value
    priors: bool = True
    negative_slopes: bool | None = None
    estimate_density: bool = False
    max_cycles: int = 2000
    partition_size: int | None = None
    seed: int = 0
    compare: tuple[str, ...] = ()
    report_card: bool = False
    families: Mapping[str, str] | None = None
    filters: FilterSettings = field(default_factory=FilterSettings)
    moments: bool = False
    dimensions: int | None = None
    link: LinkPlan | None = None
    prior_version_id: str | None = None
    beliefs: ItemBeliefs | None = field(default=None, compare=False, repr=False)
    target: ItemBank | None = field(default=None, compare=False, repr=False)
    target_se: FloatArray | None = field(default=None, compare=False, repr=False)
    aside: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise UnknownNameError("response model", self.model, MODELS)
        for name in self.compare:
            if name not in tuple(Family):
                raise UnknownNameError("family", name, tuple(Family))
        if self.partition_size is not None and self.partition_size < LEAST_PART:
            raise InvalidInputError(
                f"A partition needs at least {LEAST_PART} items, got {self.partition_size}."
            )
        if self.partition_size is not None and self.model not in tuple(Family):
            raise InvalidInputError(f"The {self.model} model cannot be calibrated in parts.")
        self._check_scores()
        if self.target is not None and self.target.abilities is not None:
            raise InvalidInputError(
                "The bank to link to measures several abilities, and a calibration of one cannot "
                "land on its scale."
            )
        self._check_beliefs()
        fixed = self.link is not None and self.link.method == LinkMethod.FIXED_ANCHOR
        if fixed and self.partition_size is not None:
            raise InvalidInputError(
                "Parts are linked to each other, fixed anchors hold a whole calibration: leave out "
                "partition_size, or link by another method."
            )
        if self.model in tuple(Family):
            self.settings()

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "CalibrationPlan":
        """The plan that `to_dict` wrote."""
        special = {
            "compare": tuple(value.get("compare", ())),
            "filters": FilterSettings(**value["filters"]),
            "link": _link_from(value.get("link")),
        }
        return cls(**{**value, **special})

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON, without what is not stored."""
        stored = asdict(replace(self, target=None, target_se=None, beliefs=None))
        for name in ("target", "target_se", "aside", "beliefs"):
            del stored[name]
        return stored

    @property
    def checks_drift(self) -> bool:
        """Whether the items of the link's bank are looked at for drift."""
        return self.link is not None and self.link.check_drift

    def family_of(self, examinee: str) -> str | None:
        """The family of an examinee; None where it is unknown."""
        if self.families is not None:
            return self.families.get(examinee)
        start, slash, _ = examinee.partition("/")
        return start if slash and start else None

    def settings(self) -> CalibrationSettings:
        """The same for the estimation."""
        return CalibrationSettings(
            family=Family(self.model),
            priors=None if self.priors else Priors.none(),
            negative_slopes=bool(self.negative_slopes),
            estimate_density=self.estimate_density,
            max_cycles=self.max_cycles,
        )

    def abilities(self) -> MultidimensionalSettings:
        """The same for the estimation of several abilities."""
        return MultidimensionalSettings(
            nested=self.model == NESTED,
            dimensions=self.dimensions,
            max_iterations=self.max_cycles,
        )

    def _check_beliefs(self) -> None:
        """Refuse what makes no sense where beliefs about items are revised."""
        if self.prior_version_id is None:
            return
        given = {
            "link": self.link is not None,
            "partition_size": self.partition_size is not None,
            "compare": bool(self.compare),
            "negative_slopes": bool(self.negative_slopes),
            "estimate_density": self.estimate_density,
            "priors": not self.priors,
        }
        for name, is_given in given.items():
            if is_given:
                raise InvalidInputError(
                    "A calibration that starts from a version's beliefs about its items has no "
                    f"setting {name}."
                )

    def _check_scores(self) -> None:
        """Refuse settings of right and wrong answers for continuous scores, and the reverse."""
        if self.dimensions is not None and self.model not in SEVERAL_ABILITIES:
            raise InvalidInputError(
                f"Dimensions belong to the models {' and '.join(SEVERAL_ABILITIES)}, not to "
                f"{self.model}."
            )
        if self.dimensions is not None and self.dimensions < 1:
            raise InvalidInputError(f"A model has at least 1 dimension, got {self.dimensions}.")
        if self.moments and self.model != CONTINUOUS_SCORES:
            raise InvalidInputError("Moments belong to the continuous model.")
        if self.model in tuple(Family):
            return
        given = {
            "negative_slopes": self.negative_slopes is not None,
            "estimate_density": self.estimate_density,
            "compare": bool(self.compare),
            "link": self.link is not None,
            "priors": not self.priors,
        }
        for name, is_given in given.items():
            if is_given:
                raise InvalidInputError(f"The {self.model} model has no setting {name}.")


def _link_from(value: Mapping[str, Any] | None) -> LinkPlan | None:
    return None if value is None else LinkPlan(**{**value, "anchors": tuple(value["anchors"])})


def decided(matrix: ScoreMatrix | ResponseTable, plan: CalibrationPlan) -> CalibrationPlan:
    """The plan with what it leaves to the answers decided.

    Slopes may be negative if an item correlates negatively with the rest, by more than chance: no
    filter has removed it. Elsewhere positive slopes are known better.
    """
    if plan.negative_slopes is not None or plan.model not in tuple(Family):
        return plan
    if not isinstance(matrix, ScoreMatrix):
        return plan
    least = plan.filters.least_point_biserial
    if plan.model == Family.RASCH or (least is not None and least >= 0):
        return replace(plan, negative_slopes=False)
    error = 1 / np.sqrt(np.maximum(matrix.answers_per_item(), 1))
    falling = point_biserials(matrix) < -_BEYOND_CHANCE * error
    return replace(plan, negative_slopes=bool(falling.any()))


def anchors_for(matrix: ScoreMatrix, plan: CalibrationPlan) -> ItemBank | None:
    """The items that carry a plan's link, with their parameters on its target scale.

    Raises:
        UnknownNameError: An anchor that is not in both.
        CalibrationError: Fewer than two.
    """
    if plan.link is None:
        return None
    return anchors_of(target_of(plan), matrix.items, plan.link.anchors)


def target_of(plan: CalibrationPlan) -> ItemBank:
    """The items on whose scale a linked plan lands."""
    if plan.target is None:
        raise RuntimeError("a link whose bank was not loaded")
    return plan.target


def prepared(table: ResponseTable, plan: CalibrationPlan) -> Filtered[Any]:
    """The answers that take part, and what does not.

    Returns:
        With the kind of matrix that the plan's model is calibrated from: a `ScoreMatrix` of right
        and wrong answers, or a `ResponseTable` of scores from 0, the worst, to 1, the best.

    Raises:
        InvalidInputError: No answers at all, or a score that the model cannot be of.
        CalibrationError: Answers from which nothing can be estimated.
    """
    if table.n_answers == 0:
        raise InvalidInputError("The response set has no scored answers: import some first.")
    if plan.model == CONTINUOUS_SCORES:
        kept = filter_continuous(table, plan.filters)
        require_calibratable(kept.matrix)
        return kept
    matrix = ScoreMatrix.of(table.scores, examinees=table.examinees, items=table.items)
    if plan.beliefs is not None:
        return _prepared_for_beliefs(matrix, plan.beliefs)
    if plan.checks_drift:
        filtered = _prepared_with_drift(matrix, plan)
    else:
        filtered = apply_filters(matrix, plan.filters)
        filtered.matrix.require_calibratable()
        if plan.model in SEVERAL_ABILITIES:
            check_dimensions(plan.abilities(), filtered.matrix.n_examinees, filtered.matrix.n_items)
    anchors_for(filtered.matrix, plan)
    return filtered


def _prepared_with_drift(matrix: ScoreMatrix, plan: CalibrationPlan) -> Filtered[ScoreMatrix]:
    """What takes part: old items as they are, new ones that can be calibrated.

    Filters that compare an item with the rest of a test are left out: in adaptive tests, where
    everybody is asked what suits them, they say nothing. So are the version's quarantined items.
    """
    target = target_of(plan)
    known = set(target.item_ids)
    is_new = np.array([key not in known and key not in plan.aside for key in matrix.items])
    is_aside = np.array([key in plan.aside for key in matrix.items])
    settings = replace(plan.filters, least_point_biserial=None, least_percentile=None)
    keep, dropped, constants = filter_items(matrix, settings)
    n_answers = matrix.answers_per_item()
    few = is_new & keep & (n_answers < LEAST_ANSWERS)
    news = {key for key, new in zip(matrix.items, is_new, strict=True) if new}
    items = [entry for entry in dropped if entry.name in news]
    items += [
        Dropped(matrix.items[j], DropReason.FEW_ANSWERS, float(n_answers[j]))
        for j in np.flatnonzero(few)
    ]
    items += [
        Dropped(matrix.items[j], DropReason.QUARANTINED, None) for j in np.flatnonzero(is_aside)
    ]
    taken = matrix.select(items=~is_aside & np.where(is_new, keep & ~few, n_answers > 0))
    held = np.array([key in known for key in taken.items], np.bool_)
    silent = taken.select(items=held).answers_per_examinee() == 0
    return Filtered(
        matrix=taken.select(examinees=~silent),
        items=tuple(items),
        examinees=tuple(
            Dropped(taken.examinees[i], DropReason.NO_ANSWERS, None) for i in np.flatnonzero(silent)
        ),
        constants={key: value for key, value in constants.items() if key in news},
    )


def _prepared_for_beliefs(matrix: ScoreMatrix, beliefs: ItemBeliefs) -> Filtered[ScoreMatrix]:
    """Answers to the items that are believed in, in their order, those without answers included."""
    place = {key: j for j, key in enumerate(matrix.items)}
    scores = np.full((matrix.n_examinees, len(beliefs.keys)), MISSING, dtype=np.uint8)
    for j, key in enumerate(beliefs.keys):
        if key in place:
            scores[:, j] = matrix.scores[:, place[key]]
    wide = ScoreMatrix.of(scores, examinees=matrix.examinees, items=beliefs.keys)
    silent = wide.answers_per_examinee() == 0
    known = set(beliefs.keys)
    kept = wide.select(examinees=~silent) if not silent.all() else wide
    kept.require_two_examinees()
    return Filtered(
        matrix=kept,
        items=tuple(
            Dropped(key, DropReason.NO_PRIOR, None) for key in matrix.items if key not in known
        ),
        examinees=tuple(
            Dropped(wide.examinees[i], DropReason.NO_ANSWERS, None) for i in np.flatnonzero(silent)
        ),
        constants={},
    )

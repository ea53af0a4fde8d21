"""Plans of calibrations, their defaults, and checks of their settings. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from app.calibration.filters import FilterSettings
from app.calibration.linking.linked import LEAST_PART, Link, LinkMethod, anchors_of
from app.calibration.logistic.beliefs import ItemBeliefs
from app.calibration.logistic.calibrate import CalibrationSettings
from app.calibration.logistic.curves import Family
from app.calibration.logistic.priors import Priors
from app.calibration.matrix import ScoreMatrix
from app.engine.bank import FloatArray, ItemBank
from app.errors import InvalidInputError, UnknownNameError

CONTINUOUS_SCORES, NESTED, MIRT = "continuous", "nested", "mirt"
SEVERAL_ABILITIES = (NESTED, MIRT)
MODELS = (*(family.value for family in Family), CONTINUOUS_SCORES, *SEVERAL_ABILITIES)
"""Response models that can be calibrated: the rows of `fit.CALIBRATORS`."""

_MAXIMISATION = ("negative_slopes", "estimate_density", "priors")
_OF_FAMILIES = ("partition_size", "compare", "link", "allow_few", *_MAXIMISATION)
_SETTINGS: Mapping[str, Collection[str]] = {
    **dict.fromkeys((family.value for family in Family), _OF_FAMILIES),
    CONTINUOUS_SCORES: ("moments",),
    **dict.fromkeys(SEVERAL_ABILITIES, ("dimensions",)),
}
"""Further settings of each response model."""
_REFUSED = {
    "partition_size": "The {model} model cannot be calibrated in parts.",
    "dimensions": f"Dimensions belong to the models {' and '.join(SEVERAL_ABILITIES)}, not to "
    "{model}.",
    "moments": "Moments belong to the continuous model.",
}
"""Refusals of settings that belong to another response model."""

_OF_SOME_MODELS = tuple({name: None for names in _SETTINGS.values() for name in names})
_NOT_FROM_BELIEFS = ("link", "partition_size", "compare", *_MAXIMISATION)
_NOT_STORED = frozenset({"target", "target_se", "aside", "beliefs"})

#: Least examinees of a 4PL: with fewer, the prior alone decides the upper asymptotes.
LEAST_OF_4PL = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPlan:
    """How a calibration is linked to the scale of an existing bank.

    Attributes:
        method: Linking method, a `LinkMethod`.
        anchors: Keys of the anchor items; if empty, all items that both banks have.
        bank_version_id: Id of the existing bank's version, if it is stored.
        check_drift: Check the items for drift. Items whose new answers depart from their old curve
            are then no anchors: they are calibrated again and flagged.

    Raises:
        UnknownNameError: An unknown method.
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
                "A check for drift needs old items that keep their parameters: link by "
                f"{LinkMethod.FIXED_ANCHOR.value}, not by {self.method}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationPlan:
    """Settings of a calibration, as they are stored; compare `CalibrationSettings`.

    Attributes:
        model: Response model: `1pl` to `4pl`, `continuous`, or, with several abilities, `nested` or
            `mirt`.
        priors: Use weak priors on slopes and asymptotes; otherwise maximum likelihood.
        negative_slopes: Slopes may be negative. None leaves it to the answers, by the calibrator's
            `decided`.
        allow_few: Allow a 4PL from fewer examinees than `LEAST_OF_4PL`.
        partition_size: Number of items of a part, for calibration in parts that are then linked.
        seed: Random seed, such as for the partition into parts and the folds of the report card.
        compare: Families to calibrate in addition, by maximum likelihood, and to compare.
        report_card: Test examinees on banks calibrated without them, and learn from these tests how
            wide intervals must be; this takes about as long as the calibration.
        families: Examinee name to its family, for the report card, which holds families out. None
            takes the text before the first / of a name.
        moments: Calibrate continuous scores by the published closed forms instead of likelihood.
        dimensions: Number of dimensions beside a general one; None takes a parallel analysis.
        link: Link to the scale of another bank; None defines a new scale.
        prior_version_id: Id of a version whose beliefs about its items are the start, however few
            the answers; the beliefs decide the model, and nothing is filtered.
        beliefs: Beliefs of that version; loaded when the plan is run, not stored.
        target: Items of the link's bank that may be anchors; loaded when the plan is run, not
            stored.
        target_se: Standard errors of the difficulties and slopes of `target`, shape (n_items, 2),
            NaN if unknown; not stored.
        aside: Keys of the bank's quarantined items, which take no part; not stored.

    Raises:
        UnknownNameError: An unknown model, or an unknown family to compare.
        InvalidInputError: Settings that exclude each other.
    """

    model: str = Family.TWO_PL.value
    priors: bool = True
    negative_slopes: bool | None = None
    estimate_density: bool = False
    allow_few: bool = False
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
        families = [family.value for family in Family]
        for name in self.compare:
            if name not in families:
                raise UnknownNameError("response model to compare", name, families)
        if self.partition_size is not None and self.partition_size < LEAST_PART:
            raise InvalidInputError(
                f"A partition needs at least {LEAST_PART} items, got {self.partition_size}."
            )
        self._check_settings()
        if self.target is not None and self.target.abilities is not None:
            raise InvalidInputError(
                "The bank to link to measures several abilities, and a calibration of one "
                "cannot be put on its scale."
            )
        self._check_beliefs()
        fixed = self.link is not None and self.link.method == LinkMethod.FIXED_ANCHOR
        if fixed and self.partition_size is not None:
            raise InvalidInputError(
                "A calibration in parts cannot use fixed anchors: leave out partition_size, or "
                "link by another method."
            )
        if self.model in tuple(Family):
            self.settings()

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "CalibrationPlan":
        """The plan that `to_dict` wrote."""
        link = value.get("link")
        special = {
            "compare": tuple(value.get("compare", ())),
            "filters": FilterSettings(**value["filters"]),
            "link": link and LinkPlan(**{**link, "anchors": tuple(link["anchors"])}),
        }
        return cls(**{**value, **special})

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON, without what is not stored."""
        stored = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name not in _NOT_STORED
        }
        link = self.link and asdict(self.link)
        return {**stored, "filters": asdict(self.filters), "link": link}

    @property
    def checks_drift(self) -> bool:
        """Whether the items of the link's bank are checked for drift."""
        return self.link is not None and self.link.check_drift

    def family_of(self, examinee: str) -> str | None:
        """The family of an examinee; None where it is unknown."""
        if self.families is not None:
            return self.families.get(examinee)
        start, slash, _ = examinee.partition("/")
        return start if slash and start else None

    def settings(self) -> CalibrationSettings:
        """Settings of the estimation of a logistic model."""
        return CalibrationSettings(
            family=Family(self.model),
            priors=None if self.priors else Priors.none(),
            negative_slopes=bool(self.negative_slopes),
            estimate_density=self.estimate_density,
            max_cycles=self.max_cycles,
        )

    def _check_beliefs(self) -> None:
        """Refuse settings that calibrations from beliefs do not have."""
        if self.prior_version_id is None:
            return
        for name in self._given(_NOT_FROM_BELIEFS):
            if name != "negative_slopes" or self.negative_slopes:
                raise InvalidInputError(
                    "A calibration that starts from a version's beliefs about its items has no "
                    f"setting {name}."
                )

    def _check_settings(self) -> None:
        """Refuse settings that the model does not have."""
        for name in self._given(_OF_SOME_MODELS):
            if name not in _SETTINGS[self.model]:
                sentence = _REFUSED.get(name, "The {model} model has no setting {name}.")
                raise InvalidInputError(sentence.format(model=self.model, name=name))
        if self.dimensions is not None and self.dimensions < 1:
            raise InvalidInputError(f"A model has at least 1 dimension, got {self.dimensions}.")

    def _given(self, names: Iterable[str]) -> list[str]:
        """Those of these settings that differ from their defaults."""
        defaults = {each.name: each.default for each in fields(self)}
        return [name for name in names if getattr(self, name) != defaults[name]]


def link_for(matrix: ScoreMatrix, plan: CalibrationPlan) -> Link | None:
    """A plan's link, with the anchor items on the target scale.

    Raises:
        UnknownNameError: An anchor that is missing from the answers or from the link's bank.
        CalibrationError: Fewer than two anchors.
    """
    if plan.link is None:
        return None
    anchors = anchors_of(target_of(plan), matrix.items, plan.link.anchors)
    return Link(anchors, LinkMethod(plan.link.method))


def target_of(plan: CalibrationPlan) -> ItemBank:
    """Items of the bank to whose scale a plan is linked."""
    if plan.target is None:
        raise RuntimeError("a link whose bank was not loaded")
    return plan.target

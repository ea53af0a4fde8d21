"""How a response set is calibrated, and whether it can be. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from app.calibration.filters import FilterSettings
from app.calibration.linking.drift import DriftSettings
from app.calibration.linking.linked import LinkMethod, anchors_of
from app.calibration.linking.partition import LEAST_PART
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

_OF_FAMILIES = (
    "partition_size",
    "negative_slopes",
    "estimate_density",
    "compare",
    "link",
    "priors",
    "allow_few",
)
_SETTINGS: Mapping[str, Collection[str]] = {
    **dict.fromkeys((family.value for family in Family), _OF_FAMILIES),
    CONTINUOUS_SCORES: ("moments",),
    **dict.fromkeys(SEVERAL_ABILITIES, ("dimensions",)),
}
"""What each of them is told beside what all are."""
_REFUSED = {
    "partition_size": "The {model} model cannot be calibrated in parts.",
    "dimensions": f"Dimensions belong to the models {' and '.join(SEVERAL_ABILITIES)}, not to "
    "{model}.",
    "moments": "Moments belong to the continuous model.",
}
"""What is said of settings that belong elsewhere."""

_NOT_STORED = frozenset({"target", "target_se", "aside", "beliefs"})

#: A new item with fewer answers stays in pretest: its parameters would be guesses.
LEAST_ANSWERS = DriftSettings().least_answers
#: Examinees of a 4PL at the least: from fewer, its upper asymptotes are those of the prior.
LEAST_OF_4PL = 500


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
        allow_few: A 4PL even from fewer examinees than `LEAST_OF_4PL`.
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
        for name in self.compare:
            if name not in tuple(Family):
                raise UnknownNameError("family", name, tuple(Family))
        if self.partition_size is not None and self.partition_size < LEAST_PART:
            raise InvalidInputError(
                f"A partition needs at least {LEAST_PART} items, got {self.partition_size}."
            )
        self._check_settings()
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
        stored = {
            each.name: getattr(self, each.name)
            for each in fields(self)
            if each.name not in _NOT_STORED
        }
        link = self.link and asdict(self.link)
        return {**stored, "filters": asdict(self.filters), "link": link}

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

    def _check_settings(self) -> None:
        """Refuse settings that the model does not have."""
        given = {
            "partition_size": self.partition_size is not None,
            "dimensions": self.dimensions is not None,
            "moments": self.moments,
            "negative_slopes": self.negative_slopes is not None,
            "estimate_density": self.estimate_density,
            "compare": bool(self.compare),
            "link": self.link is not None,
            "priors": not self.priors,
            "allow_few": self.allow_few,
        }
        for name, is_given in given.items():
            if is_given and name not in _SETTINGS[self.model]:
                sentence = _REFUSED.get(name, "The {model} model has no setting {name}.")
                raise InvalidInputError(sentence.format(model=self.model, name=name))
        if self.dimensions is not None and self.dimensions < 1:
            raise InvalidInputError(f"A model has at least 1 dimension, got {self.dimensions}.")


def _link_from(value: Mapping[str, Any] | None) -> LinkPlan | None:
    return None if value is None else LinkPlan(**{**value, "anchors": tuple(value["anchors"])})


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

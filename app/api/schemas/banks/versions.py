"""Bank versions as JSON."""

import math
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints
from typing_extensions import TypeAliasType

from app.adapters.prompting import Mode, Normalise
from app.api.schemas.common import (
    MADE_BY,
    MAX_LISTED,
    First,
    Input,
    Known,
    Output,
    Text,
    exactly_one,
)
from app.engine.bank import FloatArray, ItemBank
from app.engine.inference.join import Verdict
from app.errors import FieldProblem, InvalidInputError
from app.exchange.item_record import MAX_KEY_CHARS, MAX_PARAMETER
from app.items import JsonObject
from app.records.banks import LintSummary
from app.records.fields import shallow
from app.reports.joins import join_sentence
from app.services.banks.imports import BankImport
from app.services.banks.joins import JoinLook
from app.services.banks.versions import Validation
from app.validation import VERSION

MAX_THETAS: Final = 1001

#: Parts of a version's knowledge that are not shown whole, such as packed arrays over its items.
_SHOWN_OF_ARRAYS: Final = {
    "abilities": ("nested", "dimensions", "names"),
    "prediction": ("targets",),
    "provisional": ("n_examinees", "n_answers", "answers_per_item", "se_b", "widening"),
    "curves": ("abilities", "dispersion", "errors"),
    # A scorer is a bank's content: of a withheld one it is told to few.
    "asked": (
        *("mode", "normalise", "shots", "template_hash", "max_tokens", "temperature", "source"),
    ),
}


def _readable(knowledge: dict[str, Any]) -> dict[str, Any]:
    """Knowledge without arrays, which are megabytes that only sessions can read."""
    return {
        name: part
        if (shown := _SHOWN_OF_ARRAYS.get(name)) is None
        else {key: part[key] for key in shown if key in part}
        for name, part in knowledge.items()
    }


Knowledge = Annotated[JsonObject, BeforeValidator(_readable)]

LongText = Annotated[Text, StringConstraints(max_length=10_000)]
ShortText = Annotated[Text, StringConstraints(min_length=1, max_length=500)]
Key = Annotated[Text, StringConstraints(min_length=1, max_length=MAX_KEY_CHARS)]
Number = Annotated[float, Field(ge=-MAX_PARAMETER, le=MAX_PARAMETER)]
ItemStatus = TypeAliasType("ItemStatus", Literal["active", "quarantined", "pretest"])
_ResponseModel = Annotated[
    Literal["1pl", "2pl", "3pl", "4pl", "continuous"],
    Field(description="By default the smallest that holds the parameters."),
]
ResponseModel = TypeAliasType("ResponseModel", _ResponseModel)
AllowedCodes = Annotated[
    list[Annotated[Text, StringConstraints(max_length=100)]],
    Field(max_length=100, description="Lint codes that do not quarantine an item."),
]
KeptKeys = Annotated[
    list[Key], Field(max_length=10_000, description="Items that are never quarantined, by key.")
]
ScaleName = Annotated[
    ShortText,
    Field(
        description=(
            "Name of the theta scale. Give it only if these parameters are linked to that scale; "
            "by default the version names one of its own."
        )
    ),
]

_UnparsedPolicy = Annotated[
    Literal["missing", "wrong"],
    Field(
        description="What an answer that no extractor can read counts as. `missing` leaves it "
        "out of the estimate."
    ),
]
UnparsedPolicy = TypeAliasType("UnparsedPolicy", _UnparsedPolicy)


VersionName = Annotated[
    str,
    StringConstraints(pattern=VERSION),
    Field(
        description=(
            "Number, id or `latest` of a version whose parameters, scale and findings go over to "
            "the new one; items that the bank has got since go to pretest."
        )
    ),
]


class FitRead(Output):
    """How well a response model fits as a whole."""

    m2: float | None
    df: int | None
    p_value: float | None
    rmsea: float | None
    rmsea_lo: float | None = Field(description="Ends of the 90 % interval.")
    rmsea_hi: float | None
    m2_items: int | None = Field(description="Items that M2 is computed from.")
    m2_examinees: int | None
    m2_missing: str | None = Field(description="Why there is no M2.")
    srmsr: float | None
    srmsr_items: int
    variance_r2: float | None = Field(
        default=None,
        description="Of continuous scores: R2 of observed against predicted variance.",
    )
    verdict: str = Field(
        description="RMSEA in a word, SRMSR without it, `variance_r2` of continuous scores: good, "
        "acceptable, marginal, poor; `too few to tell` where the interval reaches further than "
        "into the next word, or fewer than 100 examinees look better than poor; unknown."
    )


class LinkRead(Output):
    """How a calibration came onto the scale of a version that was there before.

    `theta = slope * theta_own + intercept` leads from a scale on which the calibrated examinees
    have mean 0 and sd 1.
    """

    method: str
    bank_version_id: str
    scale: str
    slope: float
    intercept: float
    n_anchors: int


class DriftFigures(Output):
    """Whether the items of an older version are what they were, under new answers."""

    judged: int = Field(description="Items with enough new answers to tell.")
    too_few_answers: int
    drifted: int
    easier: int = Field(description="Of the drifted ones. Leaked items become easier.")
    harder: int
    mean: float = Field(description="Ability of those who answered, on the version's scale.")
    sd: float


class LikelihoodRead(Output):
    """How likely the answers are by the fitted parameters."""

    converged: bool
    log_likelihood: float
    n_parameters: int
    aic: float = Field(description="Akaike's criterion; lower is better.")
    bic: float = Field(description="Schwarz's criterion; lower is better.")


class VersionCalibration(LikelihoodRead):
    """Where a version's parameters come from; the items' standard errors are with it."""

    id: str
    response_set_id: str
    n_examinees: int
    scored_answers: int
    fit: FitRead
    drift: DriftFigures | None = Field(
        default=None, description="Of the items of the version it was linked to; null: not checked."
    )
    link: LinkRead | None = Field(
        default=None, description="To the version whose scale this one shares; null: a new scale."
    )


class VersionRead(Output):
    """An immutable bank version."""

    id: str
    object: Literal["bank_version"] = "bank_version"
    bank_id: str
    number: int
    response_model: str
    scale: str
    parameters_hash: str
    provisional: bool
    notes: str
    lint: LintSummary
    n_items: int
    n_calibrated: int = Field(description="Items with parameters; the others are in pretest.")
    has_content: bool = Field(description="Every calibrated item can be put to an endpoint.")
    calibration: VersionCalibration | None = Field(
        description="The calibration that it was published from; null where it was imported."
    )
    knowledge: Knowledge = Field(
        description=(
            "What was learned beyond the items' parameters, by part: `interval_correction` makes "
            "the intervals of every session on the version hold, `abilities` names those of a "
            "version that has several."
        )
    )
    created_by: str | None = Field(description=MADE_BY)
    created_at: datetime


class AskedModel(Input):
    """How the answers behind a version's parameters were obtained; null where nobody knows."""

    mode: Mode | None = Field(
        default=None,
        description="`loglikelihood`: options were compared by how likely they were found; "
        "`generate`: answers were written and read.",
    )
    normalise: Normalise | None = Field(
        default=None, description="Likelihoods were divided by the options' lengths, or not."
    )
    shots: Annotated[int, Field(ge=0, le=1000)] | None = Field(
        default=None, description="Examples before each item."
    )
    template_hash: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        default=None, description="As `prompt_template_hash` of a session's provenance."
    )
    scorer: Annotated[Text, StringConstraints(min_length=1, max_length=100)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        default=None, description="Longest answer."
    )
    temperature: Annotated[float, Field(ge=0, le=100)] | None = Field(
        default=None, description="At which answers were drawn."
    )
    source: ShortText | None = Field(default=None, description="Where they come from, in words.")


class VersionSettings(Input):
    """What a new version may be told."""

    response_model: ResponseModel | None = None
    scale: ScaleName | None = None
    allow: AllowedCodes = Field(default_factory=list)
    keep: KeptKeys = Field(default_factory=list)
    provisional: bool = Field(
        default=False, description="The parameters are a guess, not a calibration."
    )
    unparsed_policy: UnparsedPolicy | None = Field(
        default=None,
        description="How unparseable answers counted when the parameters were made: "
        "sessions on the version count them alike. Null: nobody knows, and the bank's holds.",
    )
    asked: AskedModel = Field(
        default_factory=AskedModel,
        description="How the answers behind the parameters were obtained: a session that asks "
        "otherwise says so.",
    )
    notes: LongText = ""


class ParameterRow(Input):
    """`P(theta) = c + (d - c) / (1 + exp(-a (theta - b)))`."""

    key: Key
    a: Number = 1.0
    b: Number
    c: Annotated[float, Field(ge=0, lt=1)] = 0.0
    d: Annotated[float, Field(gt=0, le=1)] = 1.0


class VersionCreate(VersionSettings):
    """Parameters of the bank's items, by key, or those of another version of the bank.

    Items without parameters go to pretest.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"parameters": [{"key": "q1", "a": 1.2, "b": -0.3, "c": 0.25}]},
                {"from_version": "latest", "notes": "With new items in pretest."},
            ]
        }
    )

    parameters: (
        Annotated[list[ParameterRow], Field(min_length=1, max_length=200_000, fail_fast=True)]
        | None
    ) = None
    from_version: VersionName | None = None

    _one_source = exactly_one("parameters", "from_version")

    def to_domain(self) -> BankImport:
        """The same for the service.

        Raises:
            ItemBankError: A key twice, or c not below d.
        """
        bank = None
        if (rows := self.parameters) is not None:
            bank = ItemBank.from_difficulties(
                a=[row.a for row in rows],
                b=[row.b for row in rows],
                c=[row.c for row in rows],
                d=[row.d for row in rows],
                item_ids=[row.key for row in rows],
            )
        return BankImport(parameters=bank, **self.model_dump(exclude={"parameters"}))


class FlagRead(Output):
    """A finding about the item that carries it."""

    code: str
    severity: str
    field: str
    value: float | str | None
    message: str


class FindingRead(FlagRead):
    """One fault of one item."""

    key: str = Field(validation_alias="item_id")


class VersionItemRead(Output):
    """Parameters and state of one item of a version; null parameters in pretest."""

    item_id: str
    key: str
    position: int
    status: ItemStatus
    a: float | None
    b: float | None = Field(description="Null where a is 0: there is no difficulty then.")
    intercept: float | None
    c: float | None
    d: float | None
    k: float | None = Field(description="Dispersion of continuous scores; null otherwise.")
    flags: list[FlagRead]
    pretest_sessions: int = Field(
        description="Sessions, on any version, that were given the item while it was in pretest."
    )


class ValidationCreate(Input):
    """Overrides to try."""

    allow: AllowedCodes = Field(default_factory=list)
    keep: KeptKeys = Field(default_factory=list)


class ValidationRead(Output):
    """What lint says under the overrides; the version stays as it is."""

    version_id: str
    findings: First[FindingRead] = Field(description=f"The first {MAX_LISTED}.")
    n_findings: int
    quarantined: First[str] = Field(description=f"Keys, the first {MAX_LISTED}.")
    n_quarantined: int

    @classmethod
    def of(cls, validation: Validation) -> Self:
        """The outgoing shape."""
        return cls.read(
            {
                "version_id": validation.version.id,
                "findings": validation.findings,
                "n_findings": len(validation.findings),
                "quarantined": sorted(validation.quarantined),
                "n_quarantined": len(validation.quarantined),
            }
        )


class InformationRead(Output):
    """Test information of the active items over theta, and the SE if all of them were asked."""

    version_id: str
    scale: str
    theta: Annotated[list[float], BeforeValidator(np.ndarray.tolist)]
    information: Annotated[list[float], BeforeValidator(np.ndarray.tolist)]
    se: Annotated[list[Known], BeforeValidator(np.ndarray.tolist)] = Field(
        description="Null where there is no information."
    )


class JoinRead(Output):
    """What answers from outside the calibration say of a version's join."""

    object: Literal["join"] = "join"
    version_id: str
    response_set_id: str | None = Field(description="Null: answers of live sessions.")
    n_sessions: int
    verdict: Verdict
    explanation: str
    z: float | None = Field(
        description="How much likelier the answers are than with the parameters dealt anew among "
        "the items that each examinee answered, in standard deviations; 0 of a wrong join."
    )
    expected_z: float | None = Field(description="The same of a right join.")
    p_value: float | None = Field(description="Of such a z or a greater one if it were wrong.")
    power: float = Field(description="Share of wrong joins that so many answers would find.")
    rank_correlation: float | None = Field(
        description="Spearman's, of the items' shares of right answers with their difficulties: "
        "below 0 where the join is right. In adaptive tests, whose items are as hard as the "
        "examinee is able, it is near 0 either way."
    )
    n_examinees: int
    n_answers: int
    n_items: int

    @classmethod
    def of(cls, look: JoinLook) -> Self:
        """The outgoing shape."""
        return cls.read(
            {
                **shallow(look),
                **shallow(look.check),
                "version_id": look.version.id,
                "explanation": join_sentence(look.check),
            }
        )


def theta_grid(text: str) -> FloatArray:
    """`start:stop:step` as an array that holds both ends.

    Raises:
        InvalidInputError: Not three numbers, no step upwards, or more than `MAX_THETAS` points.
    """
    try:
        start, stop, step = map(float, text.split(":"))
        n_steps = (stop - start) / step if step > 0 else math.nan
    except (ValueError, OverflowError):
        start = step = n_steps = math.nan
    if not 0 <= n_steps <= MAX_THETAS - 1:
        detail = f"expected start:stop:step of at most {MAX_THETAS} thetas, got {text!r}"
        raise InvalidInputError(
            f"theta: {detail}.", problems=[FieldProblem("/query/theta", detail)]
        )
    # Steps such as 0.1 are not exact: the last theta counts if it is a hair too far.
    n_thetas = math.floor(n_steps + 1e-9) + 1
    return np.array([start + step * i for i in range(n_thetas)], dtype=np.float64)

"""Bank versions as JSON."""

import math
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field, StringConstraints
from typing_extensions import TypeAliasType

from app.adapters.prompting import Mode, Normalise
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
from app.shapes import MADE_BY, MAX_LISTED, First, Input, Known, Output, Text, exactly_one, examples
from app.validation import CONTENT_HASH, VERSION

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
    Field(description="Response model. Default: the smallest that fits the parameters."),
]
ResponseModel = TypeAliasType("ResponseModel", _ResponseModel)
AllowedCodes = Annotated[
    list[Annotated[Text, StringConstraints(max_length=100)]],
    Field(max_length=100, description="Lint codes that do not quarantine an item."),
]
KeptKeys = Annotated[
    list[Key], Field(max_length=10_000, description="Keys of items that are never quarantined.")
]
ScaleName = Annotated[
    ShortText,
    Field(
        description=(
            "Name of the theta scale. Give it only if the parameters are linked to that scale; by "
            "default each version has a scale of its own."
        )
    ),
]

_UnparsedPolicy = Annotated[
    Literal["missing", "wrong"],
    Field(description="How unparseable answers count. `missing` excludes them from estimates."),
]
UnparsedPolicy = TypeAliasType("UnparsedPolicy", _UnparsedPolicy)


VersionName = Annotated[
    str,
    StringConstraints(pattern=VERSION),
    Field(
        description=(
            "Number, id or `latest` of a version whose parameters, scale and findings the new "
            "version takes over. Items added to the bank since then go to pretest."
        )
    ),
]


class FitRead(Output):
    """Overall fit of a response model."""

    m2: float | None
    df: int | None
    p_value: float | None
    rmsea: float | None
    rmsea_lo: float | None
    """Lower end of the 90 % interval of `rmsea`; `rmsea_hi` is the upper end."""
    rmsea_hi: float | None
    m2_items: int | None
    """Number of items that M2 is computed from."""
    m2_examinees: int | None
    m2_missing: str | None
    """Why there is no M2; null if there is one."""
    srmsr: float | None
    srmsr_items: int
    variance_r2: float | None = None
    """For continuous scores: R2 of observed against predicted variances."""
    verdict: str
    """Fit in a word: good, acceptable, marginal, poor, unknown, or `too few to tell`. It is the
    worse word of RMSEA and of SRMSR beyond chance, or of SRMSR alone if there is no M2; for
    continuous scores it is by `variance_r2`. `too few to tell`: the interval reaches beyond the
    neighbouring words, or fewer than 100 examinees look better than poor."""


class LinkRead(Output):
    """How a calibration was linked to the scale of an older version.

    `theta = slope * theta_own + intercept`. On the scale of `theta_own`, the examinees of the
    calibration have mean 0 and sd 1.
    """

    method: str
    bank_version_id: str
    scale: str
    slope: float
    intercept: float
    n_anchors: int


class DriftFigures(Output):
    """Drift of the items of an older version, by new answers."""

    judged: int
    """Number of items with enough new answers to judge."""
    too_few_answers: int
    drifted: int
    easier: int
    """Number of drifted items that became easier, as leaked ones do."""
    harder: int
    mean: float
    """Mean ability of the new examinees, on the old scale."""
    sd: float


class LikelihoodRead(Output):
    """Likelihood of the answers under the fitted parameters."""

    converged: bool
    log_likelihood: float
    n_parameters: int
    aic: float
    """Akaike information criterion; lower is better."""
    bic: float
    """Bayesian information criterion; lower is better."""


class VersionCalibration(LikelihoodRead):
    """The calibration behind a version's parameters, where the items' standard errors are."""

    id: str
    response_set_id: str
    n_examinees: int
    scored_answers: int
    fit: FitRead
    drift: DriftFigures | None = None
    """Drift of the items of the version that it was linked to; null if not checked."""
    link: LinkRead | None = None
    """Link to the version whose scale this one shares; null for a new scale."""


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
    n_calibrated: int
    """Number of items with parameters; others are in pretest."""
    has_content: bool
    """Whether an endpoint can be asked every calibrated item."""
    calibration: VersionCalibration | None
    """Calibration that the version is from; null if the parameters were imported."""
    knowledge: Knowledge
    """What was learned beyond the item parameters, by part. `interval_correction` corrects the
    intervals of all sessions on the version; `abilities` names the abilities, if there are
    several."""
    created_by: str | None = Field(description=MADE_BY)
    created_at: datetime


class AskedModel(Input):
    """How the answers behind a version's parameters were obtained; null if unknown."""

    mode: Mode | None = None
    """`loglikelihood`: the likelihoods of options were compared. `generate`: answers were written
    and read."""
    normalise: Normalise | None = None
    """Whether log-likelihoods were divided by the options' lengths."""
    shots: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Number of examples before each item."""
    template_hash: Annotated[str, StringConstraints(pattern=CONTENT_HASH)] | None = None
    """As `prompt_template_hash` in a session's provenance."""
    scorer: Annotated[Text, StringConstraints(min_length=1, max_length=100)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """Maximum number of tokens of an answer."""
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    """Sampling temperature."""
    source: ShortText | None = None
    """Origin of the answers, in words."""


class VersionSettings(Input):
    """Settings of a new version."""

    response_model: ResponseModel | None = None
    scale: ScaleName | None = None
    allow: AllowedCodes = Field(default_factory=list)
    keep: KeptKeys = Field(default_factory=list)
    provisional: bool = False
    """Whether the parameters are a guess, not a calibration."""
    unparsed_policy: UnparsedPolicy | None = None
    """How unparseable answers counted when the parameters were estimated; sessions on the version
    do the same. Null: unknown, so the bank's policy applies."""
    asked: AskedModel = Field(default_factory=AskedModel)
    """How the answers behind the parameters were obtained. A session that asks differently says
    so."""
    notes: LongText = ""


class ParameterRow(Input):
    """`P(theta) = c + (d - c) / (1 + exp(-a (theta - b)))`."""

    key: Key
    a: Number = 1.0
    b: Number
    c: Annotated[float, Field(ge=0, lt=1)] = 0.0
    d: Annotated[float, Field(gt=0, le=1)] = 1.0


class VersionCreate(VersionSettings):
    """Parameters of the bank's items, by key, or taken from another version of the bank.

    Items without parameters go to pretest.
    """

    model_config = examples(
        {"parameters": [{"key": "q1", "a": 1.2, "b": -0.3, "c": 0.25}]},
        {"from_version": "latest", "notes": "With new items in pretest."},
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
    """A lint finding about an item."""

    code: str
    severity: str
    field: str
    value: float | str | None
    message: str


class FindingRead(FlagRead):
    """A lint finding, with the key of its item."""

    key: str = Field(validation_alias="item_id")


class VersionItemRead(Output):
    """Parameters and state of one item of a version; in pretest the parameters are null."""

    item_id: str
    key: str
    position: int
    status: ItemStatus
    a: float | None
    b: float | None
    """Difficulty; null if a is 0."""
    intercept: float | None
    c: float | None
    d: float | None
    k: float | None
    """Dispersion of continuous scores; null for others."""
    flags: list[FlagRead]
    pretest_sessions: int
    """Number of sessions, on any version, that had the item as a pretest item."""


class ValidationCreate(Input):
    """Lint overrides to try."""

    allow: AllowedCodes = Field(default_factory=list)
    keep: KeptKeys = Field(default_factory=list)


class ValidationRead(Output):
    """Lint findings under the overrides; the version does not change."""

    version_id: str
    findings: First[FindingRead] = Field(description=f"The first {MAX_LISTED}.")
    n_findings: int
    quarantined: First[str] = Field(description=f"Keys, the first {MAX_LISTED}.")
    n_quarantined: int


class InformationRead(Output):
    """Test information of the active items over theta, and the SE if all of them were asked."""

    version_id: str
    scale: str
    theta: Annotated[list[float], BeforeValidator(np.ndarray.tolist)]
    information: Annotated[list[float], BeforeValidator(np.ndarray.tolist)]
    se: Annotated[list[Known], BeforeValidator(np.ndarray.tolist)]
    """Standard error if all active items are asked; null where they have no information."""


class JoinRead(Output):
    """Check of a version's parameters against answers from outside the calibration."""

    object: Literal["join"] = "join"
    version_id: str
    response_set_id: str | None
    """Response set of the answers; null for those of live sessions."""
    n_sessions: int
    verdict: Verdict
    explanation: str
    z: float | None
    """Excess of the log-likelihood over parameters permuted among the items that each examinee
    answered, in standard deviations; about 0 for a wrong join."""
    expected_z: float | None
    """Expected `z` of a right join."""
    p_value: float | None
    """Probability of such a `z` or a greater one under a wrong join."""
    power: float
    """Probability that so many answers would detect a wrong join."""
    rank_correlation: float | None
    """Spearman correlation of the items' shares of right answers with their difficulties: negative
    if the join is right. In adaptive tests, where item difficulty follows ability, it is near 0 in
    any case."""
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

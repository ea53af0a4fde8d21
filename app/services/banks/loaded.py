"""A bank version in memory: columns, not objects, so that 100,000 items cost megabytes."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from app.adapters.prompting import LOGLIKELIHOOD, PromptStyle
from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.knowledge import curves_of, targets_of, tasks_in, with_abilities
from app.engine.lint import QUARANTINED, Finding
from app.engine.prediction.correction import IntervalCorrection, correction_in
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.prediction.score_model import Target
from app.engine.prediction.targets import WHOLE_BANK, tags_in_ids
from app.engine.selection.information import expected_costs
from app.engine.simulation.learning import LEAST_EXAMINEES
from app.errors import FieldProblem, InvalidInputError
from app.items import ItemContent, ScorerSpec
from app.records.banks import (
    ACTIVE,
    Bank,
    BankVersion,
    Item,
    PretestItem,
    Provisional,
    VersionColumns,
)
from app.records.endpoints import Price
from app.records.fields import convert
from app.records.response_sets import UNPARSED_POLICY
from app.records.sessions import Asking
from app.reports.reference_strip import Reference
from app.services.banks.origins import ASKED, Asked, RecentAgents
from app.services.banks.spec import calls_out, item_scorer
from app.storage.repositories.banks import scorer_json

# Number of values in one block of the information curve: they take 8 MB.
_CURVE_BLOCK = 2**20
_KEPT_TESTS = 32
_KEPT_ESTIMATORS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BankItem:
    """An item that can be asked and scored; `scorer` is its own or its bank's default."""

    position: int
    id: str
    key: str
    content: ItemContent
    scorer: ScorerSpec

    @classmethod
    def of(cls, item: Item, position: int, default: ScorerSpec, style: PromptStyle) -> "BankItem":
        """A stored item in a test; `default` scores items that name no scorer themselves.

        Where likelihoods are compared, the answer is the option with the highest likelihood.
        """
        own = ScorerSpec("choice") if style.mode == LOGLIKELIHOOD else item.scorer
        return convert(cls, item, position=position, scorer=item_scorer(own, default, item.content))


@dataclass(frozen=True, slots=True)
class InformationCurve:
    """Information of a version's active items, and the SE after asking them all, over theta."""

    version_id: str
    scale: str
    theta: FloatArray
    information: FloatArray
    se: FloatArray


@dataclass(frozen=True, eq=False, kw_only=True)
class LoadedVersion:
    """A bank version as tests use it; calibrated items have the same positions as in the engine.

    Attributes:
        uncertainty: Uncertainty of guessed parameters; None where parameters are calibrated.
        bank: Item parameters; its item ids are the items' keys.
        active: Which items may be asked, shape (n_items,).
        groups: Group of each item. Items of one group belong together, as several questions on
            one text do.
        tags: Tags of each item. Where no item has tags, these are the tasks that a calibration of
            several abilities found in the item keys.
        expected_tokens_in: Expected prompt tokens of each item, NaN where unknown.
        expected_tokens_out: Expected answer tokens of each item, NaN where unknown.
        unparsed_policy: How an unparsed answer counts, `wrong` or `missing`: as when the
            parameters were made; where that is unknown, as the bank sets it.
        reachable: Smallest SE after all active items, and the theta where it is reached, by
            estimator; a cache of `drafts.reachable_se`.
        tests: Built tests by `test_name`; a cache of `VersionService`.
        acceptances: Fitted probabilities of designs that limit exposure, shape (n_items,), by
            `test_name`; a cache of `VersionService`.
        unparsed_when_calibrated: `unparsed_policy` of the calibration; None where unknown.
        asked_when_calibrated: How the answers behind the parameters were obtained, see `Asked`;
            empty where unknown.
        wanted_mode: The bank's mode of asking, where a session asks in another mode.
        n_without_content: Number of active items that have parameters but no text to ask.
        targets: Scores that the score model predicts: of the whole bank, and of each tag.
        curves: What recorded answers taught about scores of examinees like the recorded ones and
            unlike them; None where nothing was learned about one of the version's items.
        reference_abilities: Ascending quantiles of the thetas of the reference models; empty where
            unknown.
        recent_agents: The newest of the reference agents, where their dates are known.
        n_examinees: Number of reference models of a calibration made here; None where unknown, as
            for parameters that came as a file.
        pretest: Items without parameters; their positions follow those of the calibrated items.
        barred: Ids of pretest items that have faults and must not be asked.
        own_scorers: The different scorers that items name themselves and that call endpoints.
    """

    id: str
    number: int
    response_model: str
    parameters_hash: str
    provisional: bool
    uncertainty: Provisional | None
    bank_id: str
    bank_name: str
    bank_revision: int
    visibility: str
    default_scorer: ScorerSpec
    unparsed_policy: str
    pretest_items: int
    prompt_style: PromptStyle
    bank: ItemBank
    active: NDArray[np.bool_]
    item_ids: tuple[str, ...]
    groups: tuple[str | None, ...]
    tags: tuple[tuple[str, ...], ...]
    expected_tokens_in: FloatArray
    expected_tokens_out: FloatArray
    n_without_content: int
    correction: IntervalCorrection | None
    reference_abilities: tuple[float, ...]
    recent_agents: RecentAgents | None = None
    n_examinees: int | None = None
    targets: Mapping[str, Target] = field(default_factory=dict)
    curves: LearnedCurves | None = None
    pretest: tuple[PretestItem, ...] = ()
    barred: frozenset[str] = frozenset()
    own_scorers: tuple[ScorerSpec, ...] = ()
    unparsed_when_calibrated: str | None = None
    asked_when_calibrated: Mapping[str, Any] = field(default_factory=dict)
    wanted_mode: str | None = None
    reachable: LRUCache[str, tuple[float, float]] = field(
        default_factory=lambda: LRUCache(_KEPT_ESTIMATORS), repr=False
    )
    acceptances: LRUCache[str, FloatArray] = field(
        default_factory=lambda: LRUCache(_KEPT_TESTS), repr=False
    )
    tests: LRUCache[str, AdaptiveTest] = field(
        default_factory=lambda: LRUCache(_KEPT_TESTS), repr=False
    )

    @classmethod
    def of(
        cls,
        bank: Bank,
        version: BankVersion,
        columns: VersionColumns,
        pretest: Sequence[PretestItem] = (),
        findings: Sequence[Finding] = (),
        own_scorers: Sequence[ScorerSpec] = (),
    ) -> "LoadedVersion":
        """Build a version from its stored rows."""
        barring = QUARANTINED - set(version.lint["allow"])
        faulty = {finding.item_id for finding in findings if finding.code in barring}
        faulty -= set(version.lint["keep"])
        active = np.array([status == ACTIVE for status in columns.statuses], dtype=np.bool_)
        active.flags.writeable = False
        unparsed = version.knowledge.get(UNPARSED_POLICY)
        has_content = np.array(columns.has_content, dtype=np.bool_)
        tags = _tags(columns, version.knowledge)
        parameters = with_abilities(
            ItemBank.from_intercepts(
                a=columns.a,
                intercept=columns.intercept,
                c=columns.c,
                d=columns.d,
                k=None if None in columns.k else np.array(columns.k, dtype=np.float64),
                item_ids=columns.keys,
                scale=version.scale,
            ),
            version.knowledge,
        )
        return cls(
            id=version.id,
            number=version.number,
            response_model=version.response_model,
            parameters_hash=version.parameters_hash,
            provisional=version.provisional,
            uncertainty=Provisional.of(version.knowledge),
            bank=parameters,
            active=active,
            item_ids=columns.item_ids,
            groups=columns.groups,
            tags=tags,
            expected_tokens_in=_tokens(columns.expected_tokens_in),
            expected_tokens_out=_tokens(columns.expected_tokens_out),
            n_without_content=int((active & ~has_content).sum()),
            correction=correction_in(version.knowledge),
            targets=targets_of(parameters, version.knowledge, tags),
            curves=curves_of(parameters, version.knowledge),
            reference_abilities=tuple(
                version.knowledge.get("reference_abilities", {}).get("quantiles", ())
            ),
            recent_agents=RecentAgents.of(version.knowledge),
            n_examinees=(version.calibration or {}).get("n_examinees"),
            pretest=tuple(pretest),
            barred=frozenset(item.id for item in pretest if item.key in faulty),
            own_scorers=tuple(spec for spec in own_scorers if calls_out(spec)),
            unparsed_when_calibrated=unparsed,
            asked_when_calibrated=version.knowledge.get(ASKED, {}),
            **_settings(bank, unparsed),
        )

    def under(self, bank: Bank) -> "LoadedVersion":
        """The same version under its bank's present settings, which can change."""
        return replace(self, **_settings(bank, self.unparsed_when_calibrated))

    def asking(self) -> Asking:
        """How items are asked and scored; a session keeps this until its end."""
        return {
            "bank_revision": self.bank_revision,
            "prompt": self.prompt_style.to_dict(),
            "wanted_mode": self.wanted_mode,
            "default_scorer": scorer_json(self.default_scorer),
            "unparsed_policy": self.unparsed_policy,
        }

    def asked(self) -> Asked:
        """Summary of how items are asked, for comparison with the bank's calibration."""
        return replace(Asked.of(self.prompt_style, self.default_scorer), wanted=self.wanted_mode)

    def asking_as(self, stored: Asking) -> "LoadedVersion":
        """The same version, asked and scored as `stored`, which was noted with a session."""
        return replace(
            self,
            bank_revision=stored["bank_revision"],
            prompt_style=PromptStyle.from_dict(stored["prompt"]),
            wanted_mode=stored.get("wanted_mode"),
            default_scorer=ScorerSpec(**stored["default_scorer"]),
            unparsed_policy=stored["unparsed_policy"],
        )

    def put_as(self, style: PromptStyle) -> "LoadedVersion":
        """The same version asked in this style; the bank's mode is noted where it differs."""
        is_other = self.prompt_style.mode == LOGLIKELIHOOD != style.mode
        wanted = LOGLIKELIHOOD if is_other else self.wanted_mode
        return replace(self, prompt_style=style, wanted_mode=wanted)

    @property
    def theta_withheld(self) -> str | None:
        """Why sessions on this version report no theta; None where they report it."""
        n, is_known = self.n_examinees, self.correction or self.uncertainty
        if is_known or n is None or n >= LEAST_EXAMINEES:
            return None
        return (
            f"Theta is withheld: this bank has {n} reference models, and at least "
            f"{LEAST_EXAMINEES} are needed to learn how often theta's intervals hold. The score "
            "is not affected."
        )

    @property
    def n_reference(self) -> int | None:
        """Number of reference models; None where it is unknown."""
        if self.n_examinees is None and self.curves is not None:
            return self.curves.n_reference
        return self.n_examinees

    @property
    def reference(self) -> Reference:
        """The reference models, among whom results are placed."""
        population = None if self.curves is None else self.curves.population
        return Reference(
            population=() if population is None else population.quantiles,
            thetas=() if self.bank.abilities else self.reference_abilities,
            n=self.n_reference,
            source=self.asked_when_calibrated.get("source"),
        )

    @property
    def calling_scorers(self) -> tuple[ScorerSpec, ...]:
        """Scorers of this version that call endpoints."""
        if self.prompt_style.mode == LOGLIKELIHOOD:
            return ()
        default = self.default_scorer
        return (default, *self.own_scorers) if calls_out(default) else self.own_scorers

    def has_questions_of(self, other: "LoadedVersion") -> bool:
        """Whether scores on both versions cover the same questions, in any order."""
        return self.item_ids == other.item_ids or set(self.item_ids) == set(other.item_ids)

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the calibrated items, by position."""
        return self.bank.item_ids

    def key_at(self, position: int) -> str:
        """Key of the item at a position, be it calibrated or in pretest."""
        if self.is_pretest(position):
            return self.pretest[position - self.bank.n_items].key
        return self.bank.item_ids[position]

    def is_pretest(self, position: int) -> bool:
        """Whether the item at a position has no parameters, so that no estimate uses it."""
        return position >= self.bank.n_items

    @property
    def n_active(self) -> int:
        """Number of items that may be asked."""
        return int(self.active.sum())

    def position_of(self, key: str) -> int | None:
        """Position of the item with this key; `None` if the version has none such."""
        return self._positions.get(key)

    @cached_property
    def _positions(self) -> dict[str, int]:
        calibrated = {key: position for position, key in enumerate(self.keys)}
        return calibrated | {item.key: item.position for item in self.pretest}

    @cached_property
    def tag_counts(self) -> Counter[str]:
        """Number of calibrated items by tag; all items count for the tag of the whole bank."""
        counts = Counter(tag for tags in self.tags for tag in tags)
        counts[WHOLE_BANK] = self.bank.n_items
        return counts

    def require_tags(self, tags: Iterable[str], pointer: str) -> None:
        """Refuse tags that no item has; `pointer` is the place that names them."""
        for tag in tags:
            if not self.tag_counts[tag]:
                known = ", ".join(sorted(self.tag_counts)[:20])
                detail = f"no item has the tag {tag!r}; known tags: {known}"
                raise InvalidInputError(f"{detail}.", problems=[FieldProblem(pointer, detail)])

    def information_curve(self, theta: FloatArray) -> InformationCurve:
        """Information of the active items at each theta, shape (n_thetas,)."""
        items = np.flatnonzero(self.active)
        step = max(1, _CURVE_BLOCK // len(items))
        information = np.concatenate(
            [
                self.bank.information(theta[start : start + step], items).sum(axis=-1)
                for start in range(0, len(theta), step)
            ]
        )
        with np.errstate(divide="ignore"):
            se = 1.0 / np.sqrt(information)
        return InformationCurve(self.id, self.bank.scale, theta, information, se)

    def test_name(self, design: Design, price: Price | None = None) -> str:
        """Name that tells tests on this version apart by their design and price."""
        name = design.model_dump_json(exclude={"preset", "concurrency"})
        by_cost = price is not None and design.selection.cost_weight > 0
        return f"{name} {price}" if by_cost else name

    def adaptive_test(
        self, design: Design, price: Price | None = None, acceptance: FloatArray | None = None
    ) -> AdaptiveTest:
        """A new test of this design on this version; `VersionService` keeps the shared ones.

        Without a price, cost is counted in answer tokens. Where the design counts cost, every item
        that may be asked must have expected prompt and answer tokens. `acceptance` holds the fitted
        probabilities of a design that limits exposure.

        Raises:
            InvalidInputError: The design cannot be built on this version.
        """
        return design.build(
            self.bank,
            active=self.active,
            tags=self.tags,
            costs=self.costs(design, price),
            exposure=acceptance,
            correction=self.correction,
            targets=self.targets,
            curves=self.curves,
        )

    def token_costs(self) -> FloatArray:
        """Expected cost of each item in answer tokens, NaN where unknown, shape (n_items,)."""
        read, written = self.expected_tokens_in, self.expected_tokens_out
        return np.where(np.isnan(read + written), np.nan, expected_costs(*_paid(read, written)))

    def costs(self, design: Design, price: Price | None) -> FloatArray | None:
        """Cost of each item, shape (n_items,); None if the design ignores it or one is unknown."""
        if design.selection.cost_weight <= 0:
            return None
        counts = np.stack([self.expected_tokens_in, self.expected_tokens_out])
        if np.isnan(counts[:, self.active]).any():
            return None
        read, written = _paid(*counts)
        if price is None or not (price.input_per_1m or price.output_per_1m):
            return expected_costs(read, written)
        # Costs follow the bill of a call: a direction without a price adds nothing.
        return expected_costs(
            read,
            written,
            price_in=(price.input_per_1m or 0.0) / 1e6,
            price_out=(price.output_per_1m or 0.0) / 1e6,
        )


def _paid(read: FloatArray, written: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Tokens that count towards cost; the floor keeps every item from being free."""
    return np.maximum(np.nan_to_num(read), 1.0), np.maximum(np.nan_to_num(written), 1.0)


def _settings(bank: Bank, unparsed: str | None) -> dict[str, Any]:
    return {
        "bank_id": bank.id,
        "bank_name": bank.name,
        "bank_revision": bank.revision,
        "visibility": bank.visibility,
        "default_scorer": bank.default_scorer,
        "unparsed_policy": unparsed or bank.unparsed_policy,
        "pretest_items": bank.pretest_items,
        "prompt_style": PromptStyle.from_dict(bank.prompt),
    }


def _tags(columns: VersionColumns, knowledge: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    tasks = tasks_in(knowledge)
    if any(columns.tags) or not tasks:
        return columns.tags
    return tuple(tuple(sorted(found & tasks)) for found in tags_in_ids(columns.keys))


def _tokens(counts: tuple[int | None, ...]) -> FloatArray:
    column = np.array(counts, dtype=np.float64)  # None becomes NaN
    column.flags.writeable = False
    return column

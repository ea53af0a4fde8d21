"""New sessions: how they are requested, what is refused, and what `SessionService` stores."""

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version as installed_version

import numpy as np

from app import DISTRIBUTION
from app.acting import present
from app.adapters.prompting import GENERATE
from app.engine import AdaptiveTest
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import PRESETS, Design
from app.engine.design.parts import EstimatorDesign
from app.engine.estimation.estimators import EstimatorName
from app.engine.models.multidimensional import MultidimensionalModel
from app.errors import FieldProblem, InvalidInputError
from app.records.banks import provisional_words
from app.records.endpoints import Endpoint, Price
from app.records.fields import not_none
from app.records.sessions import (
    Administration,
    AskedJson,
    Examinee,
    NewSession,
    Origin,
    Plan,
    PromptChanges,
    Provenance,
)
from app.services.banks.loaded import LoadedVersion
from app.services.endpoints.specs import EndpointSpec, capabilities_of, origin_of
from app.services.sessions.plan import MAX_BY_HAND, SessionPlan
from app.services.sessions.run import SessionRun


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """Request for a new session."""

    mode: str
    endpoint_id: str | None = None
    endpoint: EndpointSpec | None = None
    examinee: Examinee | None = None
    bank_version_id: str | None = None
    bank: str | None = None
    plan: Plan = field(default_factory=Plan)
    unparsed_policy: str | None = None
    prompt: PromptChanges = field(default_factory=PromptChanges)
    seed: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDraft:
    """A session that is checked but not stored yet."""

    new: NewSession
    version: LoadedVersion
    plan: SessionPlan
    test: AdaptiveTest
    endpoint: Endpoint | None = None
    """The endpoint to store with it, if that is new."""

    def run(self, administrations: Sequence[Administration] = ()) -> SessionRun:
        """The run of the session, starting with these administered items."""
        return SessionRun(
            self.new, administrations, test=self.test, plan=self.plan, version=self.version
        )


def provenance_of(
    version: LoadedVersion,
    endpoint: Endpoint | None,
    *,
    seed: int,
    markers: Mapping[str, Origin],
    private_endpoints: bool,
    reachable_se: float | None = None,
) -> Provenance:
    """Provenance of a session: its bank version, endpoint, settings and software version.

    `markers` are the endpoints of the scorers, `private_endpoints` says what this server may call,
    `reachable_se` comes from `check_reachable`. The endpoint is None if the client answers without
    a name.
    """
    known = version.uncertainty
    made: Provenance = {
        "code_version": _code_version(),
        "bank": version.bank_name,
        "bank_version_id": version.id,
        "bank_version": version.number,
        "parameters_hash": version.parameters_hash,
        "scale": version.bank.scale,
        "response_model": version.response_model,
        "provisional": version.provisional,
        "n_items": version.n_active,
        "n_never_asked": int((~version.active).sum()),
        "n_uncalibrated": len(version.pretest),
        "asking": version.asking(),
        "asked": _asked(version, endpoint) if endpoint and endpoint.settings.is_called else {},
        "asked_when_calibrated": dict(version.asked_when_calibrated),
        "unparsed_when_calibrated": version.unparsed_when_calibrated,
        "prompt_template_hash": version.prompt_style.template_hash,
        "endpoint": None if endpoint is None else origin_of(endpoint),
        "scorer_endpoints": dict(markers),
        "private_endpoints": private_endpoints and not present().is_from_elsewhere,
        "seed": seed,
    }
    if known and known.matters:
        made["uncertainty"] = provisional_words(known)
    if reachable_se is not None:
        made["reachable_se"] = reachable_se
    return made


@cache
def _code_version() -> str:
    return installed_version(DISTRIBUTION)


def _asked(version: LoadedVersion, endpoint: Endpoint) -> AskedJson:
    asked = version.asked()
    if asked.mode == GENERATE:
        sampling = endpoint.settings.sampling
        asked = replace(asked, max_tokens=sampling.max_tokens, temperature=sampling.temperature)
    return not_none(asked)


#: Thetas at which the bank's best precision is searched, in logits.
_THETA_GRID = np.linspace(-4.0, 4.0, 33)


def require_content(version: LoadedVersion) -> None:
    """Refuse to ask an endpoint items that have parameters but no content."""
    missing = version.n_without_content
    if missing:
        raise InvalidInputError.at(
            "/bank",
            f"{missing} active items of bank {version.bank_name!r} have parameters but no content, "
            "so no endpoint can be asked. Import the items, or use a manual session.",
        )


def require_options(version: LoadedVersion, missing: Sequence[str]) -> None:
    """Refuse to compare options of items that have none; `missing` names them."""
    if missing:
        raise InvalidInputError(
            f"{len(missing)} active items of bank {version.bank_name!r} have no options to compare "
            f"by log-likelihood, the first is {missing[0]!r}: ask with mode 'generate'.",
            problems=[FieldProblem("/prompt/mode", "expected multiple choice")],
        )


def require_answers(kind: str) -> None:
    """Refuse to ask items of an endpoint that only scores answers."""
    if "completions" not in capabilities_of(kind):
        raise InvalidInputError(
            f"An endpoint of kind {kind!r} scores answers; it cannot be asked items.",
            problems=[FieldProblem("/endpoint", f"expected a language model, got {kind!r}")],
        )


def require_theta(version: LoadedVersion, field: str) -> None:
    """Refuse a test for theta if theta is withheld; `field` is the pointer that asks for it."""
    if version.theta_withheld is not None:
        raise InvalidInputError(
            f"{version.theta_withheld} Ask for the score: stopping.score_margin, or the metric "
            "score.",
            problems=[FieldProblem(field, "expected a test for the score")],
        )


def check_plan(plan: SessionPlan, price: Price | None) -> None:
    """Refuse a plan that cannot work, before anything is spent.

    Manual sessions have no `price`: their budgets count the usage that clients report.
    """
    if price is None and (plan.repeats > 1 or plan.cache):
        raise InvalidInputError(
            "A manual session asks nobody: it takes neither repeats nor cache.",
            problems=[FieldProblem("/repeats", f"expected 1, got {plan.repeats}")],
        )
    if price is None and plan.concurrency > MAX_BY_HAND:
        expected = f"expected at most {MAX_BY_HAND}, got {plan.concurrency}"
        raise InvalidInputError(
            f"Too many items in flight for a manual session: {expected}.",
            problems=[FieldProblem("/concurrency", expected)],
        )
    if price is not None and (plan.answer_within or plan.idle_timeout):
        raise InvalidInputError(
            "A live session asks its endpoint itself: answer_within and idle_timeout are for "
            "manual sessions.",
            problems=[
                FieldProblem("/answer_within", "expected none"),
                FieldProblem("/idle_timeout", "expected none"),
            ],
        )
    if plan.budget.usd is not None and price is not None and not price.known:
        raise InvalidInputError(
            "A budget in usd needs the endpoint's price; without it the cap would never be met.",
            problems=[FieldProblem("/budget/usd", "set price on the endpoint, or cap tokens")],
        )


async def reachable_se(design: Design, version: LoadedVersion) -> tuple[float, float]:
    """Least SE of theta after all active items, and the theta where it is reached."""
    key = json.dumps(design.estimator.to_dict())
    found = version.reachable.get(key)
    if found is None:
        found = await asyncio.to_thread(_least_error, version, design.estimator)
        version.reachable[key] = found
    return found


async def check_reachable(asked: Plan, plan: SessionPlan, version: LoadedVersion) -> float | None:
    """Refuse a requested SE target that no test on this bank can reach.

    The preset's own target is never refused, even if the request repeats it, because the preset
    also limits the number of items. If it is out of reach, `stops_when` says so.

    Returns:
        The least SE that a test can reach; None for a test without an SE target.
    """
    target = plan.stopping.se
    if target is None:
        return None
    reachable, theta = await reachable_se(plan, version)
    is_own = (asked.get("stopping") or {}).get("se") is not None
    is_own &= target != PRESETS[plan.preset]["stopping"].get("se")
    if is_own and target < reachable:
        raise InvalidInputError(
            f"SE {target:g} cannot be reached: all {version.n_active} active items of bank "
            f"{version.bank_name!r} together reach {reachable:.3f} at best (at theta = "
            f"{theta:g}). Ask for a larger SE, or stop by max_items.",
            problems=[FieldProblem("/stopping/se", f"expected at least {reachable:.3f}")],
        )
    return reachable


def _least_error(version: LoadedVersion, estimator: EstimatorDesign) -> tuple[float, float]:
    errors = _least_errors(version.bank.take(np.flatnonzero(version.active)), estimator)
    best = int(np.argmin(errors))
    return float(errors[best]), float(_THETA_GRID[best])


def _least_errors(bank: ItemBank, estimator: EstimatorDesign) -> FloatArray:
    """Standard error after all items, at each theta of the grid, shape (n_thetas,)."""
    if bank.abilities is not None:
        return _least_errors_of_several(bank.abilities)
    information = bank.information(_THETA_GRID).sum(axis=-1)
    if estimator.method in (EstimatorName.EAP, EstimatorName.MAP):
        information = information + estimator.prior_sd**-2
    with np.errstate(divide="ignore"):
        errors: FloatArray = 1 / np.sqrt(information)
    return errors


def _least_errors_of_several(abilities: MultidimensionalModel) -> FloatArray:
    """Standard errors of the main ability, if the same answers also estimate the others."""
    main, population = abilities.composite, abilities.population
    slopes, prior = abilities.items.slopes, np.linalg.inv(population.covariance)
    along = (_THETA_GRID - main @ population.mean)[:, None] * main
    expected = abilities.items.expected_score(population.mean + along)
    return np.array(
        [
            math.sqrt(main @ np.linalg.solve(prior + slopes.T @ (weight[:, None] * slopes), main))
            for weight in expected * (1 - expected)
        ]
    )

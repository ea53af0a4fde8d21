"""What is refused before a session is made, so that nothing is spent on what cannot work."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from app.engine import Method
from app.errors import FieldProblem, InvalidInputError
from app.services.loaded_version import LoadedVersion
from app.services.scorer_endpoints import offers
from app.services.session_run import SessionPlan
from app.storage.repositories.endpoints import Price

#: Where the bank's best precision is looked for, logits.
_THETA_GRID = np.linspace(-4.0, 4.0, 33)


def require_content(version: LoadedVersion) -> None:
    """Refuse to ask an endpoint items of which only the parameters are known."""
    missing = version.n_without_content
    if missing:
        raise InvalidInputError(
            f"{missing} active items of bank {version.bank_name!r} have parameters but no content, "
            "so no endpoint can be asked. Import the items, or use a manual session."
        )


def require_answers(kind: str) -> None:
    """Refuse to ask items of an endpoint that only marks them."""
    if "completions" not in offers(kind):
        raise InvalidInputError(
            f"An endpoint of kind {kind!r} marks answers; it cannot be asked items.",
            problems=[FieldProblem("/endpoint", f"expected a language model, got {kind!r}")],
        )


def check_plan(plan: SessionPlan, price: Price | None) -> None:
    """Refuse what could never work, before anything is spent. Manual sessions have no price."""
    design = plan.design
    if price is None and design.concurrency != 1:
        raise InvalidInputError(
            "A manual session asks one item at a time.",
            problems=[FieldProblem("/concurrency", f"expected 1, got {design.concurrency}")],
        )
    if design.budget.usd is not None and (price is None or not price.known):
        raise InvalidInputError(
            "A budget in usd needs the endpoint's price; without it the cap would never be met.",
            problems=[FieldProblem("/budget/usd", "set price on the endpoint, or cap tokens")],
        )
    if design.budget.tokens is not None and price is None:
        raise InvalidInputError(
            "A manual session takes no tokens; a cap on them would never be met.",
            problems=[FieldProblem("/budget/tokens", "cap items or seconds instead")],
        )


def check_reachable(asked: Mapping[str, Any], plan: SessionPlan, version: LoadedVersion) -> None:
    """Refuse an SE that was asked for in so many words and that no test on this bank can reach.

    A preset's target is not checked: there the limit on items is the other half of the design.
    """
    target = plan.design.stopping.se
    if target is None or (asked.get("stopping") or {}).get("se") is None:
        return
    active = np.flatnonzero(version.active)
    information = version.bank.information(_THETA_GRID, active).sum(axis=-1)
    estimator = plan.design.estimator
    has_prior = estimator.method in (Method.EAP, Method.MAP)
    prior = estimator.prior_sd**-2 if has_prior else 0.0
    best = int(np.argmax(information))
    reachable = (
        1 / math.sqrt(information[best] + prior) if information[best] + prior > 0 else math.inf
    )
    if target < reachable:
        raise InvalidInputError(
            f"SE {target:g} is out of reach: all {active.size} active items of bank "
            f"{version.bank_name!r} together reach {reachable:.3f} at best (at theta = "
            f"{_THETA_GRID[best]:g}). Ask for a larger SE, or stop by max_items.",
            problems=[FieldProblem("/stopping/se", f"expected at least {reachable:.3f}")],
        )

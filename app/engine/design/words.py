"""What ends a test, in words for whoever starts it."""

from app.engine.design.design import Design
from app.engine.design.parts import StoppingDesign
from app.engine.prediction.correction import KNOTS


def stops_when(
    design: Design, reachable_se: float | None = None, n_items: int | None = None
) -> str:
    """What will end a test by this design, in a sentence or two.

    Args:
        design: Of the test.
        reachable_se: Least SE that all items of the bank reach together; None where unknown.
        n_items: That may be asked; None where unknown.
    """
    stopping, budget = design.stopping, design.budget
    goals = _goals(stopping)
    most = stopping.max_items
    if n_items is not None and (most is None or n_items < most):
        most = n_items
    limits = [
        f"{cap:g} {unit}"
        for cap, unit in (
            (
                most,
                "items asked" if most == stopping.max_items else "items asked (all of the bank)",
            ),
            (budget.usd, "USD"),
            (budget.tokens, "tokens"),
            (budget.seconds, "seconds"),
        )
        if cap is not None
    ]
    latest = " or ".join(limits) or "every item of the bank asked"
    few = "" if most is None or most >= KNOTS[0] else f" A result takes {KNOTS[0]} scored answers."
    if not goals:
        return f"Stops at {latest}.{few}"
    least = stopping.min_items or 0
    if n_items is not None and least > n_items:
        return (
            f"Stops at {latest}: no goal ends a test of fewer than {least} scored answers "
            f"(min_items).{few}"
        )
    waits = f", with at least {least} scored answers (min_items)" if least > 1 else ""
    said = f"Stops when {' or '.join(goals)}{waits}; at the latest at {latest}.{few}"
    target = stopping.se
    if target is not None and reachable_se is not None and target < reachable_se:
        said += (
            f" SE {target:g} cannot be reached: all items of the bank together reach "
            f"{reachable_se:.3g} at best."
        )
    return said


def _goals(stopping: StoppingDesign) -> list[str]:
    goals = []
    if stopping.se is not None:
        goals.append(f"SE <= {stopping.se:g}")
    if (cut := stopping.cut_score) is not None:
        goals.append(f"theta is above or below {cut.theta:g} with confidence {cut.confidence:g}")
    if stopping.score_margin is not None:
        goals.append(f"the score is known to +-{100 * stopping.score_margin:g} points")
    goals += [_nested(rule) for rule in stopping.any_of]
    if stopping.all_of:
        goals.append(f"({' and '.join(_nested(rule) for rule in stopping.all_of)})")
    if stopping.theta_change is not None:
        goals.append(f"answers move theta by less than {stopping.theta_change:g}")
    if stopping.min_information is not None:
        goals.append(f"no item left has information {stopping.min_information:g}")
    return goals


def _nested(stopping: StoppingDesign) -> str:
    """One of several rules that are combined, with limits and a minimum of its own."""
    parts = _goals(stopping)
    if parts and stopping.min_items:
        parts = [f"{' or '.join(parts)} with at least {stopping.min_items} scored answers"]
    if stopping.max_items is not None:
        parts.append(f"{stopping.max_items} items are asked")
    text = " or ".join(parts)
    return f"({text})" if len(parts) > 1 else text

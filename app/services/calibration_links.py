"""Banks that a calibration is linked to: read for the fit, and for the version that is made."""

from dataclasses import replace

import numpy as np

from app.engine.bank import ItemBank
from app.services.banks import BankService
from app.services.calibration_plan import CalibrationPlan


async def with_target(plan: CalibrationPlan, banks: BankService) -> CalibrationPlan:
    """The plan with the items on whose scale it lands: the active ones of the link's version.

    Raises:
        NotFoundError: No such version.
    """
    if plan.link is None or plan.link.bank_version_id is None:
        return plan
    version = await banks.load_version(plan.link.bank_version_id)
    return replace(plan, target=version.bank.take(np.flatnonzero(version.active)))


def carried_over(fitted: ItemBank, target: ItemBank, dropped: frozenset[str]) -> ItemBank:
    """The fitted items, and after them those that only the target has, parameters as they are.

    Args:
        fitted: On the target's scale.
        target: The version that the fit was linked to.
        dropped: Items that the fit had answers to but left out; they stay out.
    """
    known = dropped.union(fitted.item_ids)
    rest = [j for j, item_id in enumerate(target.item_ids) if item_id not in known]
    if not rest:
        return fitted
    others = target.take(np.array(rest))
    return ItemBank.from_intercepts(
        **{
            name: np.concatenate([getattr(fitted, name), getattr(others, name)])
            for name in ("a", "intercept", "c", "d")
        },
        item_ids=fitted.item_ids + others.item_ids,
        scale=target.scale,
    )

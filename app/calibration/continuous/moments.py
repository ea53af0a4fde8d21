"""The published calibration of continuous scores: closed forms from mean scores.

An item's lowest and highest score become its c and d. Its scores are rescaled from [c, d] to
[EPSILON, 1 - EPSILON]; the difficulty is minus the logit of their mean, and the slope is 1. An
ability is the logit of an examinee's mean rescaled score. All items share one dispersion. This
method is here for comparison: `calibrate_continuous` predicts new examinees better, and does not
depend on the two extreme scores of each item.

Source: Balkir et al. (2026), arXiv 2601.13885, eq. 8 and 9.
"""

import numpy as np
from scipy.special import expit, logit

from app.calibration.continuous.scores import (
    Answers,
    ContinuousCalibration,
    conformance,
    log_likelihood,
    require_calibratable,
)
from app.calibration.logistic.expectation import LatentDensity
from app.engine.bank import ItemBank
from app.engine.responses import ResponseTable

EPSILON = 0.01
_NODES, _BOUND = 401, 8.0
_LEAST_SD = 0.05


def calibrate_by_moments(table: ResponseTable) -> ContinuousCalibration:
    """Calibrate difficulties from mean scores, and one dispersion for all items.

    Raises:
        InvalidInputError: A score outside [0, 1].
        CalibrationError: The table fails `require_calibratable`.
    """
    require_calibratable(table)
    scores, n_items = table.scores, len(table.items)
    c, d = np.nanmin(scores, axis=0), np.nanmax(scores, axis=0)
    share = EPSILON + (1 - 2 * EPSILON) * (scores - c) / (d - c)
    mean = np.nanmean(share, axis=0)
    b = -logit(mean)
    answers = Answers.of(scores)

    thetas = logit(np.nanmean(share, axis=1))
    expected = expit(thetas[:, None] - b)
    squares = np.nansum((share - expected) ** 2)
    k = float(squares / (expected * (1 - expected) * answers.seen).sum())
    bank = ItemBank.from_difficulties(
        a=np.ones(n_items), b=b, c=c, d=d, k=np.full(n_items, k), item_ids=table.items
    )
    density = LatentDensity.normal(
        mean=float(thetas.mean()),
        sd=max(float(thetas.std()), _LEAST_SD),
        n_nodes=_NODES,
        bound=_BOUND,
    )
    n = answers.seen.sum(axis=0)
    se_b = np.sqrt(np.nanvar(share, axis=0) / n) / (mean * (1 - mean))
    unknown = np.full(n_items, np.nan)
    return ContinuousCalibration(
        bank=bank,
        se_a=unknown,
        se_intercept=se_b,
        se_b=se_b,
        se_k=np.full(n_items, k * np.sqrt(2 / n.sum())),
        log_likelihood=log_likelihood(answers, bank, density),
        n_parameters=3.0 * n_items + 1,
        k_common=k,
        conformance=conformance(bank, scores, thetas),
        n_examinees=len(scores),
        n_answers=int(n.sum()),
        converged=True,
        cycles=1,
    )

"""Calibrates items onto the scale of an existing bank, and a large bank in parts that are linked.

Each part is a job of its own that returns only a `Calibration`. Where the whole bank fits into
memory, a calibration of all items at once is better (see `calibrate`).

Source: the common-person procedure of ATLAS, Li et al. (2026), with latent moments instead of point
scores and a corrected intercept formula; see `scale_linking`.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from app.calibration.logistic.calibrate import (
    Calibration,
    CalibrationSettings,
    calibrate,
    estimated,
)
from app.calibration.logistic.curves import (
    GUESSING,
    INTERCEPT,
    N_COORDINATES,
    OFF,
    SLOPE,
    Curves,
    Family,
)
from app.calibration.logistic.em import Progress
from app.calibration.logistic.expectation import expect, population
from app.calibration.logistic.maximization import Problem
from app.calibration.logistic.scale_linking import (
    Linking,
    link_mean_sigma,
    link_stocking_lord,
)
from app.calibration.logistic.uncertainty import ParameterErrors
from app.calibration.matrix import ScoreMatrix
from app.engine.bank import ItemBank
from app.engine.models.base import IntArray, ItemParameters
from app.errors import CalibrationError, InvalidInputError, UnknownNameError

_FAR = 4.0  # logits; a larger |b| is mostly error, and would dominate the sd that mean-sigma uses
LEAST_PART = 100
"""Least number of items in a part; fewer do not measure the common examinees well enough."""


class LinkMethod(StrEnum):
    """How a calibration comes onto the scale of a bank, through items that both have."""

    STOCKING_LORD = "stocking_lord"
    MEAN_SIGMA = "mean_sigma"
    FIXED_ANCHOR = "fixed_anchor"


class Link(NamedTuple):
    """What holds a calibration to the scale of a bank: items that both have, and how."""

    anchors: ItemBank
    method: LinkMethod


@dataclass(frozen=True, eq=False, slots=True)
class Linked:
    """A calibration, and how it came onto the scale of another bank, if it did.

    Attributes:
        linking: Linking from a scale on which the examinees have mean 0 and sd 1; its slope is
            their sd on the bank's scale, and its intercept their mean. None without another bank.
        anchors: Ids of the items that the linking is based on.
    """

    calibration: Calibration
    linking: Linking | None = None
    anchors: tuple[str, ...] = ()


def anchors_of(bank: ItemBank, items: Collection[str], only: Collection[str] = ()) -> ItemBank:
    """The bank's items that can be anchors: common items whose curve rises.

    `only` are the ids of the allowed anchors; none allows all.

    Raises:
        UnknownNameError: An id in `only` is no common item.
        CalibrationError: Fewer than two anchors are left.
    """
    common = set(items).intersection(bank.item_ids)
    for item_id in only:
        if item_id not in common:
            raise UnknownNameError("anchor", item_id, sorted(common)[:5])
    chosen = common.intersection(only) if only else common
    kept = [j for j, item_id in enumerate(bank.item_ids) if item_id in chosen and bank.a[j] > 0]
    if len(kept) < 2:
        raise CalibrationError(
            f"A link to scale {bank.scale!r} needs at least 2 common items with a positive "
            f"slope, got {len(kept)}."
        )
    return bank.take(np.array(kept))


def calibrate_linked(
    matrix: ScoreMatrix,
    link: Link | None,
    settings: CalibrationSettings,
    *,
    watch: Callable[[Progress], None] | None = None,
) -> Linked:
    """Calibrate all items, and link the result to the scale of the anchors, if there is a link.

    Raises:
        CalibrationError: A matrix without information, or too few anchors.
        InvalidInputError: The family does not allow the anchors' parameters.
    """
    if link is None:
        return Linked(calibrate(matrix, settings, watch=watch))
    anchors = link.anchors
    if link.method is LinkMethod.FIXED_ANCHOR:
        calibration = calibrate_onto(matrix, anchors, settings, watch=watch)
        linking = Linking(
            source=settings.scale,
            target=anchors.scale,
            slope=calibration.density.sd,
            intercept=calibration.density.mean,
        )
        return Linked(calibration, linking, anchors.item_ids)
    if settings.scale == anchors.scale:  # until it is linked it is on another
        settings = replace(settings, scale=f"{settings.scale}/unlinked")
    return linked(calibrate(matrix, settings, watch=watch), link)


def linked(calibration: Calibration, link: Link | None) -> Linked:
    """Move a calibration onto the scale of anchors, by the anchors' parameters on both scales.

    Without a link it stays as it is.

    Raises:
        CalibrationError: Fewer than two anchors have a rising curve on both scales.
        InvalidInputError: The method is fixed anchors, which works only during a calibration.
    """
    if link is None:
        return Linked(calibration)
    anchors, method = link
    if method is LinkMethod.FIXED_ANCHOR:
        raise InvalidInputError(
            "Fixed anchors work only during a calibration, not after it: use another method."
        )
    here = {item_id: j for j, item_id in enumerate(calibration.item_ids)}
    pairs = [
        (here[item_id], there)
        for there, item_id in enumerate(anchors.item_ids)
        if item_id in here and calibration.items.a[here[item_id]] > 0
    ]
    if method is LinkMethod.MEAN_SIGMA:
        b, anchor_b = calibration.b, anchors.b
        pairs = [(j, there) for j, there in pairs if max(abs(b[j]), abs(anchor_b[there])) < _FAR]
    if len(pairs) < 2:
        raise CalibrationError(
            f"A link to scale {anchors.scale!r} needs at least 2 anchors with a positive slope, "
            f"got {len(pairs)}."
        )
    own, common = (np.array(side) for side in zip(*pairs, strict=True))
    source, target = calibration.scale, anchors.scale
    if method is LinkMethod.MEAN_SIGMA:
        here_b, there_b = (
            (float(b.mean()), float(b.std())) for b in (calibration.b[own], anchors.b[common])
        )
        linking = link_mean_sigma(here_b, there_b, source=source, target=target)
    else:
        linking = link_stocking_lord(
            calibration.items.take(own),
            anchors.parameters.take(common),
            source=source,
            target=target,
        )
    used = tuple(anchors.item_ids[j] for j in common)
    return Linked(calibration.moved(linking), linking, used)


def calibrate_onto(
    matrix: ScoreMatrix,
    anchors: ItemBank,
    settings: CalibrationSettings,
    *,
    watch: Callable[[Progress], None] | None = None,
) -> Calibration:
    """Calibrate new items onto the scale of an existing bank (fixed-anchor linking).

    Items of the matrix that are in the bank keep their parameters and fix the scale. The other
    items are estimated, together with the examinees' mean and sd.

    Args:
        matrix: Answers to anchor items and new items.
        anchors: Bank of the anchors, as `anchors_of` chooses them.
        settings: How items are calibrated; the bank's scale replaces its `scale`.
        watch: Called after each cycle.

    Raises:
        CalibrationError: A matrix without information.
        InvalidInputError: Anchors with unequal slopes in the 1PL.

    Source: Kim (2006), Journal of Educational Measurement 43, multiple cycles with updated prior.
    """
    matrix.require_calibratable()
    index = {item_id: i for i, item_id in enumerate(anchors.item_ids)}
    fixed = tuple(j for j, item_id in enumerate(matrix.items) if item_id in index)
    positions = np.array([index[matrix.items[j]] for j in fixed])
    anchor_items = anchors.parameters.take(positions)
    if settings.family is Family.RASCH and np.ptp(anchor_items.a) > 1e-6:
        raise InvalidInputError("1PL anchors need one common slope; use the 2PL.")
    problem = settings.problem(fixed=fixed)
    start = _start_with_anchors(matrix, problem, anchor_items)
    settings = replace(settings, scale=anchors.scale)
    return estimated(matrix, settings, problem, start=start, watch=watch)


def _start_with_anchors(matrix: ScoreMatrix, problem: Problem, anchors: ItemParameters) -> Curves:
    """Start values: parameters of the anchors, typical ones by the share right for new items."""
    means = np.clip(matrix.item_means(), 0.02, 0.98)
    x = np.empty((matrix.n_items, N_COORDINATES))
    slope = float(np.median(np.abs(anchors.a)))
    x[:, SLOPE] = np.log(slope) if problem.log_slope else slope
    x[:, INTERCEPT] = np.log(means / (1 - means))
    x[:, GUESSING:] = (-OFF, OFF)
    for column in problem.family.free:
        if column >= GUESSING:
            x[:, column] = -2.0 if column == GUESSING else 3.0
    x[list(problem.fixed)] = Curves.from_natural(anchors, log_slope=problem.log_slope).x
    return Curves(x, problem.log_slope)


def parts_of(matrix: ScoreMatrix, size: int, rng: np.random.Generator) -> tuple[IntArray, ...]:
    """Item positions of parts with at least `size` items each and similar difficulties.

    Items are assigned in order of difficulty, at random among neighbours, so that each part
    measures over the whole range of ability.
    """
    n_parts = max(matrix.n_items // size, 1)
    order = np.argsort(np.nan_to_num(matrix.item_means()), kind="stable")
    owner = np.concatenate(
        [rng.permutation(n_parts) for _ in range(-(-matrix.n_items // n_parts))]
    )[: matrix.n_items]
    return tuple(np.sort(order[owner == part]) for part in range(n_parts))


def calibrate_in_parts(
    matrix: ScoreMatrix, settings: CalibrationSettings, size: int, rng: np.random.Generator
) -> Calibration:
    """Calibrate parts of about `size` items one after the other, and join them.

    Raises:
        CalibrationError: A matrix without information, or a part that shares too few examinees.
    """
    matrix.require_calibratable()
    parts = parts_of(matrix, size, rng)
    results = [
        calibrate_part(matrix.select(items=part), settings, nth) for nth, part in enumerate(parts)
    ]
    return join_parts(matrix, settings, parts, results)


def calibrate_part(
    part: ScoreMatrix,
    settings: CalibrationSettings,
    number: int,
    *,
    watch: Callable[[Progress], None] | None = None,
) -> Calibration:
    """Calibrate one part on its own scale, from the examinees who answered any of its items."""
    own = part.select(examinees=part.answers_per_examinee() > 0)
    if number:
        settings = replace(settings, scale=f"{settings.scale}/part-{number + 1}")
    return calibrate(own, settings, watch=watch)


def join_parts(
    matrix: ScoreMatrix,
    settings: CalibrationSettings,
    parts: Sequence[IntArray],
    results: Sequence[Calibration],
) -> Calibration:
    """Join the parts into one calibration on the scale of the first part.

    The log-likelihood is that of all items on the whole matrix, so it can be compared with that
    of a calibration of all items at once.

    Raises:
        CalibrationError: A part shares fewer than two examinees with the first.
    """
    columns = [np.empty(matrix.n_items) for _ in range(4)]
    linkings = link_parts(matrix, parts, results)
    for part, result, linking in zip(parts, results, linkings, strict=True):
        for column, values in zip(columns, linking.items(result.items)[:4], strict=True):
            column[part] = values
    items = ItemParameters(*columns)
    density = max((result.density for result in results), key=lambda d: len(d.nodes))
    errors = [
        result.errors.moved(linking)
        for result, linking in zip(results, linkings, strict=True)
        if result.errors is not None
    ]
    warnings = [
        f"Part {number + 1} of {len(parts)}: {warning}"
        for number, result in enumerate(results)
        for warning in result.warnings
    ]
    return Calibration(
        family=settings.family,
        items=items,
        item_ids=matrix.items,
        density=density,
        log_likelihood=expect(matrix, items, density).log_likelihood,
        n_parameters=sum(result.n_parameters for result in results),
        n_examinees=matrix.n_examinees,
        n_answers=int(matrix.answers_per_item().sum()),
        converged=all(result.converged for result in results),
        cycles=sum(result.cycles for result in results),
        errors=ParameterErrors.joined(parts, errors) if len(errors) == len(parts) else None,
        guessing_sd=results[0].guessing_sd,
        warnings=tuple(warnings),
        scale=settings.scale,
    )


def link_parts(
    matrix: ScoreMatrix, parts: Sequence[IntArray], results: Sequence[Calibration]
) -> tuple[Linking, ...]:
    """Linking of each part's scale to the scale of the first part, through common examinees."""
    reference = results[0]
    answered = [matrix.select(items=part).answers_per_examinee() > 0 for part in parts]
    linkings = []
    for part, result, own in zip(parts, results, answered, strict=True):
        common = np.flatnonzero(own & answered[0])
        if len(common) < 2:
            raise CalibrationError(
                f"Scale {result.scale!r} shares {len(common)} examinees with {reference.scale!r}; "
                "common-person linking needs at least 2."
            )
        linkings.append(
            link_mean_sigma(
                _moments(matrix.select(common, part), result),
                _moments(matrix.select(common, parts[0]), reference),
                source=result.scale,
                target=reference.scale,
            )
        )
    return tuple(linkings)


def _moments(matrix: ScoreMatrix, result: Calibration) -> tuple[float, float]:
    density, _ = population(matrix, result.items, result.density)
    return density.mean, density.sd

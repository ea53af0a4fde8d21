"""Calibrates a large bank in parts, and links the parts through the examinees they share.

Each part is a job of its own that returns only a `Calibration`. Where the whole bank fits into
memory, a calibration of all items at once is better (see `calibrate`).

Source: the common-person procedure of ATLAS, Li et al. (2026), with latent moments instead of point
scores and a corrected intercept formula; see `scale_linking`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from app.calibration.logistic.calibrate import Calibration, CalibrationSettings, calibrate
from app.calibration.logistic.em import Progress
from app.calibration.logistic.expectation import LatentDensity, expect, population
from app.calibration.logistic.scale_linking import Linking, link_populations
from app.calibration.logistic.uncertainty import ParameterErrors
from app.calibration.matrix import ScoreMatrix
from app.engine.models.base import IntArray, ItemParameters
from app.errors import CalibrationError, InvalidInputError

LEAST_PART = 100
"""Least number of items in a part; fewer do not measure the common examinees well enough."""


def parts_of(matrix: ScoreMatrix, size: int, rng: np.random.Generator) -> tuple[IntArray, ...]:
    """Item positions of parts with at least `size` items each and similar difficulties.

    Items are assigned in order of difficulty, at random among neighbours, so that each part
    measures over the whole range of ability.

    Raises:
        InvalidInputError: A size below `LEAST_PART`.
    """
    if size < LEAST_PART:
        raise InvalidInputError(f"A partition needs at least {LEAST_PART} items, got {size}.")
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
        InvalidInputError: A size below `LEAST_PART`.
    """
    matrix.require_calibratable()
    parts = parts_of(matrix, size, rng)
    results = [calibrate_part(matrix, settings, part, nth) for nth, part in enumerate(parts)]
    return join_parts(matrix, settings, parts, results)


def calibrate_part(
    matrix: ScoreMatrix,
    settings: CalibrationSettings,
    part: IntArray,
    number: int,
    *,
    watch: Callable[[Progress], None] | None = None,
) -> Calibration:
    """Calibrate one part on its own scale, from the examinees who answered any of its items."""
    own = matrix.select(items=part)
    own = own.select(examinees=own.answers_per_examinee() > 0)
    return calibrate(own, replace(settings, scale=_scale_of(settings, number)), watch=watch)


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
            link_populations(
                _latent(matrix, part, common, result),
                _latent(matrix, parts[0], common, reference),
                source=result.scale,
                target=reference.scale,
            )
        )
    return tuple(linkings)


def _latent(
    matrix: ScoreMatrix, part: IntArray, examinees: IntArray, result: Calibration
) -> LatentDensity:
    chosen = matrix.select(examinees=examinees, items=part)
    return population(chosen, result.items, result.density)


def _scale_of(settings: CalibrationSettings, number: int) -> str:
    return settings.scale if number == 0 else f"{settings.scale}/part-{number + 1}"

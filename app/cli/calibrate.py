"""`sextant calibrate`: item parameters from recorded answers, no database."""

import gzip
import math
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from app.calibration.calibrate import (
    Calibration,
    CalibrationSettings,
    calibrate,
    compare_families,
)
from app.calibration.curves import Family
from app.calibration.em import Progress
from app.calibration.filters import Filtered, FilterSettings, apply_filters
from app.calibration.goodness import Goodness, goodness_of_fit
from app.calibration.item_fit import ItemFit, LocalDependence, item_fit, local_dependence
from app.calibration.matrix import ScoreMatrix
from app.calibration.partition import calibrate_in_parts
from app.calibration.priors import Priors
from app.cli import console
from app.cli.console import fail_clearly, write_json
from app.cli.inputs import JsonOption, ResponsesOption, load_responses
from app.errors import InvalidInputError, UnknownNameError
from app.exchange.parameters import write_mirt

MODELS: dict[str, Family | None] = {
    **{family.value: family for family in Family},
    "continuous": None,
    "mirt": None,
    "nested": None,
}
"""Every response model that has a name; None where calibration does not know it yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """What was found out about a calibration."""

    calibration: Calibration
    goodness: Goodness
    items: ItemFit
    dependence: LocalDependence
    comparison: tuple[Calibration, ...]


@fail_clearly
def command(
    responses: ResponsesOption,
    out: Annotated[
        Path,
        typer.Option(
            dir_okay=False, help="Bank file to write: X,a1,d,g,u as mirt; .csv or .csv.gz."
        ),
    ],
    model: Annotated[str, typer.Option(help=f"Response model: {', '.join(Family)}.")] = "2pl",
    partition_size: Annotated[
        int | None,
        typer.Option(help="Calibrate parts of so many items (100 at least) and link them."),
    ] = None,
    filters: Annotated[
        bool, typer.Option(help="Leave out items and examinees that say little.")
    ] = True,
    priors: Annotated[
        bool, typer.Option(help="Weak priors on slopes and asymptotes; without: maximum likelihood")
    ] = True,
    negative_slopes: Annotated[
        bool, typer.Option("--negative-slopes", help="Let items fall with ability, as mirt does.")
    ] = False,
    compare: Annotated[
        bool, typer.Option("--compare", help="Calibrate by 1PL, 2PL and 3PL too, and compare.")
    ] = False,
    dimensions: Annotated[int | None, typer.Option(help="Of the mirt model.")] = None,
    seed: Annotated[int, typer.Option(help="Deals the items to parts.")] = 0,
    json: JsonOption = None,
) -> None:
    """Estimate item parameters from a response file."""
    started = time.perf_counter()
    settings = CalibrationSettings(
        family=_family(model),
        priors=None if priors else Priors.none(),
        negative_slopes=negative_slopes,
    )
    if dimensions is not None:
        raise InvalidInputError("--dimensions belongs to the mirt model.")
    if not out.parent.is_dir():
        raise InvalidInputError(f"{out}: the directory {out.parent} does not exist.")
    table = load_responses(responses)
    matrix = ScoreMatrix.of(table.scores, examinees=table.examinees, items=table.items)
    filtered = apply_filters(matrix, FilterSettings() if filters else FilterSettings.none())
    judged = _calibrated(filtered.matrix, settings, partition_size, seed, compare=compare)
    _write_bank(out, judged.calibration)
    document = {
        "n_examinees": matrix.n_examinees,
        "n_items": matrix.n_items,
        **_facts(filtered, judged),
        "seconds": time.perf_counter() - started,
        "peak_memory_mb": _peak_memory_mb(),
    }
    write_json(json, document)
    _show(json, filtered, judged, out)


def _family(model: str) -> Family:
    if model not in MODELS:
        raise UnknownNameError("response model", model, MODELS)
    family = MODELS[model]
    if family is None:
        known = ", ".join(name for name, offered in MODELS.items() if offered is not None)
        raise InvalidInputError(
            f"The {model} model cannot be calibrated by this version; it can do {known}."
        )
    return family


def _calibrated(
    matrix: ScoreMatrix,
    settings: CalibrationSettings,
    partition_size: int | None,
    seed: int,
    *,
    compare: bool,
) -> _Judged:
    with _progress() as watch:
        if partition_size is None:
            calibration = calibrate(matrix, settings, watch=watch)
        else:
            rng = np.random.default_rng(seed)
            calibration = calibrate_in_parts(matrix, settings, partition_size, rng)
        return _Judged(
            calibration=calibration,
            goodness=goodness_of_fit(matrix, calibration),
            items=item_fit(matrix, calibration),
            dependence=local_dependence(matrix, calibration),
            comparison=compare_families(matrix, settings=settings) if compare else (),
        )


@contextmanager
def _progress() -> Iterator[Any]:
    with console.err.status("Calibrating ...") as status:

        def watch(progress: Progress) -> None:
            status.update(
                f"Cycle {progress.cycle}: log-posterior {progress.log_posterior:.1f}, "
                f"gained {progress.gain:.2g}"
            )

        yield watch


def _write_bank(path: Path, calibration: Calibration) -> None:
    content = write_mirt(calibration.bank())
    try:
        path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    except OSError as exc:
        raise InvalidInputError(f"{path}: cannot be written: {exc.strerror}.") from exc


def _facts(filtered: Filtered, judged: _Judged) -> dict[str, Any]:
    calibration = judged.calibration
    return {
        "n_examinees_kept": filtered.matrix.n_examinees,
        "kept": filtered.matrix.n_items,
        "dropped": [
            {"item": item.name, "reason": item.reason.value, "value": item.value}
            for item in filtered.items
        ],
        "dropped_examinees": [
            {"examinee": examinee.name, "reason": examinee.reason.value, "value": examinee.value}
            for examinee in filtered.examinees
        ],
        "constants": filtered.constants,
        "model": calibration.family.value,
        "scale": calibration.scale,
        "converged": calibration.converged,
        "iterations": calibration.cycles,
        "log_likelihood": calibration.log_likelihood,
        "n_parameters": calibration.n_parameters,
        "aic": calibration.aic,
        "bic": calibration.bic,
        "fit": _fit(judged.goodness),
        "local_dependence": asdict(judged.dependence),
        "items": _items(judged),
        "warnings": list(calibration.warnings),
        "comparison": [
            {
                "model": fit.family.value,
                "log_likelihood": fit.log_likelihood,
                "n_parameters": fit.n_parameters,
                "aic": fit.aic,
                "bic": fit.bic,
                "converged": fit.converged,
            }
            for fit in judged.comparison
        ],
    }


def _fit(goodness: Goodness) -> dict[str, Any]:
    m2 = goodness.m2
    return {
        "m2": m2 and m2.statistic,
        "df": m2 and m2.df,
        "p_value": m2 and m2.p_value,
        "rmsea": m2 and m2.rmsea,
        "rmsea_lo": m2 and m2.rmsea_lo,
        "rmsea_hi": m2 and m2.rmsea_hi,
        "srmsr": _finite(goodness.srmsr),
        "verdict": goodness.verdict,
        "m2_items": m2 and m2.n_items,
        "m2_examinees": m2 and m2.n_examinees,
        "m2_missing": goodness.m2_missing or None,
        "srmsr_items": goodness.srmsr_items,
    }


def _items(judged: _Judged) -> list[dict[str, Any]]:
    calibration, fit, errors = judged.calibration, judged.items, judged.calibration.errors
    columns = {
        "a": calibration.items.a,
        "b": calibration.b,
        "c": calibration.items.c,
        "d": calibration.items.d,
        "s_x2": fit.statistic,
        "s_x2_p": fit.p_value,
    }
    if errors is not None:
        columns |= {"se_a": errors.a, "se_b": errors.b, "se_c": errors.c, "se_d": errors.d}
    return [
        {"item": item_id, **{name: _finite(values[j]) for name, values in columns.items()}}
        for j, item_id in enumerate(calibration.item_ids)
    ]


def _finite(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None


def _peak_memory_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def _show(json: str | None, filtered: Filtered, judged: _Judged, out: Path) -> None:
    screen = console.err if json == "-" else console.out
    calibration, goodness = judged.calibration, judged.goodness
    for reason, count in filtered.counts.items():
        screen.print(f"{count:6d} left out: {reason.value}", markup=False)
    screen.print(
        f"{filtered.matrix.n_items} items and {filtered.matrix.n_examinees} examinees: "
        f"{calibration.family.value}, log-likelihood {calibration.log_likelihood:.1f}, "
        f"AIC {calibration.aic:.1f}, BIC {calibration.bic:.1f}, "
        f"{'converged' if calibration.converged else 'NOT converged'} "
        f"after {calibration.cycles} cycles.",
        markup=False,
    )
    m2 = goodness.m2
    screen.print(
        f"Fit: {goodness.verdict}; SRMSR {goodness.srmsr:.3f}; "
        + (
            goodness.m2_missing
            if m2 is None
            else f"M2 {m2.statistic:.1f} on {m2.df} df ({m2.n_items} items), RMSEA {m2.rmsea:.3f} "
            f"({m2.rmsea_lo:.3f} to {m2.rmsea_hi:.3f})"
        ),
        markup=False,
    )
    for fit in judged.comparison:
        screen.print(
            f"  {fit.family.value}: log-likelihood {fit.log_likelihood:.1f}, AIC {fit.aic:.1f}, "
            f"BIC {fit.bic:.1f}",
            markup=False,
        )
    for warning in calibration.warnings:
        console.err.print(f"Note: {warning}", markup=False)
    screen.print(f"Wrote {out}.", markup=False)

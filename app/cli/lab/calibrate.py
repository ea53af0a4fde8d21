"""`sextant calibrate`: estimate item parameters from recorded answers, without a database."""

import gzip
import resource
import sys
import time
from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console
from rich.status import Status
from rich.table import Table

from app.calibration.filters import Dropped, Filtered, FilterSettings
from app.calibration.linking.linked import LinkMethod
from app.calibration.pipeline.calibrator import Fitted
from app.calibration.pipeline.fit import decided, fit, prepared, with_card
from app.calibration.pipeline.plan import CalibrationPlan, LinkPlan
from app.cli.lab import inputs
from app.cli.lab.inputs import load_bank, load_scores, note, score_scale
from app.cli.terminal import console, options
from app.cli.terminal.console import JsonObject, fail_clearly, write_json, written
from app.cli.terminal.fields import Fields, option, reading, with_body
from app.cli.terminal.options import require_filters
from app.engine.bank import DEFAULT_SCALE, ItemBank
from app.engine.knowledge import with_abilities
from app.engine.models.continuous import CONTINUOUS
from app.errors import InvalidInputError
from app.exchange.bank_files import write_difficulties, write_mirt
from app.exchange.item_facts import read_families
from app.printable import percent
from app.records.fields import finite
from app.reports.version.page import shift_words

#: Figures of the report card that the screen shows.
_CARD = (
    ("items", "items_mean"),
    ("theta MAE", "theta_mae"),
    ("95 % held", "coverage95"),
    ("raw", "coverage95_raw"),
    ("score MAE", "accuracy_mae"),
    ("95 % held", "accuracy_coverage95"),
    ("raw", "accuracy_coverage95_raw"),
)


_OPTIONS: Fields = {
    **options.CALIBRATION,
    "/link/method": option(
        str,
        f"Method of --link-to: {', '.join(LinkMethod)}; by default "
        f"{LinkMethod.STOCKING_LORD.value}.",
        "--link-method",
    ),
    "/compare": option(
        str,
        "Response models to calibrate in addition, for comparison: 1pl,2pl,3pl.",
        callback=reading(
            lambda text: tuple(name.strip() for name in text.split(",") if name.strip())
        ),
    ),
    "/moments": option(
        bool,
        "Calibrate continuous scores by the published closed forms, for comparison.",
        "--moments",
    ),
    "/report_card": option(
        bool,
        "Cross-validate: test held-out examinees on banks calibrated without them; takes several "
        "times as long.",
        "--report-card",
    ),
}


@fail_clearly
@with_body(_OPTIONS)
def command(
    responses: inputs.ResponsesOption,
    out: Annotated[
        Path,
        options.output_option(
            dir_okay=False,
            help="Bank file to write: X,a1,d,g,u as in mirt, or item,a,b,c,d,k for continuous "
            "scores; .csv or .csv.gz.",
        ),
    ],
    body: dict[str, Any],
    filters: options.FilteringOption = True,
    link_to: Annotated[
        Path | None,
        options.file_option(help="Bank file to whose scale the items are linked."),
    ] = None,
    scale: inputs.ScaleOption = None,
    lower_is_better: inputs.LowerIsBetterOption = False,
    families: Annotated[
        Path | None,
        options.file_option(
            help="CSV examinee,family: the report card holds out whole families; by default the "
            "family is the part of a name before the first /.",
        ),
    ] = None,
    json: inputs.JsonOption = None,
) -> None:
    """Estimate item parameters from a response file."""
    started = time.perf_counter()
    require_filters(body, filters=filters)
    narrowed, link = body.pop("filters", {}), body.pop("link", {})
    if families is not None and "report_card" not in body:
        raise InvalidInputError("--families needs --report-card, which holds them out.")
    if link and link_to is None:
        raise InvalidInputError("--link-method needs --link-to, the bank to link to.")
    plan = CalibrationPlan(
        **body,
        families=None if families is None else read_families(families.read_bytes(), families.name),
        filters=FilterSettings(**narrowed) if filters else FilterSettings.none(),
        link=None if link_to is None else LinkPlan(**link),
        target=None if link_to is None else load_bank(link_to),
    )
    marks = score_scale(scale, lower_is_better=lower_is_better)
    table = load_scores(responses, marks)
    filtered = prepared(table, plan)
    plan = decided(filtered.matrix, plan)
    with console.err.status("Calibrating ...") as status:
        report = partial(_tell, status)
        fitted = fit(filtered.matrix, plan, report)
        if plan.report_card:
            fitted = with_card(filtered.matrix, plan, fitted, report, clock=time.perf_counter)
    fitted = fitted.warned(filtered.warnings)
    theta_scale = DEFAULT_SCALE if plan.target is None else plan.target.scale
    bank = ItemBank.from_columns(filtered.matrix.items, fitted.columns, scale=theta_scale)
    known = with_abilities(bank, fitted.knowledge)
    content = write_difficulties(known) if known.model is CONTINUOUS else write_mirt(known)
    with written(str(out)):
        out.write_bytes(gzip.compress(content, mtime=0) if out.suffix == ".gz" else content)
    columns = {**fitted.columns, "b": bank.b}
    document = {
        "n_examinees": len(table.examinees),
        "n_items": len(table.items),
        "n_examinees_kept": filtered.matrix.n_examinees,
        "kept": filtered.matrix.n_items,
        "dropped": [_dropped("item", item) for item in filtered.items],
        "score_only": [_dropped("item", item) for item in filtered.score_only],
        "dropped_examinees": [_dropped("examinee", examinee) for examinee in filtered.examinees],
        "constants": filtered.constants,
        "model": plan.model,
        "scale": theta_scale,
        "score_scale": asdict(marks),
        **fitted.figures,
        "knowledge": fitted.knowledge,
        "abilities": _abilities(filtered, fitted),
        "items": [
            {"item": item_id, **{name: finite(values[j]) for name, values in columns.items()}}
            for j, item_id in enumerate(bank.item_ids)
        ],
        "seconds": time.perf_counter() - started,
        "peak_memory_mb": _peak_memory_mb(),
    }
    write_json(json, document)
    _show(json, filtered, plan, fitted, out)


def _tell(status: Status, progress: JsonObject) -> None:
    phase = str(progress["phase"]).replace("_", " ").capitalize()
    numbers = [
        f"{name} {value:.6g}" for name, value in progress.items() if isinstance(value, int | float)
    ]
    status.update(": ".join(part for part in (phase, ", ".join(numbers)) if part))


def _dropped(kind: str, dropped: Dropped) -> JsonObject:
    return {kind: dropped.name, "reason": dropped.reason.value, "value": dropped.value}


def _abilities(filtered: Filtered[Any], fitted: Fitted) -> list[JsonObject] | None:
    found = fitted.abilities
    if found is None:
        return None
    columns = (column.tolist() for column in found)
    return [
        {"examinee": name, "theta": theta, "se": finite(se), "score": score}
        for name, theta, se, score in zip(filtered.matrix.examinees, *columns, strict=True)
    ]


def _peak_memory_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def _show(
    json: str | None,
    filtered: Filtered[Any],
    plan: CalibrationPlan,
    fitted: Fitted,
    out: Path,
) -> None:
    screen = console.err if json == "-" else console.out
    figures = fitted.figures
    for reason, count in filtered.counts.items():
        screen.print(f"{count:6d} left out: {reason.value}")
    for reason, count in Counter(item.reason for item in filtered.score_only).items():
        screen.print(f"{count:6d} for scores alone: {reason.value}")
    screen.print(
        f"{filtered.matrix.n_items} items and {filtered.matrix.n_examinees} examinees: "
        f"{plan.model}, log-likelihood {figures['log_likelihood']:.1f}, "
        f"AIC {figures['aic']:.1f}, BIC {figures['bic']:.1f}, "
        f"{'converged' if figures['converged'] else 'NOT converged'} "
        f"after {figures['iterations']} cycles."
    )
    _show_fit(screen, fitted)
    if (link := figures["link"]) is not None:
        screen.print(
            f"Linked by {len(link['anchors'])} anchors: theta = {link['slope']:.4f} theta_own "
            f"{link['intercept']:+z.4f}."
        )
    for other in figures["comparison"]:
        screen.print(
            f"  {other['model']}: log-likelihood {other['log_likelihood']:.1f}, "
            f"AIC {other['aic']:.1f}, BIC {other['bic']:.1f}"
        )
    if figures.get("report_card") is not None:
        _show_card(screen, fitted)
    for warning in figures["warnings"]:
        note(warning)
    screen.print(f"Wrote {out}.")


def _show_fit(screen: Console, fitted: Fitted) -> None:
    figures = fitted.figures
    found = figures["fit"]
    if "dispersion" in figures:
        conformance = found["variance_r2"]
        known = "unknown" if conformance is None else f"{conformance:.3f}"
        screen.print(
            f"Fit: {found['verdict']}; common dispersion k = {figures['dispersion']:.4g}; R2 of "
            f"observed against predicted variance {known}."
        )
        return
    if "dimensionality" in figures:
        several = figures["dimensionality"]
        screen.print(
            f"Abilities: {', '.join(several['names'])}; fitted by the {several['method']} method."
        )
        errors = (several["cross_validated_error"] or {}).get("all", {})
        for count in ("8", "16", "32", "64"):
            if count in errors:
                screen.print(
                    f"  {count:>3} items predict the whole score to {percent(errors[count], 1)}."
                )
        return
    srmsr = "unknown" if found["srmsr"] is None else f"{found['srmsr']:.3f}"
    screen.print(
        f"Fit: {found['verdict']}; SRMSR {srmsr}; "
        + (
            found["m2_missing"]
            or f"M2 {found['m2']:.1f} on {found['df']} df ({found['m2_items']} items), "
            f"RMSEA {found['rmsea']:.3f} ({found['rmsea_lo']:.3f} to {found['rmsea_hi']:.3f})"
        ),
    )


def _show_card(screen: Console, fitted: Fitted) -> None:
    """Print the tests of held-out examinees, and of those unlike the calibration sample."""
    card, columns = fitted.figures["report_card"], [heading for heading, _ in _CARD]
    title = f"Tests of {card['n_examinees']} examinees on banks calibrated without them"
    table = Table("design", *columns, title=title)
    for row in card["rows"]:
        table.add_row(row["design"], *(f"{row[name]:.3g}" for _, name in _CARD))
    screen.print(table)
    if tags := list(card["rows"][0]["tasks"]):
        table = Table("design", *tags, title="MAE of the score of each task (95 % held)")
        for row in card["rows"]:
            told = (row["tasks"][tag] for tag in tags)
            cells = (f"{one['mae']:.3g} ({one['coverage95']:.3g})" for one in told)
            table.add_row(row["design"], *cells)
        screen.print(table)
    table = Table("learned from", "tested", "design", *columns, title="Unlike those learned from")
    for shift in card["shifts"]:
        learned, tested = shift_words(shift["hold_out"])
        if shift["reason"] is not None:
            screen.print(f"{learned} to {tested}: {shift['reason']}")
            continue
        for row in shift["rows"]:
            table.add_row(
                f"{learned} ({shift['n_learned']})",
                f"{tested} ({shift['n_examinees']})",
                row["design"],
                *(f"{row[name]:.3g}" for _, name in _CARD),
            )
        if shift["families"]:
            screen.print(f"Families held out: {', '.join(shift['families'])}.")
    if table.row_count:
        screen.print(table)

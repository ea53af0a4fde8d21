"""`sextant simulate`: try a test design on recorded answers before paying for any call."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from app.calibration.continuous.scores import ScoreScale
from app.calibration.multidimensional.score_curves import learn_curves
from app.calibration.pipeline.blind_banks import blind_banks, glimpses_on
from app.cli.lab import inputs
from app.cli.lab.inputs import (
    KnownBank,
    load_bank,
    load_numbers,
    load_scores,
    note,
    score_scale,
    without,
)
from app.cli.lab.simulate_design import DesignOptions, Simulated, simulate_design, take_all
from app.cli.terminal import console, options
from app.cli.terminal.console import JsonObject, fail_clearly, write_json
from app.cli.terminal.fields import Fields, option, with_body
from app.cli.terminal.options import file_option, given
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.design.parts import PredictionMethod
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.knowledge import CURVES, curves_to_dict
from app.engine.prediction.correction import LONGEST, IntervalCorrection
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.prediction.targets import WHOLE_BANK, tags_in_ids
from app.engine.responses import ResponseTable
from app.engine.simulation.baselines import Baseline, baselines
from app.engine.simulation.forecast import calls_of, drawn, forecast, summary
from app.engine.simulation.learning import LEAST_EXAMINEES, learn_correction
from app.engine.simulation.simulate import Calls, Taken, prior_thetas, summarise
from app.engine.stopping import StopReason
from app.errors import InvalidInputError
from app.exchange.item_facts import read_items
from app.exchange.names import align
from app.items import Json
from app.printable import percent
from app.records.fields import finite

#: Most `--train` examinees with simulated tests; more hardly change a 95 % quantile.
MAX_LEARNED_FROM = 400
#: Figures of a forecast that the screen shows.
_FORECAST = ("items", "margin", "se", "interval", "tokens", "usd", "seconds")


_DESIGN: Fields = {
    **options.DESIGN,
    "/selection/top_k": option(
        int, "Choose at random among the K best items.", "--randomesque", metavar="K"
    ),
    "/prediction/method": option(
        PredictionMethod,
        "How scores are predicted: combined (from curves learned from --train and from sampled "
        "questions), design (from sampled questions, as if the curves did not fit), score-model (a "
        "linear model of scores, for v-optimal and related selectors), or p-irt (from the items' "
        "parameters alone).",
        "--prediction",
    ),
    "/calls/tokens_in": option(float, "Forecast: prompt tokens per item.", min=0),
    "/calls/tokens_out": option(float, "Forecast: tokens per answer.", min=0),
    "/calls/price_in": option(float, "Forecast: US dollars per million prompt tokens.", min=0),
    "/calls/price_out": option(float, "Forecast: US dollars per million answer tokens.", min=0),
    "/calls/latency": option(float, "Forecast: seconds per call.", min=0),
}


@fail_clearly
@with_body(_DESIGN)
def command(
    body: dict[str, Any],
    responses: Annotated[
        Path | None,
        file_option(
            help="Recorded scores of the examinees to test, as for the other commands; by default "
            "a forecast with simulated models."
        ),
    ] = None,
    bank: inputs.OptionalBankOption = None,
    train: Annotated[
        Path | None,
        file_option(help="Scores of other examinees, to learn intervals and predictions from."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    reference: Annotated[
        str,
        typer.Option(
            help="Reference for theta: wle (whole-bank estimate), or a CSV file with examinees in "
            "the first column and a column theta..."
        ),
    ] = "wle",
    scale: inputs.ScaleOption = None,
    lower_is_better: inputs.LowerIsBetterOption = False,
    dimensions: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            help="Abilities besides the general one, for v-optimal and related selectors.",
        ),
    ] = None,
    target: options.TargetOption = WHOLE_BANK,
    ask: Annotated[
        str | None, typer.Option(metavar="TAG,...", help="Ask only items of these tags.")
    ] = None,
    tags: Annotated[
        Path | None,
        file_option(
            help="CSV item,tag; by default the tag is what precedes / : | # . _ or - in an id."
        ),
    ] = None,
    item_costs: options.ItemCostsOption = None,
    beside: Annotated[
        bool,
        typer.Option("--baselines", help="Also show simpler ways to estimate the score."),
    ] = False,
    fixed: Annotated[
        Path | None,
        file_option(help="File of item ids, one per line: a short form as another baseline."),
    ] = None,
    examinees: Annotated[
        int, typer.Option(min=1, help="Forecast: number of models to simulate.")
    ] = 100,
    json: inputs.JsonOption = None,
) -> None:
    """Simulate a test design on recorded answers, or forecast its cost.

    Each examinee is tested on its own recorded answers; an item without an answer
    is never asked. Without --responses, simulated examinees answer by the bank's
    model, which forecasts items, cost and time. The selectors v-optimal,
    v-optimal-loadings, d-optimal, a-optimal and trace estimate several abilities
    from --train, and need no bank.
    """
    calls = body.pop("calls", {})
    design = Design.from_dict(body)
    several = DesignOptions(
        train=train,
        dimensions=dimensions,
        target=target,
        ask=ask,
        tags=tags,
        item_costs=item_costs,
        scale=score_scale(scale, lower_is_better=lower_is_better),
        seed=seed,
    )
    beside = beside or fixed is not None
    if beside and (responses is None or train is None or bank is None):
        raise InvalidInputError("Baselines need --bank, --responses and --train, to learn from.")
    if beside and several.takes_several(design):
        raise InvalidInputError("Baselines are for tests of one ability, and these have several.")
    if responses is None:
        several.refuse()
        if train is not None or reference != "wle":
            raise InvalidInputError(
                "--train and --reference belong to recorded answers: give --responses, too."
            )
        if bank is None:
            raise InvalidInputError("A forecast needs --bank with the parameters of the items.")
        known = KnownBank.load(bank)
        if known.knowledge is None and design.stopping.score_margin is not None:
            note(
                f"{bank.name} carries no reference models, so a session may need fewer questions. "
                "A bundle carries them: sextant banks export NAME --bundle."
            )
        latency = calls.pop("latency", None)
        pace_s = None if latency is None else latency / design.concurrency
        cost = calls_of(known.bank.n_items, **calls, pace_s=pace_s)
        _forecast(known, design, cost, examinees, seed, json)
        return
    if calls:
        flag = next(iter(calls)).replace("_", "-")
        raise InvalidInputError(f"--{flag} belongs to a forecast: leave --responses out.")
    simpler = None
    if bank is None or several.takes_several(design):
        items_of = None if bank is None else load_bank(bank, several=True)
        found = simulate_design(design, items_of, responses, several)
        if reference != "wle":
            found = replace(found, references=_thetas_in(reference, found.examinees))
    else:
        several.refuse()
        items = load_bank(bank)
        records = _records(responses, items, several.scale)
        references = (
            whole_bank_abilities(items, records.scores)[0]
            if reference == "wle"
            else _thetas_in(reference, records.examinees)
        )
        listed = (
            None if fixed is None else read_items(fixed.read_bytes(), items.item_ids, fixed.name)
        )
        others = None
        if train is not None:
            trained = _records(train, items, several.scale)
            others = without(trained, records.examinees)
            if n_tested := trained.n_examinees - others.n_examinees:
                note(
                    f"{n_tested} examinees of --train are tested themselves and were not learned "
                    "from."
                )
            if beside and others.n_examinees < 2:
                raise InvalidInputError(
                    "Baselines learn from at least 2 examinees of --train who are not tested "
                    f"themselves, got {others.n_examinees}."
                )
        curves, correction = _learned(items, others, design, seed)
        test = design.build(items, correction=correction, curves=curves)
        taken, seconds = take_all(test, records.scores, seed=seed, concurrency=design.concurrency)
        found = Simulated(
            examinees=records.examinees,
            taken=taken,
            references=references,
            test=test,
            seconds=seconds,
            facts={"learned": _knowledge(correction, curves)},
        )
        if beside and others is not None:
            simpler = baselines(
                others.scores,
                records.scores,
                round(float(np.mean([len(one.items) for one in taken]))),
                bank=items,
                # The shortest prefix of an id names the task.
                tasks=[min(tags, key=len, default="") for tags in tags_in_ids(items.item_ids)],
                fixed=listed,
                seed=seed,
            )
    _report(found, design, seed, json, simpler)


def _forecast(
    known: KnownBank, design: Design, calls: Calls, n_examinees: int, seed: int, json: str | None
) -> None:
    """Simulate examinees; print and write what their tests took.

    Their abilities are drawn from those of the reference models if the file has these, else from
    the design's prior.
    """
    rng = np.random.default_rng(seed)
    if known.reference_abilities and known.bank.abilities is None:
        thetas = drawn(known.reference_abilities, n_examinees, rng)
    else:
        thetas = prior_thetas(known.bank, design.estimator, n_examinees, rng)
    found = forecast(
        known.test(design),
        thetas,
        seed=seed,
        concurrency=design.concurrency,
        se_target=design.stopping.se,
        margin_target=design.stopping.score_margin,
        calls=calls,
    )
    screen = console.err if json == "-" else console.out
    table = Table("", "median", "5 %", "95 %", title=f"{n_examinees} simulated tests")
    for name in _FORECAST:
        if (part := getattr(found, name)) is not None:
            values = (part.median, part.lo, part.hi)
            table.add_row(name, *(f"{v:,.0f}" if v >= 1000 else f"{v:.3g}" for v in values))
    screen.print(table)
    sentences = summary(found)
    for sentence in sentences:
        screen.print(sentence, soft_wrap=True)
    if found.reached is not None:
        screen.print(f"{percent(found.reached)} are as exact as asked for.")
    document: JsonObject = {"forecast": found.to_dict(), "summary": sentences}
    write_json(json, {**document, "design": design.to_dict(), "seed": seed})


def _report(
    found: Simulated, design: Design, seed: int, json: str | None, simpler: list[Baseline] | None
) -> None:
    """Print the simulated tests, and write them as JSON."""
    summary = summarise(found.taken, found.references, found.test)
    each = found.seconds / sum(len(one.items) for one in found.taken)
    screen = console.err if json == "-" else console.out
    table = Table("measure", "value", title=f"{summary.n_examinees} simulated tests")
    for name, value in {**asdict(summary), **found.figures}.items():
        table.add_row(name, "not reached" if value is None else f"{value:.4g}")
    table.add_row("seconds_per_step", f"{each:.3g}")
    screen.print(table)
    screen.say(
        f"{summary.items_mean:.4g} of {found.test.pool.n_active:,} questions a model: the score is "
        f"off by {100 * summary.accuracy_mae:.2g} points on average; the 95 % intervals hold "
        f"{percent(summary.accuracy_coverage95)} of the scores."
    )
    ends = Counter(one.stop.reason for one in found.taken)
    reached = ends.pop(StopReason.SCORE_MARGIN, 0) + ends.pop(StopReason.SE_TARGET, 0)
    rest = "".join(f"; {n} ended by {reason}" for reason, n in ends.items())
    screen.say(f"{reached} of {summary.n_examinees} reach their goal{rest}.")
    if simpler is not None:
        table = Table("method", "items", "error of the score", title="Beside simpler ways")
        own = ("this design", summary.items_mean, summary.accuracy_mae, summary.accuracy_mae_se)
        others = ((one.name, one.items, one.accuracy_mae, one.accuracy_mae_se) for one in simpler)
        for name, items, error, se in (own, *others):
            told = f"{error:.4f}" + ("" if se is None else f", SE {se:.4f}")
            table.add_row(name, f"{items:.4g}", told)
        screen.print(table)
    write_json(
        json,
        {
            "summary": {**asdict(summary), "seconds_per_step": each, **found.figures},
            "design": design.to_dict(),
            "seed": seed,
            **found.facts,
            **given(baselines=[asdict(one) for one in simpler] if simpler else None),
            "examinees": [
                _as_json(name, one, theta)
                for name, one, theta in zip(
                    found.examinees, found.taken, found.references.tolist(), strict=True
                )
            ],
        },
    )


def _records(path: Path, bank: ItemBank, scale: ScoreScale) -> ResponseTable:
    """Load answers to the items of a bank; print a note on what is left out."""
    table = load_scores(path, scale)
    aligned = align(table, bank)
    records = ResponseTable(table.examinees, bank.item_ids, aligned.scores)
    answered = ~np.isnan(aligned.scores).all(axis=1)
    if not answered.all():
        note(f"{path.name}: {int((~answered).sum())} examinees without answers left out.")
        records = records.select(examinees=np.flatnonzero(answered))
    if skipped := len(aligned.match.unknown):
        note(f"{path.name}: {skipped} items are not in the bank and were skipped.")
    return records


def _thetas_in(reference: str, examinees: Sequence[str]) -> FloatArray:
    return load_numbers(Path(reference), "--reference: expected wle or a file", "theta", examinees)


def _learned(
    bank: ItemBank, others: ResponseTable | None, design: Design, seed: int
) -> tuple[LearnedCurves | None, IntervalCorrection | None]:
    """Learn curves and an interval correction from other examinees, if they are enough."""
    if others is None or not others.n_examinees:
        return None, None
    scores, n = others.scores, others.n_examinees
    curves = learn_curves(scores, np.random.default_rng(seed))
    if n < LEAST_EXAMINEES:
        return curves, None
    rows = np.linspace(0, n - 1, min(n, MAX_LEARNED_FROM)).astype(int).tolist()
    longest = min(design.stopping.max_items or LONGEST, LONGEST)
    seen = glimpses_on(
        blind_banks(bank, others, rows, seed),
        scores,
        partial(design.open_ended(longest).build, curves=curves),
        seed=seed,
        concurrency=design.concurrency,
    )
    references, _ = whole_bank_abilities(bank, scores)
    return curves, learn_correction(seen, known=references)


def _knowledge(
    correction: IntervalCorrection | None, curves: LearnedCurves | None
) -> JsonObject | None:
    """The learned curves and correction in the form of a bank version; None without either."""
    known: dict[str, Json] = {}
    if correction is not None:
        known["interval_correction"] = correction.to_dict()
    if curves is not None:
        kept = curves_to_dict(curves, ())
        shown = ("n_reference", "abilities", "dispersion", "errors")
        known[CURVES] = {name: kept[name] for name in shown}
    return known or None


def _as_json(name: str, taken: Taken, reference: float) -> JsonObject:
    estimate, prediction = taken.estimate, taken.prediction
    return {
        "examinee": name,
        "theta": estimate.theta,
        "se": finite(estimate.se),
        "lo": finite(estimate.lo),
        "hi": finite(estimate.hi),
        "raw": estimate.raw and [finite(end) for end in estimate.raw],
        "reference": float(reference),
        "n_items": len(taken.items),
        "stop_reason": taken.stop.reason.value,
        "accuracy": {
            "value": prediction.value,
            "lo": prediction.lo,
            "hi": prediction.hi,
            "raw": prediction.raw and list(prediction.raw),
            "actual": taken.accuracy,
        },
    }

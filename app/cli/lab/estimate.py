"""`sextant estimate`: theta and score from recorded answers, without a database."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from app.cli.lab import inputs
from app.cli.lab.inputs import load_bank, load_scores, note, score_scale
from app.cli.terminal import console
from app.cli.terminal.console import JsonObject, fail_clearly, interval, number, write_json
from app.engine.bank import FloatArray, ItemBank
from app.engine.estimation.batch import estimate_many
from app.engine.estimation.estimators import EstimatorName, GridEstimator, SeKind
from app.engine.estimation.posterior import FixedGrid, NormalPrior, Rule
from app.engine.lint import lint, quarantine
from app.engine.prediction.p_irt import P_IRT, PIrt
from app.errors import InvalidInputError
from app.exchange.names import Aligned, align
from app.records.fields import finite

_SHOWN = 20


@fail_clearly
def command(
    bank: inputs.BankOption,
    responses: inputs.ResponsesOption,
    estimator: Annotated[
        EstimatorName, typer.Option(help="How theta is estimated.")
    ] = EstimatorName.EAP,
    se: Annotated[
        SeKind | None, typer.Option(help="Kind of standard error; by default the estimator's own.")
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(help="Number of nodes of a fixed grid; by default the grid adapts."),
    ] = None,
    range_: Annotated[
        tuple[float, float] | None,
        typer.Option("--range", metavar="LO HI", help="Range of the fixed grid, logits."),
    ] = None,
    rule: Annotated[
        Rule, typer.Option(help="Quadrature rule of the fixed grid: the weight of its end nodes.")
    ] = Rule.TRAPEZOID,
    prior_mean: Annotated[float, typer.Option(help="Mean of the normal prior.")] = 0.0,
    prior_sd: Annotated[float, typer.Option(help="Standard deviation of the normal prior.")] = 1.0,
    prediction: Annotated[
        Literal["p-irt", "p-irt-c"],
        typer.Option(
            help="How the score is predicted: by the model (p-irt), or by the published rule that "
            "uses c for items with a1 <= 0 (p-irt-c)."
        ),
    ] = "p-irt",
    scale: inputs.ScaleOption = None,
    lower_is_better: inputs.LowerIsBetterOption = False,
    json: inputs.JsonOption = None,
) -> None:
    """Estimate theta from a bank file and a response file."""
    settings = GridEstimator(
        method=estimator,
        prior=NormalPrior(mean=prior_mean, sd=prior_sd),
        grid=_grid(nodes, range_, rule),
        se=se,
    )
    items = load_bank(bank)
    table = load_scores(responses, score_scale(scale, lower_is_better=lower_is_better))
    aligned = align(table, items)
    rows = estimate_rows(items, aligned.scores, table.examinees, settings, prediction)
    screen = console.err if json == "-" else console.out
    _show(screen, rows)
    _warn(items, aligned, rows)
    told = [asdict(row) for row in rows]
    write_json(json, {"examinees": told, **_facts(items, aligned, settings, prediction)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Result for one examinee; None stands for a number that is not finite.

    `accuracy` is the predicted score, with its 95 % interval: value, lo and hi.
    """

    examinee: str
    theta: float | None
    se: float | None
    lo: float | None
    hi: float | None
    method: str
    at_bound: bool
    n_items: int
    accuracy: dict[str, float]


def estimate_rows(
    bank: ItemBank,
    scores: FloatArray,
    examinees: Sequence[str],
    estimator: GridEstimator,
    prediction: str = P_IRT,
) -> list[Row]:
    """Estimate one row for each examinee, in the order of `examinees`.

    Args:
        bank: The bank; all its items are used.
        scores: Scores, shape (n_examinees, bank.n_items), NaN where not answered.
        examinees: Names of the examinees.
        estimator: Estimator of theta.
        prediction: Method that predicts the score, one of `BY_THETA`.
    """
    rows: dict[int, Row] = {}
    for block in estimate_many(bank, scores, estimator):
        of_block = scores[block.rows]
        predictions = PIrt(method=prediction).predict_rows(
            bank,
            of_block,
            np.array([belief.theta for belief in block.beliefs]),
            block.beliefs[0].nodes,
            np.array([belief.weights for belief in block.beliefs]),
        )
        n_items = np.count_nonzero(~np.isnan(of_block), axis=1)
        for i, row in enumerate(block.rows.tolist()):
            estimate, predicted = block.beliefs[i].estimate(), predictions[i]
            rows[row] = Row(
                examinee=examinees[row],
                theta=finite(estimate.theta),
                se=finite(estimate.se),
                lo=finite(estimate.lo),
                hi=finite(estimate.hi),
                method=estimate.method,
                at_bound=estimate.at_bound,
                n_items=int(n_items[i]),
                accuracy={"value": predicted.value, "lo": predicted.lo, "hi": predicted.hi},
            )
    return [rows[i] for i in range(len(rows))]


def _grid(nodes: int | None, range_: tuple[float, float] | None, rule: Rule) -> FixedGrid | None:
    if nodes is None and range_ is None:
        if rule is not Rule.TRAPEZOID:
            raise InvalidInputError("--rule belongs to a fixed grid: give --nodes and --range too.")
        return None
    if nodes is None or range_ is None:
        raise InvalidInputError("A fixed grid needs both --nodes and --range.")
    return FixedGrid(n_nodes=nodes, lo=range_[0], hi=range_[1], rule=rule).require_useful()


def _facts(
    bank: ItemBank, aligned: Aligned, estimator: GridEstimator, prediction: str
) -> JsonObject:
    grid = estimator.grid
    return {
        "estimator": {
            "method": estimator.method.value,
            "se": estimator.se_kind(estimator.method).value,
            "prior_mean": estimator.prior.mean,
            "prior_sd": estimator.prior.sd,
            "grid": None if grid is None else {**asdict(grid), "rule": grid.rule.value},
        },
        "prediction": prediction,
        "bank": {
            "n_items": bank.n_items,
            "n_quarantined": len(quarantine(lint(bank))),
            "scale": bank.scale,
        },
        "responses": {
            "n_items_matched": len(aligned.match.found),
            "renamed": aligned.match.renamed,
            "items_not_in_bank": list(aligned.match.unknown),
            "n_scores_skipped": aligned.n_skipped,
        },
    }


def _show(screen: Console, rows: Sequence[Row]) -> None:
    table = Table("examinee", "theta", "se", "95 % interval", "items", "score")
    for row in rows[:_SHOWN]:
        table.add_row(
            row.examinee + ("" if not row.at_bound else f" ({row.method})"),
            number(row.theta, ".3f"),
            number(row.se, ".3f"),
            interval(row, ".3f"),
            str(row.n_items),
            "{value:.3f} ({lo:.3f} to {hi:.3f})".format(**row.accuracy),
        )
    screen.print(table)
    if len(rows) > _SHOWN:
        screen.print(f"... and {len(rows) - _SHOWN} more; --json PATH writes all.")


def _warn(bank: ItemBank, aligned: Aligned, rows: Sequence[Row]) -> None:
    match = aligned.match
    if match.unknown:
        note(
            f"{len(match.unknown)} items of the responses are not in the bank and were skipped"
            f" with their {aligned.n_skipped} scores: {', '.join(match.unknown[:5])}"
            f"{', ...' if len(match.unknown) > 5 else ''}."
        )
    if match.renamed:
        name, item = next(iter(match.renamed.items()))
        note(
            f"{len(match.renamed)} items were matched by R's spelling of their names, such as"
            f" {name!r} to {item!r}."
        )
    if bound := sum(row.at_bound for row in rows):
        note(
            f"{bound} examinees have no finite estimate by this method or lie outside the range;"
            " see `method` and `at_bound`."
        )
    if quarantined := len(quarantine(lint(bank))):
        note(
            f"{quarantined} items of the bank have faults that keep them out of adaptive tests;"
            " they were used here. See `sextant lint`."
        )

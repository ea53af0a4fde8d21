"""`sextant compose`: the best fixed short form of a benchmark, for who cannot test adaptively."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from app.calibration.score_model import learn_scores
from app.cli import console
from app.cli.console import fail_clearly, write_json
from app.cli.inputs import (
    JsonOption,
    LowerIsBetterOption,
    ScaleOption,
    load_scores,
    score_scale,
)
from app.cli.simulate_design import active_items, tags_of
from app.engine.bank import ItemBank
from app.engine.score_model import short_form
from app.engine.selection.design import WHOLE_BANK, target_weights
from app.errors import InvalidInputError
from app.exchange.item_facts import read_costs

#: Lengths of the form whose error is shown.
_SHOWN = (4, 8, 16, 32, 64, 128)


@fail_clearly
def command(
    train: Annotated[
        Path,
        typer.Option(
            "--train",
            exists=True,
            dir_okay=False,
            readable=True,
            help="Scores of examinees on the whole benchmark, 20 of them at least.",
        ),
    ],
    items: Annotated[int, typer.Option("--items", metavar="N", help="Items of the form.")],
    target: Annotated[
        str, typer.Option(metavar="TAG", help="Score to predict: all, or the items of a tag.")
    ] = WHOLE_BANK,
    ask: Annotated[
        str | None, typer.Option(metavar="TAG,...", help="Take items of these tags only.")
    ] = None,
    tags: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, readable=True, help="CSV item,tag.")
    ] = None,
    item_costs: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            readable=True,
            help="CSV item,cost or item,tokens_in,tokens_out: choose by gain per cost.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="CSV to write: item,weight; its first row, without an item, is the constant.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Deals the folds.")] = 0,
    scale: ScaleOption = None,
    lower_is_better: LowerIsBetterOption = False,
    json: JsonOption = None,
) -> None:
    """Build the fixed form of N items that predicts the score best.

    The predicted score of a new examinee is the constant plus the sum of weight times score over
    the items of the form.
    """
    marks = score_scale(scale, lower_is_better=lower_is_better)
    table = load_scores(train, marks)
    if not 1 <= items <= len(table.items):
        raise InvalidInputError(f"--items: expected 1 to {len(table.items)} items, got {items}.")
    bank = ItemBank.from_intercepts(
        a=np.ones(len(table.items)), intercept=np.zeros(len(table.items)), item_ids=table.items
    )
    known_tags = tags_of(tags, table.items)
    weights = target_weights(bank, {target: 1.0}, known_tags)
    askable = active_items(ask, bank, known_tags)
    if items > np.count_nonzero(askable):
        raise InvalidInputError(
            f"--items: expected at most {np.count_nonzero(askable)}, the items that may be asked, "
            f"got {items}."
        )
    costs = None
    if item_costs is not None:
        costs = read_costs(item_costs.read_bytes(), table.items, item_costs.name)
    learned = learn_scores(
        table.scores,
        {target: weights},
        np.random.default_rng(seed),
        askable=askable,
        costs=costs,
    )
    known = learned.targets[target]
    price = np.where(askable, 1.0 if costs is None else costs, np.inf)
    form = short_form(known, items, price)
    zero, _ = known.predict(form, np.zeros(len(form)))
    gains, _ = known.predict(form, np.eye(len(form)))
    gains = gains - zero
    _, sd = known.predict(form, np.zeros(len(form)))
    half = known.widths.at(len(form)) * sd
    chosen = [
        {"item": table.items[item], "weight": gain}
        for item, gain in zip(form, gains.tolist(), strict=True)
    ]
    document = {
        "target": target,
        "items": chosen,
        "constant": float(zero),
        "half_width95": half,
        "cost": None if costs is None else float(costs[form].sum()),
        "n_examinees": len(table.examinees),
        "error_by_items": {str(n): error for n, error in learned.errors[target].items()},
    }
    if out is not None:
        _write(out, chosen, float(zero))
    write_json(json, document)
    _show(console.err if json == "-" else console.out, half, learned.errors[target])


def _write(path: Path, items: Sequence[Mapping[str, Any]], constant: float) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["item", "weight"])
    writer.writerow(["", repr(constant)])
    writer.writerows([row["item"], repr(row["weight"])] for row in items)
    try:
        path.write_text(text.getvalue(), encoding="utf-8")
    except OSError as exc:
        raise InvalidInputError(f"--out: {path}: cannot be written: {exc.strerror}.") from exc


def _show(screen: Console, half: float, errors: Mapping[int, float]) -> None:
    table = Table("items", "mean error of the predicted score", title="Forms of this benchmark")
    for count, error in errors.items():
        if count in _SHOWN:
            table.add_row(str(count), f"{error:.2%}")
    screen.print(table)
    screen.print(
        f"The form's predicted score holds to +-{half:.2%} for 95 of 100 "
        "examinees like those it was built from.",
        markup=False,
    )

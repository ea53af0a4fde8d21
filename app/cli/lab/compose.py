"""`sextant compose`: the best fixed short form of a benchmark, where adaptive tests do not fit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from app.calibration.multidimensional.score_model import learn_scores
from app.cli.lab import inputs
from app.cli.lab.inputs import load_scores, score_scale
from app.cli.lab.simulate_design import Targeting
from app.cli.servers.connection import asked, path_of
from app.cli.servers.options import also_json, on_server
from app.cli.terminal import console
from app.cli.terminal.console import JsonObject, written
from app.cli.terminal.options import (
    ItemCostsOption,
    TargetOption,
    file_option,
    given,
    output_option,
)
from app.engine.prediction.score_model import ShortForm, compose
from app.engine.prediction.targets import WHOLE_BANK
from app.engine.responses import ResponseTable
from app.errors import InvalidInputError
from app.exchange.item_facts import lm_eval_run, read_costs, write_form
from app.exchange.response_files import ResponseFormat, files_at, sources_of
from sextant_client import AsyncSextant
from sextant_client.models import Model

#: Numbers of items at which the form's error is shown.
_SHOWN = (4, 8, 16, 32, 64, 128)


class _Made(NamedTuple):
    """A form with the keys of its items, its source, and errors by number of items."""

    form: ShortForm
    keys: list[str]
    source: JsonObject
    errors: Mapping[int, float]


@on_server(
    json="Write one JSON object to this file; - is stdout.", names={"/costs": "--item-costs"}
)
def command(
    items: Annotated[
        int, typer.Option("--items", metavar="N", help="Number of items of the form.")
    ],
    train: Annotated[
        Path | None,
        file_option("--train", help="Scores of at least 20 examinees on the whole benchmark."),
    ] = None,
    version: Annotated[
        str | None,
        typer.Option(
            help="Instead of --train: a stored version with several abilities, BANK or BANK/NUMBER."
        ),
    ] = None,
    target: TargetOption = WHOLE_BANK,
    ask: Annotated[
        str | None, typer.Option(metavar="TAG,...", help="Use only items of these tags.")
    ] = None,
    tags: Annotated[Path | None, file_option(help="CSV item,tag.")] = None,
    item_costs: ItemCostsOption = None,
    out: Annotated[
        Path | None,
        output_option(
            dir_okay=False,
            help="CSV file to write: item,weight; the first row, without an item, is the constant.",
        ),
    ] = None,
    lm_eval: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            help="Samples of a run of lm-eval, which tell the numbers of its documents: the form "
            "is then also written as settings for `lm_eval run --config`, beside --out as .yaml.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    scale: inputs.ScaleOption = None,
    lower_is_better: inputs.LowerIsBetterOption = False,
) -> None:
    """Build the fixed form of N items that best predicts the score.

    The predicted score of a new examinee is the constant plus the weighted sum of
    its scores on the items of the form.
    """
    if lm_eval is not None and (out is None or out.suffix == ".yaml"):
        raise InvalidInputError("--lm-eval: give --out, a CSV, beside which the .yaml is written.")
    if (train is None) == (version is None):
        raise InvalidInputError("Give --train, records to learn from, or a stored --version.")
    wanted = Targeting(target=target, ask=ask, tags=tags, item_costs=item_costs)
    if train is not None:
        table = load_scores(train, score_scale(scale, lower_is_better=lower_is_better))
        made = _learned(table, items, wanted, seed)
    else:
        if tags is not None or scale is not None or lower_is_better:
            raise InvalidInputError("--version brings tags and scales along: leave them out.")
        made = _stored(version or "", items, wanted)
    form = made.form
    document: JsonObject = {
        "target": target,
        "items": [
            {"item": key, "weight": weight}
            for key, weight in zip(made.keys, form.weights, strict=True)
        ],
        "constant": form.constant,
        "half_width95": form.half_width,
        "expected_error": form.expected_error,
        "cost": form.cost,
        **made.source,
        "error_by_items": {str(n): error for n, error in made.errors.items()},
    }
    if out is not None:
        with written(f"--out: {out}"):
            out.write_bytes(write_form(made.keys, form.weights, form.constant))
    if out is not None and lm_eval is not None:
        sources, _ = sources_of(files_at([lm_eval]), ResponseFormat.LM_EVAL)
        settings = out.with_suffix(".yaml")
        with written(f"--out: {settings}"):
            settings.write_bytes(lm_eval_run(made.keys, [one for _, one in sources]))
    screen = console.out if also_json(document) else console.err
    _show(screen, form, made.errors)


def _learned(table: ResponseTable, n_items: int, options: Targeting, seed: int) -> _Made:
    if not 1 <= n_items <= len(table.items):
        raise InvalidInputError(f"--items: expected 1 to {len(table.items)} items, got {n_items}.")
    items, target = options.of(table.items), options.target
    if n_items > (most := np.count_nonzero(items.active)):
        raise InvalidInputError(
            f"--items: expected at most {most}, the items that may be asked, got {n_items}."
        )
    askable, costs, rng = items.active, items.costs, np.random.default_rng(seed)
    wanted = {target: items.weights}
    learned = learn_scores(table.scores, wanted, rng, askable=askable, costs=costs)
    form = compose(learned.targets[target], n_items, askable=askable, costs=costs)
    return _Made(
        form=form,
        keys=[table.items[item] for item in form.items],
        source={"n_examinees": len(table.examinees)},
        errors=learned.errors[target],
    )


class _Item(Model):
    key: str
    weight: float


class _Composed(Model):
    items: list[_Item]
    constant: float
    half_width95: float
    cost: float | None
    bank_version_id: str


def _stored(reference: str, items: int, options: Targeting) -> _Made:
    bank, _, number = reference.partition("/")
    target, ask, item_costs = options.target, options.ask, options.item_costs
    content = b"" if item_costs is None else item_costs.read_bytes()

    async def composed(client: AsyncSextant) -> JsonObject:
        path = path_of("banks", bank, "versions", number or "latest")
        costs = None
        if item_costs is not None:
            keys = [item["key"] for item in await client.list_all(f"{path}/items")]
            costs = dict(
                zip(keys, read_costs(content, keys, item_costs.name).tolist(), strict=True)
            )
        body = given(
            items=items,
            target=None if target == WHOLE_BANK else {target: 1.0},
            ask=ask and [name.strip() for name in ask.split(",")],
            costs=costs,
        )
        return await client.request("POST", f"{path}:compose", json=body)

    found = _Composed.model_validate(asked(composed))
    return _Made(
        form=ShortForm(
            items=tuple(range(len(found.items))),
            weights=tuple(item.weight for item in found.items),
            constant=found.constant,
            half_width=found.half_width95,
            cost=found.cost,
        ),
        keys=[item.key for item in found.items],
        source={"bank_version_id": found.bank_version_id},
        errors={},  # the API does not report them
    )


def _show(screen: Console, form: ShortForm, errors: Mapping[int, float]) -> None:
    if errors:
        table = Table("items", "mean error of the score", title="Forms of this benchmark")
        for count, error in errors.items():
            if count in _SHOWN:
                table.add_row(str(count), f"{100 * error:.2f} points")
        screen.print(table)
    screen.print(
        f"The form's score holds to ±{100 * form.half_width:.2f} points for 95 of 100 "
        "examinees like those it was built from."
    )

"""`sextant rank-simulate`: rank models by recorded answers before paying for any call."""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from app.calibration.pipeline.ranking import bank_by_moments, bank_from, learned_from
from app.cli.lab import inputs
from app.cli.lab.inputs import load_numbers, load_responses, note, scaled, score_scale, without
from app.cli.terminal import console
from app.cli.terminal.console import JsonObject, fail_clearly, interval, ranks, write_json
from app.cli.terminal.fields import Fields, option, with_body
from app.cli.terminal.options import (
    RULES,
    HolmOption,
    RankingPresetOption,
    SelectorOption,
    file_option,
)
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.ranking.ranking import Ranking, RankingState
from app.engine.ranking.rules import (
    RANKING_PRESETS,
    RankingBudget,
    RankingPreset,
    RankingRules,
    usual_criterion,
)
from app.engine.ranking.simulation import kendall_tau, simulate_ranking
from app.engine.responses import ResponseTable
from app.engine.stopping import Stop
from app.errors import InvalidInputError
from app.exchange.names import align
from app.printable import percent

_OPTIONS: Fields = {
    **RULES,
    "/budget/items": option(
        int,
        "Maximum number of items for all models together; by default half of --max-items per "
        "model.",
        "--budget-items",
        metavar="N",
    ),
    "/budget/usd": option(float, "Stop at this cost by --costs, US dollars.", "--budget-usd"),
}


@fail_clearly
@with_body(_OPTIONS)
def command(
    body: dict[str, Any],
    responses: inputs.ResponsesOption,
    train: Annotated[
        Path,
        file_option(help="Scores of other models, to calibrate the items from."),
    ],
    preset: RankingPresetOption = None,
    holm: HolmOption = False,
    costs: Annotated[
        Path | None,
        file_option(
            help="CSV of models (first column) and a column cost...: cost of an item for each."
        ),
    ] = None,
    scale: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LO HI", help="Range of the scores; by default that of --train."),
    ] = None,
    selector: SelectorOption = None,
    concurrency: Annotated[
        int, typer.Option(metavar="K", min=1, help="Items in flight, of all models together.")
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    json: inputs.JsonOption = None,
) -> None:
    """Rank models by their recorded answers, with as few items as possible.

    An item without a score of a model cannot be asked of that model.
    """
    budget = body.pop("budget", {})
    if "usd" in budget and costs is None:
        raise InvalidInputError("--budget-usd needs --costs, what an item of each model costs.")
    published = None if preset is None else RANKING_PRESETS[RankingPreset(preset)]
    rules = RankingRules(**(published.rules if published else {}), **body, holm=holm)
    moments = published is not None
    field = Field.load(responses, train, scale, moments=moments)
    each = _costs(costs, field.names, budget.get("usd"), rules.min_items)
    asking = {
        "selection": {"criterion": usual_criterion(field.bank).value},
        **(published.asking if published else {}),
        **({"selection": {"criterion": selector}} if selector else {}),
    }
    design = Design.from_dict({"preset": "ability", **asking})
    others = align(field.others, field.bank).scores
    correction = learned_from(
        others, field.bank, design, max_items=rules.max_items, seed=seed, moments=moments
    )
    test = design.build(field.bank, correction=correction)
    ranking = Ranking(
        # No model is asked an item that it has no recorded score of.
        tests=tuple(replace(test, pool=test.pool.narrowed(~np.isnan(row))) for row in field.scores),
        rules=rules,
        budget=RankingBudget(**{"items": rules.usual_budget(len(field.names)), **budget}),
        costs=each,
    )
    state, stop = simulate_ranking(ranking, list(field.scores), seed=seed, concurrency=concurrency)
    screen = console.err if json == "-" else console.out
    document = _report(field, ranking, state, stop, screen)
    write_json(json, {**document, "rules": asdict(rules), "seed": seed})


def _costs(
    path: Path | None, names: tuple[str, ...], budget_usd: float | None, min_items: int
) -> tuple[float, ...]:
    """Cost of an item for each model; an empty tuple where no file gives costs."""
    if path is None:
        return ()
    costs = load_numbers(path, "--costs: expected a CSV file", "cost", names)
    warm_up = min_items * float(costs.sum())
    if budget_usd is not None and budget_usd < warm_up:
        raise InvalidInputError(
            f"The budget of {budget_usd:g} usd is too small for the warm-up: {min_items} items of "
            f"each model cost {warm_up:g}."
        )
    return tuple(costs.tolist())


@dataclass(frozen=True, slots=True)
class Field:
    """The models to rank, and the bank to rank them on.

    Attributes:
        names: Names of the models.
        others: Scores of the other models, in [0, 1].
        bank: Items calibrated from the other models.
        scores: Scores of the ranked models on the bank's items, in [0, 1]; NaN where missing.
        means: Mean of all recorded scores of each model, which gives the true order. The scale
            runs from 0 to 1; scores beyond its ends count as they are.
        n_recorded: Number of recorded scores of the ranked models.
    """

    names: tuple[str, ...]
    others: ResponseTable
    bank: ItemBank
    scores: FloatArray
    means: FloatArray
    n_recorded: int

    @classmethod
    def load(
        cls,
        responses: Path,
        train: Path,
        scale: tuple[float, float] | None,
        *,
        moments: bool = False,
    ) -> "Field":
        """Read both files and calibrate the items."""
        ranked = recorded = load_responses(responses, score_range=None)
        trained = load_responses(train, score_range=None)
        others = without(trained, ranked.examinees)  # ranked models stay out of the calibration
        if n_ranked := trained.n_examinees - others.n_examinees:
            note(f"{n_ranked} models of --train are ranked themselves and were not learned from.")
        if others.n_examinees < 2:
            raise InvalidInputError(
                "--train: expected at least 2 models that are not ranked, got "
                f"{others.n_examinees}."
            )
        if scale is None:
            seen = others.scores[~np.isnan(others.scores)]
            scale = (float(seen.min()), float(seen.max()))
            if scale[0] == scale[1]:
                raise InvalidInputError("All scores of --train are the same: give --scale LO HI.")
            ranked = _held_within(ranked, scale, responses.name)
        unit = score_scale(scale, lower_is_better=False)
        others, ranked = scaled(others, unit), scaled(ranked, unit)
        bank = bank_by_moments(others) if moments else bank_from(others)
        aligned = align(ranked, bank)
        silent = np.isnan(aligned.scores).all(axis=1)
        if silent.any():
            raise InvalidInputError(
                f"{responses.name}: {ranked.examinees[int(silent.argmax())]!r} has no score on "
                "an item that could be calibrated."
            )
        if left_out := len(ranked.items) - len(aligned.match.found):
            note(f"{left_out} items of {responses.name} could not be calibrated: never asked.")
        return cls(
            ranked.examinees,
            others,
            bank,
            aligned.scores,
            (np.nanmean(recorded.scores, axis=1) - scale[0]) / (scale[1] - scale[0]),
            ranked.n_answers,
        )


#: Largest share of scores outside the training range; a larger share means a different scale.
_MOST_BEYOND = 0.2


def _held_within(table: ResponseTable, scale: tuple[float, float], name: str) -> ResponseTable:
    """Clip scores to the range of the training models' scores."""
    lo, hi = scale
    beyond = int(np.count_nonzero((table.scores < lo) | (table.scores > hi)))
    if beyond > _MOST_BEYOND * table.n_answers:
        raise InvalidInputError(
            f"{name}: {beyond} of {table.n_answers} scores lie outside {lo:g} to {hi:g}, the range "
            "of --train: expected both files on one scale; --scale LO HI gives its true range."
        )
    if beyond:
        note(
            f"{name}: {beyond} scores lie outside {lo:g} to {hi:g}, the range of --train, and were "
            "moved to its ends; --scale LO HI gives the true range."
        )
    return ResponseTable(table.examinees, table.items, np.clip(table.scores, lo, hi))


def _report(
    field: Field, ranking: Ranking, state: RankingState, stop: Stop, screen: Console
) -> JsonObject:
    """Print the ranking, and return it as JSON."""
    found = ranking.ranks(state)
    order: list[JsonObject] = []
    names, costs = field.names, ranking.costs or (1.0,) * len(field.names)
    ties = [[names[member] for member in tie] for tie in found.ties]
    group_of = {member: number for number, group in enumerate(found.groups, 1) for member in group}
    tau, share = kendall_tau(found.order, field.means), state.n_asked / field.n_recorded
    table = Table("rank", "model", "theta", "95 % interval", "items", "score")
    for member in found.order:
        told = ranking.tests[member].estimate(state.members[member])
        lo, hi = found.rank_ranges[member]
        n_items, score = state.members[member].n_asked, float(field.means[member])
        order.append(
            {
                "examinee": names[member],
                "rank_lo": lo,
                "rank_hi": hi,
                "group": group_of[member],
                "theta": told.theta,
                "se": told.se,
                "ci": [told.lo, told.hi],
                "items": n_items,
                "full_score": score,
            }
        )
        table.add_row(
            ranks(lo, hi),
            names[member],
            f"{told.theta:.2f}",
            interval(told),
            f"{n_items}",
            f"{score:.3f}",
        )
    screen.print(table)
    for tie in ties:
        screen.print(f"Tied: {', '.join(tie)}.")
    screen.print(
        f"{state.n_asked} items, {percent(share, 1)} of the recorded scores; tau {tau:.2f}. "
        f"{stop.detail}"
    )
    return {
        "ranking": [names[member] for member in found.order],
        "tau": tau,
        "items_total": state.n_asked,
        "items_per_examinee": {
            name: test.n_asked for name, test in zip(names, state.members, strict=True)
        },
        "share_of_full": share,
        "cost_total": sum(
            test.n_asked * cost for test, cost in zip(state.members, costs, strict=True)
        ),
        "pairs": [
            {
                "a": names[pair.above],
                "b": names[pair.below],
                "p_a_above_b": pair.p_above,
                "decided": pair.decided,
                "p_value": pair.p_value,
            }
            for pair in found.pairs
        ],
        "ties": ties,
        "order": order,
        "stop_reason": stop.reason.value,
        "stop_detail": stop.detail,
    }

"""Error rates of a ranking of models stronger than all reference models of its bank.

    uv run python benchmarks/ranking_transfer.py [--data ../shared/data/transfer] [--draws 10]

Every response matrix of the folder (CSV, CSV.gz or Parquet; one row per model) is learned from in
three ways: from a random four fifths, without the strongest fifth, and from the weakest half alone.
Four of the other models (in the last way of the strongest 30 %) are ranked by ability and the usual
rules, with answers from their own rows. A decided pair is right when the abilities by the whole
rows have the same order; agreement with the mean scores is shown beside. Equal models are two
copies of one of the four, each with its own answers, drawn from curves fitted to all models of the
matrix at the position of its row.
"""

import argparse
import os
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from transfer import matrices

from app.calibration.multidimensional.score_curves import fit_curves, strongest_first
from app.calibration.pipeline.ranking import bank_from, learned_from
from app.engine.design.design import Design
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.ranking.ranking import Ranking
from app.engine.ranking.rules import RankingBudget, RankingRules, usual_criterion
from app.engine.ranking.simulation import kendall_tau, simulate_ranking
from app.engine.responses import ResponseTable
from app.exchange.names import align

MEMBERS = 4
#: Shares of the models, weakest first: learned from up to the first, ranked from the second on.
SPLITS = {"random": (0.8, 0.8), "strongest fifth": (0.8, 0.8), "weakest half": (0.5, 0.7)}


def prepared(scores, split, rng):
    """Return a test learned from some models, and rows of the others and of all on its items."""
    items = tuple(f"q{i}" for i in range(scores.shape[1]))

    def table(rows):
        return ResponseTable(tuple(f"m{i}" for i in rows), items, scores[rows])

    order = strongest_first(scores)[::-1]
    if split == "random":
        order = rng.permutation(order)
    known, ranked = (int(share * len(order)) for share in SPLITS[split])
    bank = bank_from(table(order[:known]))
    design = Design.from_dict(
        {"preset": "ability", "selection": {"criterion": usual_criterion(bank).value}}
    )
    mine = align(table(order[:known]), bank).scores
    most = RankingRules().max_items
    learned = learned_from(mine, bank, design, max_items=most, seed=0)
    test = design.build(bank, correction=learned)
    return test, align(table(order[ranked:]), bank).scores, align(table(order), bank).scores


def twins(scores, row, rng):
    """Return two examinees like that of a row."""
    curves = fit_curves(scores)
    chances = curves.expected(curves.locate(np.arange(row.size), row))
    return [(rng.random(row.size) < chances).astype(float) for _ in range(2)]


def ranked(test, rows, seed):
    """Return the ranks of some examinees by the usual rules."""
    rules = RankingRules()
    budget = RankingBudget(items=rules.usual_budget(len(rows)))
    ranking = Ranking(tests=(test,) * len(rows), rules=rules, budget=budget)
    state, _ = simulate_ranking(ranking, rows, seed=seed)
    return ranking.ranks(state)


def show(name, found):
    right, by_score = (
        np.mean(found[key]) if found[key] else np.nan for key in ("right", "right by score")
    )
    print(
        f"{name}: tau {np.mean(found['tau']):.2f}, decided {np.mean(found['decided']):.1%} of "
        f"{len(found['decided'])} pairs, right {right:.1%} (by score {by_score:.1%}); equal models "
        f"tied {np.mean(found['tied']):.1%} of {len(found['tied'])}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/transfer"))
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=(), help="names of matrices; all by default")
    arguments = parser.parse_args()
    total = defaultdict(lambda: defaultdict(list))
    for nth, (name, scores) in enumerate(matrices(arguments.data, arguments.only)):
        for split in SPLITS:
            rng = np.random.default_rng([nth, len(split)])
            test, rows, everybody = prepared(scores, split, rng)
            thetas, _ = whole_bank_abilities(test.bank, rows)
            found = defaultdict(list)
            for draw in range(arguments.draws):
                chosen = rng.choice(len(rows), MEMBERS, replace=False)
                field, truths = list(rows[chosen]), thetas[chosen]
                means = np.array([row.mean() for row in field])
                ranks = ranked(test, field, draw)
                found["tau"].append(kendall_tau(ranks.order, means))
                for pair in ranks.pairs:
                    if apart := means[pair.above] - means[pair.below]:
                        found["decided"].append(pair.decided)
                        if pair.decided:
                            found["right"].append(truths[pair.above] > truths[pair.below])
                            found["right by score"].append(apart > 0)
                (pair,) = ranked(test, twins(everybody, field[0], rng), draw).pairs
                found["tied"].append(not pair.decided)
            show(f"{name}, {split}", found)
            for key, values in found.items():
                total[split][key] += values
    print()
    for split, found in total.items():
        show(split, found)


if __name__ == "__main__":
    main()

"""Questions saved by an adaptive ranking, and its error rates.

On a response matrix (`--responses`, models x items): 4 models are held out, the items are
calibrated from the others, and the 4 are ranked; Kendall's tau is with the order of their full mean
scores. Compared on the same banks and models:

- random samples of as many items in all, one per model, ordered by mean score and by theta;
- the published ranking (`continuous-paper`), on a bank calibrated as published;
- tests of fixed length, as long as the ranking's longest, with the same or with own items;
- and the fixed length that reaches the ranking's tau.

An undecided pair is a tie. The bootstrap tells whether it truly is one: the 95 % interval of the
difference of both full means, over the items, includes zero.

Differences of tau are paired by split, so their standard error is far below that of a tau. All
splits share the same few models: the error describes other items, not other models.

On simulated binary answers: the cost of two expensive endpoints among four against equal
allocation, how often two copies of a model tie, and the family-wise error of six equal models.

    uv run python benchmarks/ranking.py [--responses F] [--splits 40] [--budget 200]
        [--simulations 500]
"""

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from app.calibration.pipeline.ranking import bank_by_moments, bank_from
from app.cli.lab.inputs import load_responses
from app.cli.lab.papers.continuous import ties
from app.engine import AdaptiveTest, Design, ItemBank
from app.engine.bank import FloatArray
from app.engine.ranking.ranking import Ranking
from app.engine.ranking.rules import (
    RANKING_PRESETS,
    RankingBudget,
    RankingPreset,
    RankingRules,
    usual_criterion,
)
from app.engine.ranking.simulation import kendall_tau, simulate_ranking
from app.engine.responses import ResponseTable
from app.engine.simulation.simulate import draw_scores

HELD_OUT = 4


@dataclass(frozen=True, slots=True)
class Split:
    """Held-out models on a bank calibrated from the others."""

    seed: int
    bank: ItemBank
    rows: FloatArray
    means: FloatArray
    n_recorded: int
    tied: frozenset[tuple[int, int]]
    as_published: ItemBank
    published_rows: FloatArray

    def published(self, limit: RankingBudget) -> tuple["Split", Ranking]:
        """Return the published ranking, and the split on its bank."""
        preset = RANKING_PRESETS[RankingPreset.CONTINUOUS_PAPER]
        own = replace(self, bank=self.as_published, rows=self.published_rows)
        tests = own.tests(**preset.asking)
        return own, Ranking(tests=tests, rules=RankingRules(**preset.rules), budget=limit)

    def tests(self, criterion: str = "random", **asking: object) -> tuple[AdaptiveTest, ...]:
        """Return one test per model, restricted to items with a score."""
        design = {"preset": "ability", "selection": {"criterion": criterion}, **asking}
        test = Design.from_dict(design).build(self.bank)
        return tuple(replace(test, pool=test.pool.narrowed(~np.isnan(row))) for row in self.rows)


@dataclass
class Line:
    """Figures of one method over the splits."""

    name: str
    tau: list[float] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    longest: list[int] = field(default_factory=list)
    share: list[float] = field(default_factory=list)
    decided: list[bool] = field(default_factory=list)
    right: list[bool] = field(default_factory=list)
    tied: list[bool] = field(default_factory=list)

    def show(self) -> None:
        """Print one line of the table."""
        tau = np.array(self.tau)
        error = tau.std() / np.sqrt(len(tau))
        called, tied = ~np.array(self.decided, bool), np.array(self.tied, bool)
        found = np.sum(called & tied)
        print(
            f"{self.name:44s} {tau.mean():.3f} +- {error:.3f} {np.mean(self.items):7.1f} "
            f"{np.mean(self.share):6.1%} {np.mean(self.longest):8.1f} "
            + (
                f"{np.mean(self.decided):8.0%} {np.mean(self.right):7.1%} "
                f"{found / max(called.sum(), 1):5.2f} {found / max(tied.sum(), 1):6.2f}"
                if self.decided and any(self.decided)
                else f"{'-':>8} {'-':>7}"
            )
        )

    def beside(self, other: "Line") -> str:
        """Return how much higher tau is than by another method on the same splits."""
        apart = np.array(self.tau) - np.array(other.tau)
        error = apart.std() / np.sqrt(len(apart))
        saved = 1 - np.sum(self.items) / np.sum(other.items)
        return f"tau {apart.mean():+.3f} +- {error:.3f}, {saved:.0%} fewer items"


def splits(table: ResponseTable, count: int) -> Iterator[Split]:
    """Return choices of the held-out models, evenly over all of them."""
    n = len(table.examinees)
    chosen = list(itertools.combinations(range(n), HELD_OUT)) if n <= 30 else None
    lo, hi = np.nanmin(table.scores), np.nanmax(table.scores)
    scores = (table.scores - lo) / (hi - lo)
    for number in range(count):
        rng = np.random.default_rng([7, number])
        if chosen is not None:
            held = list(chosen[number * len(chosen) // count])
        else:
            held = rng.choice(n, HELD_OUT, replace=False).tolist()
        others = [row for row in range(n) if row not in held]
        names = tuple(table.examinees[row] for row in others)
        bank = bank_from(ResponseTable(names, table.items, scores[others]))
        at = {item: column for column, item in enumerate(table.items)}
        columns = [at[item] for item in bank.item_ids]
        full = scores[held]
        published = bank_by_moments(ResponseTable(names, table.items, scores[others]))
        yield Split(
            number,
            bank,
            full[:, columns],
            np.nanmean(full, axis=1),
            int(np.count_nonzero(~np.isnan(full))),
            ties(full, rng),
            published,
            full[:, [at[item] for item in published.item_ids]],
        )


def take_down(line: Line, split: Split, ranking: Ranking) -> int:
    """Run one ranking and record its figures; return the longest test."""
    state, _ = simulate_ranking(ranking, list(split.rows), seed=split.seed)
    ranks = ranking.ranks(state)
    line.tau.append(kendall_tau(ranks.order, split.means))
    line.items.append(state.n_asked)
    line.longest.append(max(member.n_asked for member in state.members))
    line.share.append(state.n_asked / split.n_recorded)
    for pair in ranks.pairs:
        line.decided.append(pair.decided)
        line.tied.append((pair.above, pair.below) in split.tied)
        if pair.decided:
            line.right.append(bool(split.means[pair.above] > split.means[pair.below]))
    return line.longest[-1]


def fixed(split: Split, criterion: str, length: int, *, shared: bool) -> Ranking:
    """Run tests of one length for all models, whatever they show."""
    length = min(length, *(int(np.count_nonzero(~np.isnan(row))) for row in split.rows))
    rules = RankingRules(min_items=length, max_items=length, shared_items=shared)
    return Ranking(tests=split.tests(criterion), rules=rules)


def by_mean_score(line: Line, split: Split, length: int) -> None:
    """Rank by the mean score of random items, each model with its own."""
    rng = np.random.default_rng([split.seed, 1])
    means = []
    for row in split.rows:
        known = np.flatnonzero(~np.isnan(row))
        means.append(row[rng.choice(known, min(length, len(known)), replace=False)].mean())
    order = np.argsort(-np.array(means), kind="stable").tolist()
    line.tau.append(kendall_tau(order, split.means))
    line.items.append(length * len(means))
    line.longest.append(length)
    line.share.append(line.items[-1] / split.n_recorded)


def on_records(path: Path, count: int, budget: int) -> None:
    """Print the table of a response matrix."""
    table = load_responses(path, score_range=None)
    lines: dict[str, Line] = {}

    def line(name: str) -> Line:
        return lines.setdefault(name, Line(name))

    curves: dict[str, dict[int, Line]] = {
        "own random items": {},
        "shared random items": {},
        "own most informative items": {},
    }
    for split in splits(table, count):
        usual = usual_criterion(split.bank).value
        other = "random" if usual != "random" else "maximum_information"
        rules = RankingRules()
        limit = RankingBudget(items=budget)
        longest = take_down(
            line(f"ranking ({usual}, shared items)"),
            split,
            Ranking(tests=split.tests(usual), rules=rules, budget=limit),
        )
        alone = replace(rules, shared_items=False)
        take_down(
            line(f"ranking ({usual}, own items)"),
            split,
            Ranking(tests=split.tests(usual), rules=alone, budget=limit),
        )
        take_down(
            line(f"ranking ({other}, shared items)"),
            split,
            Ranking(tests=split.tests(other), rules=rules, budget=limit),
        )
        own, published = split.published(limit)
        take_down(line("as published (continuous-paper)"), own, published)
        equal = lines[f"ranking ({usual}, shared items)"].items[-1] // HELD_OUT
        by_mean_score(line("as many random items, by mean score"), split, equal)
        take_down(
            line("as many random items, by theta"),
            split,
            fixed(split, "random", equal, shared=False),
        )
        take_down(
            line("as many shared random items, by theta"),
            split,
            fixed(split, "random", equal, shared=True),
        )
        take_down(
            line("longest for all, own random items"),
            split,
            fixed(split, "random", longest, shared=False),
        )
        take_down(
            line("longest for all, own most informative items"),
            split,
            fixed(split, "maximum_information", longest, shared=False),
        )
        take_down(
            line("longest for all, shared random items"),
            split,
            fixed(split, "random", longest, shared=True),
        )
        for name, curve in curves.items():
            criterion = "random" if "random" in name else "maximum_information"
            for length in (20, 30, 40, 50, 60, 70, 80, 100, 120):
                curve.setdefault(length, Line(name))
                asked = fixed(split, criterion, length, shared="shared" in name)
                take_down(curve[length], split, asked)
    print(f"\n{path.name}: {count} times {HELD_OUT} models held out of {len(table.examinees)}")
    print(
        f"{'':44s} {'tau':>14s} {'items':>8s} {'share':>6s} {'longest':>8s} decided   right "
        "tie P  tie R"
    )
    for each in lines.values():
        each.show()
    ranked, *others = lines.values()
    for each in others:
        print(f"{ranked.name} beside {each.name}: {ranked.beside(each)}")
    for name, curve in curves.items():
        needed = equal_tau(curve, float(np.mean(ranked.tau)))
        saving = 1 - np.mean(ranked.items) / (HELD_OUT * needed)
        print(
            f"fixed length for the same tau, {name}: {needed:.0f} each, {HELD_OUT * needed:.0f} in "
            f"all; the ranking takes {saving:.0%} fewer"
        )


def equal_tau(curve: dict[int, Line], tau: float) -> float:
    """Return the length at which a rising fit of tau in the log of the length reaches `tau`."""
    lengths = np.log(list(curve))
    taus = np.array([np.mean(line.tau) for line in curve.values()])
    slope, start = np.polyfit(lengths, taus, 1)
    return float(np.exp((tau - start) / slope)) if slope > 0 else float("nan")


def simulated_bank() -> ItemBank:
    """Return 400 items of a 2PL."""
    rng = np.random.default_rng(0)
    return ItemBank.from_difficulties(a=rng.lognormal(0, 0.3, 400), b=rng.normal(0, 1, 400))


def costs(bank: ItemBank, simulations: int) -> None:
    """Rank two cheap and two expensive endpoints until all is decided or all items are asked.

    The equal allocation gives all members a test as long as the longest by cost.
    """
    test = Design.from_dict({"preset": "ability"}).build(bank)
    price = np.array([1.0, 1.0, 10.0, 10.0])
    thetas = [-0.5, 0.1, 0.6, 0.0]
    found: dict[str, list[tuple[float, float, float, float]]] = {}
    for number in range(simulations):
        answers = list(draw_scores(bank, thetas, np.random.default_rng([12, number])))
        longest = 0
        for name in ("by cost", "cost unknown", "equal"):
            ranking = Ranking(
                tests=(test,) * 4,
                rules=RankingRules(min_items=longest, max_items=longest)
                if name == "equal"
                else RankingRules(),
                costs=tuple(price.tolist()) if name == "by cost" else (),
            )
            state, _ = simulate_ranking(ranking, answers, seed=number)
            asked = np.array([member.n_asked for member in state.members])
            ranks = ranking.ranks(state)
            longest = longest or int(asked.max())
            found.setdefault(name, []).append(
                (
                    float(asked @ price),
                    float(asked.sum()),
                    kendall_tau(ranks.order, np.array(thetas)),
                    float(np.mean([pair.decided for pair in ranks.pairs])),
                )
            )
    print("\ntwo endpoints at 1 and two at 10 an item, thetas -0.5, 0.1, 0.6, 0.0")
    print(f"{'allocation':14s} {'cost':>6s} {'items':>6s} {'tau':>5s} decided")
    equal = np.mean([cost for cost, *_ in found["equal"]])
    for name, figures in found.items():
        cost, items, tau, decided = np.mean(figures, axis=0)
        print(
            f"{name:14s} {cost:6.0f} {items:6.0f} {tau:5.2f} {decided:7.0%}   "
            f"saved against equal: {1 - cost / equal:.0%}"
        )


def errors(bank: ItemBank, simulations: int) -> None:
    """Print how often copies tie, and how often equal models are separated."""
    test = Design.from_dict({"preset": "ability"}).build(bank)
    tied = {"identical answers": 0, "answers of their own": 0}
    for number in range(simulations):
        rng = np.random.default_rng([13, number])
        low, one, other, high = draw_scores(bank, [-1.2, 0.0, 0.0, 1.2], rng)
        for name, copy in (("identical answers", one), ("answers of their own", other)):
            ranking = Ranking(
                tests=(test,) * 4, rules=RankingRules(), budget=RankingBudget(items=200)
            )
            state, _ = simulate_ranking(ranking, [low, one, copy, high], seed=number)
            tied[name] += any({1, 2} <= set(tie) for tie in ranking.ranks(state).ties)
    print(f"\ntwo copies among four models, {simulations} simulations: reported as a tie")
    for name, count in tied.items():
        print(f"  {name}: {count / simulations:.1%}")
    print(f"six equal models, {simulations} simulations, confidence 0.95")
    for holm in (False, True):
        wrong = 0
        for number in range(simulations):
            ranking = Ranking(
                tests=(test,) * 6, rules=RankingRules(holm=holm), budget=RankingBudget(items=300)
            )
            answers = list(draw_scores(bank, [0.3] * 6, np.random.default_rng([11, number])))
            state, _ = simulate_ranking(ranking, answers, seed=number)
            wrong += any(pair.decided for pair in ranking.ranks(state).pairs)
        name = "with Holm" if holm else "without Holm"
        print(f"  {name}: some pair told apart in {wrong / simulations:.1%}")


def main() -> None:
    """Run everything, or the parts selected by the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--responses", type=Path)
    parser.add_argument("--splits", type=int, default=40)
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--simulations", type=int, default=500)
    options = parser.parse_args()
    if options.responses is not None:
        on_records(options.responses, options.splits, options.budget)
    if options.simulations:
        bank = simulated_bank()
        costs(bank, max(options.simulations // 5, 1))
        errors(bank, options.simulations)


if __name__ == "__main__":
    main()

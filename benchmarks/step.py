"""Cost of one step of an adaptive test, compared with catsim in one run.

    .venv/bin/python benchmarks/step.py

A step is the selection of the next item and the update of theta with its answer. Both programs get
the same 3PL bank and answer the items they select by the same rule. Times are medians over the
steps of tests of 40 items; the selection is not random, so the generator is shown separately and
not part of the step. A step of a test for the score, by score curves, is timed too, with four items
in flight: selecting, sampling and locating. Index cells are visited beforehand, because one index
serves all tests on a bank; the cost of filling them is shown separately.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from catsim.estimation import NumericalSearchEstimator
from catsim.item_bank import ItemBank as CatsimBank
from catsim.selection import MaxInfoSelector
from rich.console import Console
from rich.table import Table
from transfer import score_test

from app.engine.adaptive import AdaptiveTest, step_rng
from app.engine.bank import ItemBank
from app.engine.design.design import Design
from app.engine.information_index import CELL_WIDTH, InformationIndex
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.prediction.score_curves import ScoreCurves
from app.engine.selection.base import Ask
from app.engine.state import Response

SMALL, LARGE = 5_600, 109_564
ITEMS, IN_FLIGHT = 40, 4
MICRO = 1e6

Answers = Callable[[int], float]


def make_bank(n_items: int) -> ItemBank:
    rng = np.random.default_rng(7)
    return ItemBank.from_difficulties(
        a=rng.lognormal(0.3, 0.5, n_items),
        b=rng.normal(0.0, 1.2, n_items),
        c=rng.uniform(0.0, 0.35, n_items),
    )


def answers_of(bank: ItemBank, seed: int) -> Answers:
    rng = np.random.default_rng(seed)
    right = rng.random(bank.n_items) < bank.expected_score(rng.normal())
    return lambda item: float(right[item])


def run_sextant(test: AdaptiveTest, answers: Answers, seed: int) -> list[tuple[float, ...]]:
    """Return seconds of each step of one test: generator, ask, tell."""
    spent: list[tuple[float, ...]] = []
    state = test.start()
    for _ in range(ITEMS):
        t0 = time.perf_counter()
        rng = step_rng(seed, state)
        t1 = time.perf_counter()
        step = test.ask(state, rng)
        t2 = time.perf_counter()
        assert isinstance(step, Ask)
        response = Response(step.item, answers(step.item))
        t3 = time.perf_counter()
        state = test.tell(state.with_pending(step.item), response)
        t4 = time.perf_counter()
        spent.append((t1 - t0, t2 - t1, t4 - t3, t2 - t1 + t4 - t3))
    return spent


def run_catsim(bank: CatsimBank, answers: Answers) -> list[float]:
    """Return seconds of each step of one test."""
    selector, estimator = MaxInfoSelector(), NumericalSearchEstimator()
    items: list[int] = []
    scores: list[bool] = []
    spent: list[float] = []
    theta = 0.0
    for _ in range(ITEMS):
        t0 = time.perf_counter()
        item = selector.select(item_bank=bank, administered_items=items, est_theta=theta)
        t1 = time.perf_counter()
        assert item is not None
        items.append(int(item))
        scores.append(answers(int(item)) > 0.5)
        t2 = time.perf_counter()
        theta = estimator.estimate(
            item_bank=bank, administered_items=items, response_vector=scores, est_theta=theta
        )
        spent.append(time.perf_counter() - t2 + t1 - t0)
    return spent


def make_curves(n_items: int, abilities: int) -> ScoreCurves:
    rng = np.random.default_rng(8)
    slopes = np.vstack(
        [rng.lognormal(0.0, 0.3, n_items), rng.normal(0.0, 0.2, (abilities - 1, n_items))]
    )
    return ScoreCurves(slopes, rng.normal(0.0, 1.2, n_items))


def run_score(test: AdaptiveTest, seed: int, in_flight: int) -> list[float]:
    """Return seconds of each step, ask and tell, of one test for a score."""
    spent, rng = [], np.random.default_rng(seed)
    state = test.start()
    for _ in range(ITEMS + in_flight):
        t0 = time.perf_counter()
        step = test.ask(state, step_rng(seed, state))
        assert isinstance(step, Ask)
        state = state.with_pending(step.item, step.probability)
        if len(state.pending) == in_flight:
            state = test.tell(state, Response(state.pending[0], float(rng.random() < 0.6)))
            spent.append(time.perf_counter() - t0)
    return spent


def fill_index(bank: ItemBank) -> tuple[float, int]:
    """Return seconds to fill all cells of an index between -4 and 4 logits, and their number."""
    index = InformationIndex(bank)
    thetas = np.arange(-4.0, 4.0, CELL_WIDTH) + CELL_WIDTH / 2
    started = time.perf_counter()
    for theta in thetas.tolist():
        index.best(theta)
    return time.perf_counter() - started, thetas.size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", type=int, default=40, help="tests of Sextant per bank size")
    parser.add_argument("--catsim-tests", type=int, default=3, help="tests of catsim per bank size")
    arguments = parser.parse_args()
    table = Table(title=f"One step, median over tests of {ITEMS} items, in microseconds")
    for column in ("items", "rng", "ask", "tell", "step", "catsim", "catsim / step"):
        table.add_column(column, justify="right")
    steps: dict[int, float] = {}
    notes = []
    for n_items in (SMALL, LARGE):
        bank = make_bank(n_items)
        design = {"preset": "ability", "stopping": {"se": None, "max_items": ITEMS + 1}}
        test = Design.from_dict(design).build(bank)
        for seed in range(arguments.tests):
            run_sextant(test, answers_of(bank, seed), seed)
        ours = [
            step
            for seed in range(arguments.tests)
            for step in run_sextant(test, answers_of(bank, seed), seed)
        ]
        rng, ask, tell, steps[n_items] = (
            statistics.median(part) for part in zip(*ours, strict=True)
        )
        peer = CatsimBank(np.column_stack([bank.a, bank.b, bank.c, bank.d]))
        catsim = statistics.median(
            step
            for seed in range(arguments.catsim_tests)
            for step in run_catsim(peer, answers_of(bank, seed))
        )
        row = [rng, ask, tell, steps[n_items], catsim]
        ratio = f"{catsim / steps[n_items]:.0f}x"
        table.add_row(f"{n_items:,}", *(f"{seconds * MICRO:.1f}" for seconds in row), ratio)
        seconds, cells = fill_index(bank)
        notes.append(
            f"{n_items:,} items: filling {cells} index cells once took {seconds:.2f} s, "
            f"{seconds / cells * 1e3:.2f} ms each."
        )
    for n_items, abilities in ((SMALL, 9), (LARGE, 5)):
        curves = make_curves(n_items, abilities)
        score = score_test(LearnedCurves(curves=curves, n_reference=100), 2 * ITEMS)
        took = statistics.median(
            seconds for seed in range(4) for seconds in run_score(score, seed, IN_FLIGHT)
        )
        notes.append(
            f"{n_items:,} items, a score by curves of {abilities} abilities, {IN_FLIGHT} in "
            f"flight: {took * 1e3:.2f} ms a step."
        )
    console = Console()
    console.print(table)
    for note in notes:
        console.print(note)
    console.print(f"{LARGE:,} items cost {steps[LARGE] / steps[SMALL]:.2f}x the step of {SMALL:,}.")


if __name__ == "__main__":
    main()

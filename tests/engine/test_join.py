"""Checks whether answers tell a correct join of parameters and questions from a wrong one."""

import csv
import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm, spearmanr

from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.inference.join import _Weighed, check_join
from app.engine.models.base import BoolArray
from app.engine.selection.base import Ask
from app.engine.state import Response
from app.exchange.catalog.build import order_of
from app.exchange.catalog.entry import Entry, read_catalogue
from app.exchange.parameters import read_parameters

THETAS = np.array([-2.0, -2 / 3, 2 / 3, 2.0])
TRIES = 100


@pytest.fixture(scope="module")
def gsm8k(shared_data: Path) -> tuple[ItemBank, ItemBank]:
    """Return the parameters of GSM8K, and in the same order those of the questions in the rows of
    the data set, which differ where rows are joined as they stand."""
    bank = read_parameters(
        (shared_data / "real/gsm8k_irt_item_parameters_combined.csv").read_bytes()
    )
    entry = read_catalogue()["gsm8k"].entry
    assert isinstance(entry, Entry)
    order = order_of(entry.join, entry.questions.rows)
    places = [int(name[1:]) - 1 for name in bank.item_ids]
    true_of_row = {order[place]: at for at, place in enumerate(places)}
    wrong = [(at, true_of_row[place]) for at, place in enumerate(places) if place in true_of_row]
    held, true = np.array(wrong).T
    return bank.take(held), bank.take(true)


def drawn(true: ItemBank, rng: np.random.Generator, n: int) -> FloatArray:
    """Draw answers of four examinees, each to `n` questions of its own."""
    scores = (rng.random((4, true.n_items)) < true.expected_score(THETAS)).astype(float)
    for row in scores:
        row[rng.permutation(true.n_items)[n:]] = np.nan
    return scores


def test_a_wrong_order_is_caught_and_no_right_one(gsm8k: tuple[ItemBank, ItemBank]) -> None:
    held, true = gsm8k
    rng = np.random.default_rng(1)
    wrong = [check_join(held, drawn(true, rng, 100)) for _ in range(TRIES)]
    right = [check_join(held, drawn(held, rng, 100)) for _ in range(TRIES)]
    assert sum(check.verdict in ("broken", "doubtful") for check in wrong) >= 95
    assert sum(check.verdict in ("broken", "doubtful") for check in right) <= 2
    assert sum(check.verdict == "holds" for check in right) >= 95
    assert np.mean([check.power for check in wrong]) > 0.95
    correlations = [check.rank_correlation or 0.0 for check in right]
    assert max(correlations) < -0.15
    assert np.mean([check.z or 0.0 for check in wrong]) == pytest.approx(0, abs=0.3)


def test_adaptive_tests_do_not_confirm_a_wrong_join(gsm8k: tuple[ItemBank, ItemBank]) -> None:
    held, true = gsm8k
    design = Design.from_dict(
        {"preset": "ability", "stopping": {"se": None, "min_items": 30, "max_items": 30}}
    )
    test = design.build(held, active=held.a > 0)
    rng = np.random.default_rng(3)
    found: dict[str, Counter[str]] = {}
    for name, answering in (("right", held), ("wrong", true)):
        found[name] = Counter()
        for _ in range(20):
            full = rng.random((4, held.n_items)) < answering.expected_score(THETAS)
            scores = np.full(full.shape, np.nan)
            for given, row in zip(scores, full, strict=True):
                state = test.start()
                for _ in range(30):
                    ask = test.ask(state, rng)
                    assert isinstance(ask, Ask)
                    item = ask.item
                    state = state.with_pending(item)
                    given[item] = float(row[item])
                    state = test.tell(state, Response(item=item, score=given[item]))
            check = check_join(held, scores, adaptive=np.ones(4, dtype=np.bool_))
            found[name][check.verdict] += 1
    assert found["right"]["holds"] >= 16
    assert found["right"]["broken"] + found["right"]["doubtful"] == 0
    assert found["wrong"]["holds"] <= 1


def test_real_models_follow_a_right_join_and_no_wrong_one(shared_data: Path) -> None:
    bank = read_parameters((shared_data / "arc_mixtral/bank.csv").read_bytes())
    with gzip.open(shared_data / "arc_mixtral/responses.csv.gz", "rt") as file:
        (_, *names), *rows = csv.reader(file)
    known = {name: at for at, name in enumerate(bank.item_ids)}
    columns = [at for at, name in enumerate(names) if name in known]
    answers = np.array([[float(row[1 + at]) for at in columns] for row in rows])
    bank = bank.take(np.array([known[names[at]] for at in columns]))
    rng = np.random.default_rng(4)
    right, wrong = Counter[str](), Counter[str]()
    for _ in range(TRIES):
        some = answers[rng.choice(len(answers), 4, replace=False)]
        right[check_join(bank, some).verdict] += 1
        wrong[check_join(bank.take(rng.permutation(bank.n_items)), some).verdict] += 1
    assert right["holds"] == TRIES
    assert wrong["broken"] + wrong["doubtful"] >= 95


def test_no_examinee_accuses_a_join_alone() -> None:
    n_items = 200
    rng = np.random.default_rng(2)
    bank = ItemBank.from_difficulties(a=np.full(n_items, 1.5), b=np.linspace(-2, 2, n_items))
    chances = bank.expected_score(THETAS)[:, rng.permutation(n_items)]
    wrong = (rng.random((4, n_items)) < chances).astype(np.float64)
    assert check_join(bank, wrong).verdict == "broken"
    assert check_join(bank, wrong[:3]).verdict == "broken"
    assert check_join(bank, wrong[:2]).verdict == "doubtful"
    few = np.where(np.arange(n_items) % 4 == 0, wrong, np.nan)  # enough together, not alone
    assert [check_join(bank, few[rows]).verdict for rows in ([0, 1, 2, 3], [0])] == [
        "broken",
        "undecided",
    ]
    same = check_join(bank, wrong, examinees=["one", "one", "other", "one"])
    assert (same.verdict, same.n_examinees) == ("doubtful", 2)
    # One examinee's answers weigh as much as those of all others, who tell nothing against it.
    short = wrong[[1, 0, 2, 3]]
    short[1:, 6:] = np.nan
    assert check_join(bank, short[[0]]).verdict == "doubtful"
    mostly_odd = check_join(bank, short)
    assert mostly_odd.verdict == "doubtful"
    assert mostly_odd.z is not None
    assert mostly_odd.z < 2.326


def test_answers_that_tell_nothing_are_no_verdict() -> None:
    bank = ItemBank.from_difficulties(a=np.ones(10), b=np.linspace(-2, 2, 10))
    for scores in (np.empty((0, 10)), np.ones((3, 10)), np.full((2, 10), np.nan)):
        check = check_join(bank, scores)
        assert (check.verdict, check.z, check.power) == ("undecided", None, 0.0)


def test_a_check_with_missing_answers_matches_direct_sums() -> None:
    rng = np.random.default_rng(6)
    n_items = 30
    bank = ItemBank.from_difficulties(
        a=rng.uniform(0.6, 1.6, n_items), b=rng.normal(size=n_items), c=np.full(n_items, 0.1)
    )
    theta = rng.normal(size=9)
    scores = (rng.random((9, n_items)) < bank.expected_score(theta)).astype(float)
    scores[rng.random(scores.shape) < 0.4] = np.nan
    scores[0, 5:], scores[0, :5] = np.nan, (1, 1, 0, 1, 0)  # five answers are enough
    scores[1, 4:], scores[1, :4] = np.nan, (1, 1, 0, 1)
    adaptive = np.arange(9) < 3
    logits: list[FloatArray] = []
    parts: list[FloatArray] = []
    chances: list[FloatArray] = []
    answered: list[BoolArray] = []
    for row in np.delete(scores, 1, axis=0):
        mask = ~np.isnan(row)
        at = np.flatnonzero(mask)
        here = brentq(lambda x: np.mean(bank.expected_score(x)[at]) - row[at].mean(), -6, 6)  # noqa: B023
        p = bank.expected_score(here)[at]
        chance, logit, part = np.zeros((3, n_items))
        logit[at] = np.log(p / (1 - p)) - np.mean(np.log(p / (1 - p)))
        part[at], chance[at] = row[at] - row[at].mean(), p
        logits.append(logit)
        parts.append(part)
        chances.append(chance)
        answered.append(mask)
    n = len(logits)
    centred = [np.where(m, p - p[m].mean(), 0.0) for p, m in zip(chances, answered, strict=True)]
    noise = [p * (1 - p) for p in chances]
    dealt = right = 0.0
    for j in range(n):
        for k in range(n):
            n_common = (answered[j] & answered[k]).sum()
            together = float(logits[j] @ logits[k]) / (n_common - 1) if n_common > 1 else 0.0
            dealt += float(parts[j] @ parts[k]) * together
            own = float(noise[j].sum()) if j == k else 0.0
            right += (float(centred[j] @ centred[k]) + own) * together
    shift = 2.0 * 2 / dealt**0.5  # one of the three adaptively tested examinees is left out
    z = sum(a @ b for a, b in zip(logits, parts, strict=True)) / dealt**0.5 - shift
    expected = sum(a @ b for a, b in zip(logits, centred, strict=True)) / right**0.5
    chance_sd = (sum(a**2 @ b for a, b in zip(logits, noise, strict=True)) / right) ** 0.5
    check = check_join(bank, scores, adaptive=adaptive)
    assert check.z == pytest.approx(z, rel=1e-3)
    assert check.expected_z == pytest.approx(expected, rel=1e-3)
    assert check.p_value == pytest.approx(norm.sf(z), rel=2e-2)
    accused_below = 0.4 * expected - norm.ppf(0.99) * chance_sd - shift
    assert check.power == pytest.approx(norm.cdf(accused_below), abs=1e-3)
    assert (check.n_examinees, check.n_answers) == (8, int(np.sum(answered)))
    assert check.n_items == int(np.any(answered, axis=0).sum())
    shares = np.nanmean(scores, axis=0)
    assert check.rank_correlation == pytest.approx(spearmanr(shares, bank.b).statistic)
    # Items that do not rise with ability are left out, as are those that the caller leaves out.
    more = ItemBank.from_intercepts(
        a=[*bank.a, -1.0, 0.0, 1.0], intercept=[*bank.intercept, *np.zeros(3)], c=[0.1] * 33
    )
    wide = np.column_stack([scores, rng.integers(0, 2, (9, 3))])
    usable = np.arange(33) < 32
    assert check_join(more, wide, usable=usable, adaptive=adaptive) == check


@pytest.mark.parametrize(
    ("z", "accused_below", "verdict"),
    [
        (2.33, 2.0, "holds"),
        (2.32, 2.0, "undecided"),
        (2.0, 2.0, "undecided"),
        (1.99, 2.0, "broken"),
        (2.32, 9.0, "broken"),
        (2.33, 9.0, "doubtful"),
    ],
)
def test_a_join_holds_by_one_bound_and_is_broken_by_the_other(
    z: float, accused_below: float, verdict: str
) -> None:
    assert _Weighed(z, 9.0, accused_below).verdict == verdict


def test_three_items_have_a_rank_correlation_and_two_have_none() -> None:
    bank = ItemBank.from_difficulties(a=np.ones(3), b=np.array([-1.0, 0.0, 1.0]))
    scores = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    assert check_join(bank, scores).rank_correlation == pytest.approx(-1.0)
    scores[:, 1] = np.nan
    assert check_join(bank, scores).rank_correlation is None

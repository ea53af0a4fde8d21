"""The preset `continuous-paper`, compared with Algorithm 1 of arXiv 2601.13885 coded directly."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import norm

from app.calibration.pipeline.ranking import bank_by_moments
from app.engine import Design, Response
from app.engine.ranking.ranking import Ranking, RankingAsk, RankingState
from app.engine.ranking.rules import RANKING_PRESETS, RankingPreset, RankingRules
from app.engine.responses import ResponseTable

N_INIT, N_MAX, GAMMA = 5, 30, 0.95
COSTS = np.array([1.0, 1.0, 3.0, 0.5])


def scores_of(n_models: int, n_items: int) -> np.ndarray:
    rng = np.random.default_rng(5)
    mu = 1 / (1 + np.exp(rng.normal(size=n_items) - rng.normal(size=(n_models, 1))))
    noise = rng.normal(size=mu.shape) * np.sqrt(0.1 * mu * (1 - mu))
    return np.asarray(np.clip(mu + noise, 0, 1).round(3))


SCORES = scores_of(12, 80)
ITEMS = tuple(f"i{j}" for j in range(80))
OTHERS = ResponseTable(tuple(f"m{i}" for i in range(8)), ITEMS, SCORES[4:])
BANK = bank_by_moments(OTHERS)
ROWS = SCORES[:4][:, [ITEMS.index(item) for item in BANK.item_ids]]


def published() -> Ranking:
    preset = RANKING_PRESETS[RankingPreset.CONTINUOUS_PAPER]
    test = Design.from_dict({"preset": "ability", **preset.asking}).build(BANK)
    rules = RankingRules(min_items=N_INIT, max_items=N_MAX, confidence=GAMMA, **preset.rules)
    return Ranking(tests=(test,) * 4, rules=rules, costs=tuple(COSTS.tolist()))


def test_difficulty_and_dispersion_follow_eq_8_and_9() -> None:
    scores = OTHERS.scores[:, [ITEMS.index(item) for item in BANK.item_ids]]
    lo, hi = scores.min(axis=0), scores.max(axis=0)
    scaled = 0.01 + 0.98 * (scores - lo) / (hi - lo)
    mean, of_model = scaled.mean(axis=0), scaled.mean(axis=1)
    b, theta = -np.log(mean / (1 - mean)), np.log(of_model / (1 - of_model))
    assert BANK.b == pytest.approx(b, abs=1e-9)
    mu = 1 / (1 + np.exp(b - theta[:, None]))
    k = ((scaled - mu) ** 2).sum() / (mu * (1 - mu)).sum()
    assert BANK.k == pytest.approx(k, abs=1e-9)
    assert np.ptp(BANK.a) == 0.0


def test_items_that_fall_with_ability_are_left_out() -> None:
    """End of section 5: the correlation of an item with the mean of the other items."""
    fallen = OTHERS.scores.copy()
    fallen[:, :3] = 1.0 - fallen[:, :3]
    kept = bank_by_moments(ResponseTable(OTHERS.examinees, ITEMS, fallen)).item_ids
    centred = fallen - fallen.mean(axis=0)
    rest = centred.sum(axis=1, keepdims=True) - centred
    r = (centred * (rest - rest.mean(axis=0))).sum(axis=0)
    assert list(kept) == [item for item, each in zip(ITEMS, r, strict=True) if each >= 0]
    assert not {"i0", "i1", "i2"} & set(kept)


def by_hand(state: RankingState) -> tuple[list[int], np.ndarray, set[int]]:
    """Lines 4 to 9: return the ranking, P of each pair of neighbours, and the candidates."""
    theta = np.array([member.belief.theta for member in state.members])
    se = np.array([member.belief.se for member in state.members])
    order = np.argsort(-theta, kind="stable").tolist()
    p = np.array(
        [norm.cdf((theta[i] - theta[j]) / math.hypot(se[i], se[j])) for i, j in pairwise(order)]
    )
    n = [member.n_asked for member in state.members]
    uncertain = [
        pair
        for pair, sure in zip(pairwise(order), p, strict=True)
        if sure <= 1 - (1 - GAMMA) / 2 and max(n[pair[0]], n[pair[1]]) < N_MAX
    ]
    return order, p, {member for pair in uncertain for member in pair}


def test_each_step_follows_algorithm_1() -> None:
    ranking = published()
    state, steps = ranking.start(), 0
    while isinstance(step := ranking.ask(state, seed=1), RankingAsk):
        own = state.members[step.member]
        if min(member.n_asked for member in state.members) >= N_INIT:
            order, p, candidates = by_hand(state)
            ranks = ranking.ranks(state)
            assert list(ranks.order) == order
            assert [pair.p_above for pair in ranks.neighbours] == pytest.approx(p, abs=1e-9)
            worth = {
                m: state.members[m].belief.se ** 2 / ((state.members[m].n_asked + 1) * COSTS[m])
                for m in candidates
            }
            assert step.member == max(worth, key=lambda m: worth[m])
            steps += 1
        information = BANK.information(np.array([own.belief.theta]))[0].copy()
        information[list(own.asked)] = -1.0
        assert information[step.item] == pytest.approx(information.max(), abs=1e-12)
        state = ranking.administer(state, step.member, step.item, step.probability)
        answer = Response(step.item, float(ROWS[step.member, step.item]))
        state = ranking.tell(state, step.member, answer)
    assert steps > 10
    _, p, candidates = by_hand(state)
    assert not candidates
    decided = [pair.decided for pair in ranking.ranks(state).neighbours]
    assert decided == [bool(sure > 1 - (1 - GAMMA) / 2) for sure in p]

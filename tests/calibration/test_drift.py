"""Drift: items whose new answers in adaptive tests leave their old curve."""

from typing import NamedTuple

import numpy as np
import pytest

from app.calibration.linking.drift import SIGNIFICANT, Drift, find_drift
from app.calibration.linking.linked import calibrate_onto
from app.calibration.logistic.calibrate import CalibrationSettings, calibrate
from app.calibration.logistic.curves import Family
from app.calibration.matrix import ScoreMatrix
from app.calibration.pipeline.drift import DriftCheck
from app.calibration.pipeline.plan import CalibrationPlan, LinkPlan
from app.engine.bank import ItemBank
from app.engine.models.base import FloatArray, IntArray, ItemParameters
from app.errors import CalibrationError
from tests.calibration.simulated import adaptive, answer, draw_items

N_ITEMS = 100


class Living(NamedTuple):
    bank: ItemBank
    true_b: FloatArray
    matrix: ScoreMatrix
    moved: frozenset[str]

    def of(self, drift: Drift, *, moved: bool) -> IntArray:
        """Return positions in `drift` of judged items that have moved, or have not."""
        judged = np.isfinite(drift.z)
        return np.flatnonzero(judged & [(key in self.moved) == moved for key in drift.keys])


def as_bank(items: ItemParameters) -> ItemBank:
    return ItemBank.from_intercepts(
        a=items.a,
        intercept=items.intercept,
        c=items.c,
        d=items.d,
        item_ids=[str(i + 1) for i in range(len(items.a))],
        scale="old",
    )


def living(
    seed: int,
    *,
    shift: float = 0.0,
    n_moved: int = 0,
    n: int = 1200,
    family: Family = Family.TWO_PL,
    flatter: float = 1.0,
) -> Living:
    """Simulate adaptive tests of an abler population than the old one, with some moved items."""
    rng = np.random.default_rng(seed)
    items = draw_items(rng, family, N_ITEMS)
    theta = rng.normal(0.5, 1.1, n)
    b = -items.intercept / items.a
    moved = rng.permutation(N_ITEMS)[:n_moved]
    b[moved] += shift
    a = items.a.copy()
    a[moved] *= flatter
    true = items._replace(a=a, intercept=-a * b)
    matrix = adaptive(rng, items, true, theta, n_asked=20)
    return Living(as_bank(items), b, matrix, frozenset(str(i + 1) for i in moved))


def test_items_that_became_easier_or_harder_are_found_and_no_others() -> None:
    for shift in (-1.0, 1.0):
        world = living(1, shift=shift, n_moved=12)
        drift = find_drift(world.matrix, world.bank)

        moved, unmoved = world.of(drift, moved=True), world.of(drift, moved=False)
        assert len(moved) >= 4
        assert drift.drifted[moved].mean() >= 0.8
        assert not drift.drifted[unmoved].any()
        assert (np.sign(drift.z[moved]) == -np.sign(shift)).all()
        assert (np.sign(drift.easier[moved]) == -np.sign(shift)).all()
        of_key = {key: position for position, key in enumerate(world.bank.item_ids)}
        true_b = np.array([world.true_b[of_key[key]] for key in drift.keys])
        error = (drift.new_b - true_b)[moved] / drift.se[moved]
        assert np.abs(error).max() < 4
        assert drift.mean == pytest.approx(0.5, abs=0.15)
        assert drift.sd == pytest.approx(1.1, abs=0.15)


def test_an_item_whose_curve_has_become_flat_is_found_too() -> None:
    world = living(2, n_moved=10, flatter=0.15, n=3000)
    drift = find_drift(world.matrix, world.bank)

    assert drift.drifted[world.of(drift, moved=True)].mean() >= 0.6
    assert not drift.drifted[world.of(drift, moved=False)].any()


@pytest.mark.slow
def test_without_drift_z_is_standard_normal_under_adaptive_selection() -> None:
    looks = []
    for seed in range(12):
        family = (Family.TWO_PL, Family.THREE_PL)[seed % 2]
        world = living(100 + seed, family=family)
        looks.append(find_drift(world.matrix, world.bank))
    z = np.concatenate([drift.z[np.isfinite(drift.z)] for drift in looks])
    p = np.concatenate([drift.p_value[np.isfinite(drift.z)] for drift in looks])

    assert len(z) > 500
    assert abs(z.mean()) < 0.12
    assert z.std() == pytest.approx(0.93, abs=0.12)
    assert (p < 0.05).mean() < 0.08
    assert sum(drift.drifted.sum() for drift in looks) <= 3


def test_moved_items_do_not_flag_the_others() -> None:
    world = living(3, shift=-1.5, n_moved=30)
    drift = find_drift(world.matrix, world.bank)

    unmoved = world.of(drift, moved=False)
    assert drift.drifted[world.of(drift, moved=True)].mean() >= 0.75
    assert not drift.drifted[unmoved].any()
    assert abs(drift.z[unmoved].mean()) < 0.4


@pytest.mark.slow
def test_errors_of_the_old_parameters_are_no_drift() -> None:
    rng = np.random.default_rng(4)
    world = living(4, n=2500)
    error = rng.normal(0, 0.35, N_ITEMS)
    guessed = as_bank(
        ItemParameters(
            world.bank.a,
            world.bank.intercept - world.bank.a * error,
            world.bank.c,
            world.bank.d,
        )
    )
    naive = find_drift(world.matrix, guessed)
    fair = find_drift(world.matrix, guessed, old_se=np.tile([0.35, 0.0], (N_ITEMS, 1)))

    assert (naive.p_value < SIGNIFICANT).mean() > 0.2
    assert (fair.p_value < SIGNIFICANT).mean() < 0.02


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_reference", "n_new", "level", "most"),
    [
        # By the error of old difficulties alone 2.3 % would be: steep slopes are steep by chance.
        (30, 300, 0.01, 0.015),
        # By errors as at the old slopes 0.5 % would be: at a slope too steep they are too small.
        (100, 1200, SIGNIFICANT, 0.003),
    ],
)
def test_a_bank_of_few_reference_models_rarely_drifts_by_chance(
    n_reference: int, n_new: int, level: float, most: float
) -> None:
    p_values = []
    for seed in range(30):
        rng = np.random.default_rng([8, seed])
        items = draw_items(rng, Family.TWO_PL, 60)
        known = used(answer(rng, items, rng.normal(size=n_reference)))
        found = calibrate(known, CalibrationSettings())
        new = answer(rng, items, rng.normal(0.3, 1.1, n_new))
        errors = np.column_stack([found.known_errors.b, found.known_errors.a])
        p_values.append(find_drift(new, found.bank(), old_se=errors).p_value)
    p = np.concatenate(p_values)

    assert (p < level).mean() < most


def test_few_answers_are_not_judged_and_constant_ones_stay_finite() -> None:
    bank = as_bank(ItemParameters(np.ones(4), np.zeros(4), np.zeros(4), np.ones(4)))
    scores = np.full((60, 4), np.nan)
    scores[:, 0] = 1.0
    scores[:, 1] = np.arange(60) % 2
    scores[:20, 2] = 1.0
    matrix = ScoreMatrix.of(scores, items=["1", "2", "3", "new"])
    drift = find_drift(matrix, bank)

    assert drift.keys == ("1", "2", "3")
    assert drift.n_answers.tolist() == [60, 60, 20]
    assert np.isfinite(drift.z[:2]).all()
    assert np.isnan(drift.z[2])
    assert drift.drifted.tolist()[2] is False
    assert drift.new_b[0] < drift.old_b[0] - 1


def test_answers_without_items_of_the_bank_are_refused() -> None:
    bank = as_bank(ItemParameters(np.ones(2), np.zeros(2), np.zeros(2), np.ones(2)))
    with pytest.raises(
        CalibrationError, match="at least 2 items whose slope in the bank is not 0, got 1"
    ):
        find_drift(ScoreMatrix.of([[1, 0], [0, 1]], items=["1", "new"]), bank)


@pytest.mark.slow
def test_new_items_seeded_into_adaptive_tests_are_recovered_on_the_old_scale() -> None:
    rng = np.random.default_rng(5)
    items = draw_items(rng, Family.TWO_PL, N_ITEMS + 12)
    theta = rng.normal(0.6, 1.2, 3000)
    believed = items.take(slice(N_ITEMS))
    matrix = adaptive(rng, believed, items, theta, n_asked=20, seeded=12, n_seeded=4)
    settings = CalibrationSettings(family=Family.TWO_PL)
    found = calibrate_onto(used(matrix), as_bank(believed), settings)

    new = [j for j, key in enumerate(found.item_ids) if int(key) > N_ITEMS]
    true_b = (-items.intercept / items.a)[N_ITEMS:]
    assert len(new) == 12
    assert (matrix.answers_per_item()[N_ITEMS:] == 1000).all()
    assert np.abs((found.b[new] - true_b) / found.known_errors.b[new]).max() < 4
    assert float(np.sqrt(np.mean((found.b[new] - true_b) ** 2))) < 0.15
    assert np.corrcoef(found.items.a[new], items.a[N_ITEMS:])[0, 1] > 0.9
    assert found.density.mean == pytest.approx(0.6, abs=0.1)
    assert found.scale == "old"


def used(matrix: ScoreMatrix) -> ScoreMatrix:
    """Return the matrix without items that are unanswered or answered alike by all."""
    mixed = [j for j, mean in enumerate(matrix.item_means()) if 0 < mean < 1]
    return matrix.select(items=np.array(mixed))


def test_anchors_alone_are_calibrated_without_an_error() -> None:
    world = living(6)
    found = calibrate_onto(used(world.matrix), world.bank, CalibrationSettings())

    assert np.isnan(found.known_errors.b).all()
    assert found.density.mean == pytest.approx(0.5, abs=0.15)


def test_anchors_keep_the_errors_of_both_parameters() -> None:
    world = living(5)
    errors = np.column_stack([np.linspace(0.1, 0.2, N_ITEMS), np.linspace(0.3, 0.4, N_ITEMS)])
    link = LinkPlan(method="fixed_anchor", check_drift=True)
    plan = CalibrationPlan(link=link, target=world.bank, target_se=errors)
    check = DriftCheck.of(world.matrix, plan)
    names = ("a", "intercept", "c", "d", "se_a", "se_b")
    columns = check.whole(dict.fromkeys(names, np.full(check.part.n_items, np.nan)))

    kept = [(key, j) for j, key in enumerate(world.matrix.items) if columns["drifted"][j] == 0]
    assert len(kept) > 50
    old = {key: tuple(both) for key, both in zip(world.bank.item_ids, errors, strict=True)}
    assert all((columns["se_b"][j], columns["se_a"][j]) == old[key] for key, j in kept)

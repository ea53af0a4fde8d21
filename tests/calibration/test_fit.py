import numpy as np
import pytest
from scipy.special import chdtr, pdtr

from app.calibration.fit import goodness
from app.calibration.fit.goodness import M2, Goodness, goodness_of_fit, m2_of
from app.calibration.fit.item_fit import copies_warning, item_fit, local_dependence
from app.calibration.logistic.calibrate import Calibration, CalibrationSettings, calibrate
from app.calibration.logistic.curves import Family, probabilities
from app.calibration.logistic.expectation import LatentDensity
from app.calibration.logistic.priors import Priors
from app.calibration.matrix import ScoreMatrix
from app.errors import CalibrationError
from tests.calibration.simulated import answer, draw_items, simulate


def _calibrated(matrix: ScoreMatrix, family: Family = Family.TWO_PL) -> Calibration:
    return calibrate(
        matrix, CalibrationSettings(family=family, priors=Priors.none(), with_errors=False)
    )


def _two_dimensional(seed: int, n_examinees: int, n_items: int) -> ScoreMatrix:
    """Simulate items of which half measure a second dimension."""
    rng = np.random.default_rng(seed)
    items = draw_items(rng, Family.TWO_PL, n_items)
    half = n_items // 2
    common = rng.normal(size=n_examinees)
    other = 0.4 * common + np.sqrt(1 - 0.4**2) * rng.normal(size=n_examinees)
    left = answer(rng, items.take(np.arange(half)), common).scores
    right = answer(rng, items.take(np.arange(half, n_items)), other).scores
    return ScoreMatrix.of(np.concatenate([left, right], axis=1))


def test_m2_covariance_is_that_of_the_shares_of_right_answers() -> None:
    rng = np.random.default_rng(1)
    items = draw_items(rng, Family.TWO_PL, 5)
    theta = rng.normal(size=200_000)
    scores = answer(rng, items, theta).scores.astype(float)
    first, second = np.triu_indices(5, 1)
    shares = np.concatenate([scores, scores[:, first] * scores[:, second]], axis=1)
    density = LatentDensity.normal()
    p, _ = probabilities(items, density.nodes)
    moments = goodness._moments(p, p[first] * p[second], density.weights, first, second)
    assert moments == pytest.approx(shares.T @ shares / len(scores), abs=0.006)


@pytest.mark.slow
def test_p_values_of_m2_are_uniform_and_rmsea_near_zero_where_the_model_is_true() -> None:
    from scipy.stats import kstest

    fits = []
    for seed in range(80):
        data = simulate(seed, Family.TWO_PL, 1000, 10)
        fits.append(m2_of(data.matrix, _calibrated(data.matrix)))
    assert kstest([fit.p_value for fit in fits], "uniform").pvalue > 0.01
    assert np.mean([fit.rmsea for fit in fits]) < 0.01
    assert np.mean([fit.p_value < 0.05 for fit in fits]) == pytest.approx(0.05, abs=0.05)


def test_a_second_dimension_is_flagged() -> None:
    matrix = _two_dimensional(2, 1500, 16)
    fit = goodness_of_fit(matrix, _calibrated(matrix))
    assert fit.m2 is not None
    assert fit.m2.p_value < 1e-6
    assert fit.m2.rmsea > 0.03
    assert fit.srmsr > 0.05
    good = simulate(2, Family.TWO_PL, 1500, 16).matrix
    assert goodness_of_fit(good, _calibrated(good)).srmsr < 0.03


def test_a_wrong_family_fits_worse_than_the_right_one() -> None:
    matrix = simulate(3, Family.TWO_PL, 4000, 12).matrix
    one = m2_of(matrix, _calibrated(matrix, Family.RASCH))
    two = m2_of(matrix, _calibrated(matrix, Family.TWO_PL))
    assert one.p_value < 1e-4 < two.p_value
    assert one.df == 78 - 13
    assert two.df == 78 - 24


def test_the_rmsea_interval_inverts_the_noncentral_chi_square() -> None:
    def noncentral(x: float, df: int, noncentrality: float) -> float:
        """Return the CDF: chi squares with 2k more degrees of freedom, k Poisson distributed."""
        k = np.arange(1000)
        shares = np.diff(pdtr(k, noncentrality / 2), prepend=0)
        return float(shares @ chdtr(df + 2 * k, x))

    matrix = _two_dimensional(4, 1000, 12)
    fit = m2_of(matrix, _calibrated(matrix))
    assert fit.rmsea_lo < fit.rmsea < fit.rmsea_hi
    for end, level in ((fit.rmsea_lo, 0.95), (fit.rmsea_hi, 0.05)):
        noncentrality = end**2 * fit.df * fit.n_examinees
        assert noncentral(fit.statistic, fit.df, noncentrality) == pytest.approx(level, abs=1e-6)


def test_m2_of_a_large_bank_is_computed_on_a_stated_subset() -> None:
    matrix = simulate(5, Family.TWO_PL, 400, 150).matrix
    fit = goodness_of_fit(matrix, _calibrated(matrix))
    assert fit.m2 is not None
    assert fit.m2.n_items == goodness.MAX_M2_ITEMS
    assert fit.m2.df == 60 * 61 // 2 - 120
    assert fit.m2.rmsea < 0.02
    assert fit.srmsr_items == 150


def test_with_many_missing_answers_srmsr_is_given_and_m2_is_not() -> None:
    matrix = simulate(6, Family.TWO_PL, 1000, 20, missing=0.7).matrix
    fit = goodness_of_fit(matrix, _calibrated(matrix))
    assert fit.m2 is None
    assert "who answered all of 8 items" in fit.m2_missing
    # About 90 answers to each pair give every correlation an error of about 0.1.
    assert fit.srmsr_chance == pytest.approx(0.105, abs=0.01)
    assert fit.srmsr == pytest.approx(fit.srmsr_chance, rel=0.1)
    assert fit.verdict == "too few to tell"


def test_m2_of_few_examinees_uses_no_more_than_there_are() -> None:
    matrix = simulate(6, Family.TWO_PL, 40, 8, missing=0.1).matrix
    fit = goodness_of_fit(matrix, _calibrated(matrix))
    assert "M2 needs at least 40 examinees" in fit.m2_missing


def test_items_that_all_examinees_answer_alike_fit() -> None:
    alike = ScoreMatrix.of((np.arange(40) % 3 == 0)[:, None].repeat(20, axis=1))
    fit = m2_of(alike, calibrate(alike, CalibrationSettings(with_errors=False)))
    assert (fit.rmsea, fit.rmsea_lo, fit.rmsea_hi) == (0.0, 0.0, 0.0)
    assert fit.statistic == pytest.approx(0.0, abs=1e-3)


def test_m2_needs_degrees_of_freedom() -> None:
    matrix = simulate(7, Family.THREE_PL, 800, 5).matrix
    with pytest.raises(CalibrationError, match="no degrees of freedom"):
        m2_of(matrix, _calibrated(matrix, Family.THREE_PL))


@pytest.mark.parametrize(
    ("rmsea", "srmsr", "n", "word"),
    [
        ((0.0, 0.0, 0.04), 0.01, 500, "good"),
        ((0.05, 0.04, 0.06), 0.01, 500, "acceptable"),
        ((0.03, 0.01, 0.06), 0.01, 500, "good"),
        ((0.03, 0.0, 0.09), 0.01, 500, "too few to tell"),
        ((0.09, 0.06, 0.12), 0.01, 500, "marginal"),
        ((0.1, 0.09, 0.11), 0.01, 500, "poor"),
        ((0.13, 0.0, 0.24), 0.01, 12, "too few to tell"),
        ((0.15, 0.085, 0.2), 0.01, 12, "poor"),
        ((0.0, 0.0, 0.05), 0.01, 30, "too few to tell"),
        ((0.03, 0.02, 0.04), 0.03, 500, "good"),
        ((0.03, 0.02, 0.04), 0.07, 500, "acceptable"),
        ((0.03, 0.02, 0.04), 0.213, 500, "poor"),
        ((0.03, 0.02, 0.04), np.nan, 500, "good"),
    ],
)
def test_the_verdict_is_the_worse_of_rmsea_within_its_interval_and_srmsr(
    rmsea: tuple[float, float, float], srmsr: float, n: int, word: str
) -> None:
    value, lo, hi = rmsea
    figures = {"rmsea": value, "rmsea_lo": lo, "rmsea_hi": hi}
    m2 = M2(statistic=1.0, df=9, p_value=0.5, n_items=9, n_examinees=n, **figures)
    fit = Goodness(m2=m2, m2_missing="", srmsr=srmsr, srmsr_items=9, srmsr_chance=0.01)
    assert fit.verdict == word


@pytest.mark.slow
def test_expected_shares_of_s_x2_are_those_of_a_large_sample() -> None:
    matrix = simulate(8, Family.TWO_PL, 40_000, 6).matrix
    fit = item_fit(matrix, _calibrated(matrix))
    assert (fit.df > 0).all()
    assert (fit.p_value > 1e-4).all()


def test_items_that_fit_are_rarely_flagged_and_one_that_does_not_is() -> None:
    rng = np.random.default_rng(9)
    items = draw_items(rng, Family.TWO_PL, 20)
    theta = rng.normal(size=3000)
    scores = answer(rng, items, theta).scores.copy()
    scores[:, 0] = np.abs(theta) < 0.7  # right only in the middle, so no logistic curve
    fit = item_fit(ScoreMatrix.of(scores), _calibrated(ScoreMatrix.of(scores)))
    assert fit.p_value[0] < 1e-10
    assert fit.p_value[0] < fit.p_value[1:].min()
    clean = simulate(9, Family.TWO_PL, 3000, 20).matrix
    assert np.mean(item_fit(clean, _calibrated(clean)).p_value < 0.05) <= 0.15


def test_s_x2_of_a_long_bank_works_in_groups() -> None:
    matrix = simulate(10, Family.TWO_PL, 500, 130).matrix
    fit = item_fit(matrix, _calibrated(matrix))
    assert np.isfinite(fit.p_value).all()
    assert np.mean(fit.p_value < 0.05) < 0.12


def test_s_x2_without_complete_examinees_is_missing_not_zero() -> None:
    matrix = simulate(11, Family.TWO_PL, 100, 30, missing=0.5).matrix
    fit = item_fit(matrix, _calibrated(matrix))
    assert np.isnan(fit.p_value).all()
    assert np.isnan(fit.statistic).all()


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_a_copied_item_is_locally_dependent(missing: float) -> None:
    rng = np.random.default_rng(12)
    scores = simulate(12, Family.TWO_PL, 1000, 25).matrix.scores.astype(float)
    scores[:, 7] = np.where(rng.random(1000) < 0.9, scores[:, 3], scores[:, 7])
    scores[rng.random(scores.shape) < missing] = np.nan
    matrix = ScoreMatrix.of(scores)
    found = local_dependence(matrix, _calibrated(matrix))
    assert [(pair.first, pair.second) for pair in found.pairs] == [("4", "8")]
    assert found.n_flagged == 1
    assert found.mean < 0


@pytest.mark.parametrize(
    ("n_examinees", "missing", "is_told"), [(120, 0.0, True), (120, 0.2, True), (12, 0.0, False)]
)
def test_copies_are_reported_only_beyond_chance(
    n_examinees: int, missing: float, is_told: bool
) -> None:
    rng = np.random.default_rng(15)
    scores = simulate(15, Family.TWO_PL, n_examinees, 25).matrix.scores.astype(float)
    scores[:, 7] = scores[:, 3]
    scores[rng.random(scores.shape) < missing] = np.nan
    means = np.nanmean(scores, axis=0)
    matrix = ScoreMatrix.of(scores)
    matrix = matrix.select(items=(means > 0) & (means < 1))
    calibration = _calibrated(matrix)
    dependence = local_dependence(matrix, calibration)
    assert ("4", "8") in [(pair.first, pair.second) for pair in dependence.pairs]
    said = copies_warning(matrix, calibration, dependence) or ""
    assert ("1 pair of items is answered alike by everybody" in said) is is_told
    assert ("'4' and '8'" in said) is is_told


def test_abilities_are_not_needed_without_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = simulate(15, Family.TWO_PL, 120, 25).matrix.scores.astype(float)
    scores[1:, 7] = scores[1:, 3]
    scores[0, 7] = 1.0 - scores[0, 3]
    matrix = ScoreMatrix.of(scores)
    calibration = _calibrated(matrix)
    dependence = local_dependence(matrix, calibration)
    assert ("4", "8") in [(pair.first, pair.second) for pair in dependence.pairs]
    monkeypatch.delattr(Calibration, "thetas")
    assert copies_warning(matrix, calibration, dependence) is None


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_chance_makes_no_pair_dependent(missing: float) -> None:
    # Where two correlate by chance, it is by 0.08 or 0.1: of 1,770 pairs some exceed 0.2.
    matrix = simulate(21, Family.TWO_PL, 150, 60, missing=missing).matrix
    assert local_dependence(matrix, _calibrated(matrix)).n_flagged == 0


def test_q3_is_the_correlation_of_residuals() -> None:
    matrix = _two_dimensional(13, 800, 10)
    calibration = _calibrated(matrix)
    theta = calibration.thetas(matrix)
    items = calibration.items
    p = 1 / (1 + np.exp(-(items.a * theta[:, None] + items.intercept)))
    expected = np.asarray(np.corrcoef((matrix.scores - p).T))[np.triu_indices(10, 1)]
    found = local_dependence(matrix, calibration)
    assert found.mean == pytest.approx(expected.mean(), abs=1e-9)

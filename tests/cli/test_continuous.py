from pathlib import Path

import numpy as np
import pytest

from app.engine.bank import FloatArray, ItemBank
from app.engine.simulation.simulate import draw_scores
from app.exchange.parameters import read_parameters
from tests.cli.shell import done, refused, told, write_scores


@pytest.fixture
def bank() -> ItemBank:
    rng = np.random.default_rng(1)
    return ItemBank.from_difficulties(
        a=rng.lognormal(0.0, 0.3, 150),
        b=rng.normal(0.0, 1.0, 150),
        k=rng.uniform(0.05, 0.25, 150),
        item_ids=[f"q{j}" for j in range(150)],
    )


def drawn(bank: ItemBank, thetas: FloatArray, seed: int) -> FloatArray:
    return np.array(list(draw_scores(bank, thetas, np.random.default_rng(seed))))


def test_scores_are_calibrated_and_estimated_on_their_scale(tmp_path: Path, bank: ItemBank) -> None:
    scores = drawn(bank, np.random.default_rng(6).normal(size=60), 7)
    scores[0, 0] = np.nan
    found = []
    for answers, options in (
        (scores, ()),
        (1 + 9 * scores, ("--scale", 1, 10)),
        (5 * (1 - scores), ("--scale", 0, 5, "--lower-is-better")),
    ):
        path = write_scores(tmp_path / "scores.csv", answers, bank.item_ids)
        out, given = tmp_path / "bank.csv", ("--responses", path, *options)
        document = told("calibrate", "--model", "continuous", "--out", out, *given)
        lo, hi = options[1:3] or (0, 1)
        of = {"lo": lo, "hi": hi, "lower_is_better": "--lower-is-better" in options}
        assert document["score_scale"] == of
        assert out.read_text().startswith("item,a,b,c,d,k\n")
        items = read_parameters(out.read_bytes())
        rows = told("estimate", "--bank", out, *given)["examinees"]
        found.append([*items.a, *items.b, *(row["theta"] for row in rows)])
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-5, atol=1e-5)


def test_the_published_procedure_writes_ranges_and_one_dispersion(
    tmp_path: Path, bank: ItemBank
) -> None:
    scores = drawn(bank, np.random.default_rng(8).normal(size=20), 9)
    answers, out = write_scores(tmp_path / "s.csv", scores, bank.item_ids), tmp_path / "bank.csv"
    given = ("--model", "continuous", "--moments", "--responses", answers, "--out", out)
    done("calibrate", *given)
    found = read_parameters(out.read_bytes())
    kept = [bank.index_of(item) for item in found.item_ids]
    np.testing.assert_allclose(found.c, scores.min(axis=0)[kept])
    np.testing.assert_allclose(found.d, scores.max(axis=0)[kept])
    assert np.ptp(found.k) == 0


@pytest.mark.parametrize(
    ("cells", "options", "words"),
    [
        ("m1,3,1\nm2,2,11\n", ("--scale", 1, 10), "s.csv:3:q2: expected a score in [1.0, 10.0]"),
        ("m1,0.1,0.5\nm2,0.2,0.6\n", ("--scale", 5, 1), "needs lo < hi"),
        ("m1,0.1,0.5\nm2,0.2,0.6\n", ("--compare", "1pl"), "has no setting compare"),
        ("m1,1,0\nm2,0,1\n", ("--model", "2pl", "--moments"), "continuous model"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(
    tmp_path: Path, cells: str, options: tuple[object, ...], words: str
) -> None:
    answers = tmp_path / "s.csv"
    answers.write_text("model,q1,q2\n" + cells)
    given = ("--model", "continuous", "--responses", answers, "--out", tmp_path / "b.csv")
    assert words in refused("calibrate", *given, *options)
    assert not (tmp_path / "b.csv").exists()

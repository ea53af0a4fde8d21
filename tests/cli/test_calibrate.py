import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.calibration.logistic.curves import Family
from app.engine.bank import ItemBank
from app.exchange.bank_files import write_mirt
from app.exchange.parameters import read_parameters
from tests.calibration.simulated import Simulated, simulate
from tests.cli.shell import done, refused, told, write_scores


def _write(path: Path, data: Simulated) -> Path:
    scores = np.where(data.matrix.scores == 255, np.nan, data.matrix.scores)
    return write_scores(path, scores, [f"q{j}" for j in range(data.matrix.n_items)])


def _words(tmp_path: Path, responses: Path, *options: object) -> tuple[object, ...]:
    return ("calibrate", "--responses", responses, "--out", tmp_path / "bank.csv", *options)


def _calibrated(tmp_path: Path, responses: Path, *options: object) -> dict[str, Any]:
    return told(*_words(tmp_path, responses, *options))


@pytest.fixture
def data() -> Simulated:
    return simulate(1, Family.TWO_PL, 500, 12, missing=0.02)


def test_dropped_items_are_listed_with_their_reasons(tmp_path: Path, data: Simulated) -> None:
    path = _write(tmp_path / "answers.csv", data)
    rows = list(csv.reader(path.read_text().splitlines()))
    for row in rows[1:]:
        row[3] = "1"
    rows[0].append("noise")
    rng = np.random.default_rng(0)
    for row in rows[1:]:
        row.append(str(rng.integers(0, 2)))
    path.write_text("\n".join(",".join(row) for row in rows))
    weak = {"q2": "constant", "noise": "low_point_biserial"}
    published = _calibrated(tmp_path, path, "--drop")
    assert {item["item"]: item["reason"] for item in published["dropped"]} == weak
    assert published["constants"] == {"q2": 1.0}
    assert (published["n_items"], published["kept"]) == (13, 11)
    assert published["score_only"] == []
    for model in ("2pl", "1pl"):
        document = _calibrated(tmp_path, path, "--model", model)
        assert document["dropped"] == []
        assert {item["item"]: item["reason"] for item in document["score_only"]} == weak
        assert document["kept"] == 13
    kept = _calibrated(tmp_path, path, "--no-filters")
    assert [item["item"] for item in kept["score_only"]] == ["q2"]
    both = _words(tmp_path, path, "--no-filters", "--drop")
    assert "--no-filters switches off" in refused(*both)


def test_a_comparison_lists_the_families_by_bic(tmp_path: Path, data: Simulated) -> None:
    path = _write(tmp_path / "answers.csv", data)
    comparison = _calibrated(tmp_path, path, "--compare", "1pl,2pl, 3pl")["comparison"]
    assert {fit["model"] for fit in comparison} == {"1pl", "2pl", "3pl"}
    assert [fit["bic"] for fit in comparison] == sorted(fit["bic"] for fit in comparison)


def test_a_second_calibration_lands_on_the_scale_of_a_bank_file(
    tmp_path: Path, data: Simulated
) -> None:
    shifted = ItemBank.from_intercepts(
        a=data.items.a / 1.5,
        intercept=data.items.intercept - data.items.a * 0.4 / 1.5,
        item_ids=[f"q{j}" for j in range(12)],
    )
    (tmp_path / "old.csv").write_bytes(write_mirt(shifted))
    path = _write(tmp_path / "answers.csv", data)
    document = _calibrated(tmp_path, path, "--no-filters", "--link-to", tmp_path / "old.csv")
    assert document["link"]["slope"] == pytest.approx(1.5, abs=0.2)
    assert document["link"]["intercept"] == pytest.approx(0.4, abs=0.15)
    assert len(document["link"]["anchors"]) == 12
    bank = read_parameters((tmp_path / "bank.csv").read_bytes())
    assert np.median(bank.a / shifted.a) == pytest.approx(1, abs=0.15)


def test_a_bank_named_gz_is_compressed(tmp_path: Path, data: Simulated) -> None:
    path = _write(tmp_path / "answers.csv", data)
    done("calibrate", "--responses", path, "--out", tmp_path / "bank.csv.gz")
    assert gzip.decompress((tmp_path / "bank.csv.gz").read_bytes()).startswith(b"X,a1,d,g,u")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "5pl"], "Unknown response model '5pl'"),
        (["--compare", "1pl,5pl"], "response model to compare '5pl'. Did you mean '4pl'?"),
        (["--link-to", "{bank}", "--link-method", "haebara"], "Unknown link method 'haebara'"),
        (["--link-method", "mean_sigma"], "--link-method needs --link-to"),
        (["--dimensions", "3"], "Dimensions belong to the models nested and mirt"),
        (["--model", "1pl", "--negative-slopes"], "one common, positive slope"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, data: Simulated, options: list[str], message: str
) -> None:
    path = _write(tmp_path / "answers.csv", data)
    (tmp_path / "other.csv").write_text("item,a,b,c,d\nx,1,0,0,1\ny,1,1,0,1\n")
    chosen = [option.format(bank=tmp_path / "other.csv") for option in options]
    assert message in refused(*_words(tmp_path, path, *chosen))


def test_a_4pl_from_fewer_than_500_models_is_refused_unless_few_are_allowed(tmp_path: Path) -> None:
    path = _write(tmp_path / "answers.csv", simulate(1, Family.TWO_PL, 120, 12))
    too_few = refused(*_words(tmp_path, path, "--model", "4pl"))
    assert "expected at least 500, got 120" in too_few
    assert _calibrated(tmp_path, path, "--model", "4pl", "--allow-few")["model"] == "4pl"


@pytest.mark.slow
def test_several_abilities_are_calibrated_with_what_predicts_scores(tmp_path: Path) -> None:
    data = simulate(1, Family.TWO_PL, 60, 12, missing=0.02)
    path, found = _write(tmp_path / "answers.csv", data), tmp_path / "found.json"
    flags = ("--model", "nested", "--dimensions", "1", "--no-filters", "--report-card")
    result = done(*_words(tmp_path, path, *flags, "--json", found))
    document = json.loads(found.read_text())
    assert document["dimensionality"]["names"] == ["general", "dimension_1"]
    assert set(document["knowledge"]) == {
        *("abilities", "prediction", "interval_correction", "reference_abilities", "curves")
    }
    card = document["report_card"]
    assert [row["design"] for row in card["rows"]] == [*("score_8", "ability", "random")]
    assert "Abilities: general, dimension_1;" in " ".join(result.output.split())
    penalty = np.log(document["n_examinees"]) * document["n_parameters"]
    assert document["bic"] == pytest.approx(penalty - 2 * document["log_likelihood"])
    assert (tmp_path / "bank.csv").read_text().startswith("X,a1,a2,d,g,u")


def test_families_are_shown_in_a_table(tmp_path: Path, data: Simulated) -> None:
    path = _write(tmp_path / "answers.csv", data)
    families = tmp_path / "families.csv"
    families.write_text("examinee,family\nm1,a\nm2,a\nm1,b\n")
    asked = _words(tmp_path, path, "--families", families)
    assert "--families needs --report-card" in refused(*asked)
    twice = refused(*asked, "--report-card")
    assert "families.csv:4: expected one family of 'm1'" in twice
    families.write_text("examinee,family\nm1\n")
    assert "expected an examinee and a family" in refused(*asked, "--report-card")

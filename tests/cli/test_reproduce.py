"""`sextant reproduce` on a small folder, and ATLAS on real answers."""

import gzip
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.calibration.pipeline.ranking import bank_by_moments
from app.cli.lab.papers import atlas, continuous, wild
from app.engine.bank import ItemBank
from app.engine.responses import ResponseTable
from app.engine.simulation.simulate import draw_scores
from tests.cli.shell import refused, told, write_scores


def run(paper: str, folder: Path, *flags: object) -> dict[str, dict[str, Any]]:
    tables = told("reproduce", paper, "--data", folder, *flags)["tables"]
    return {table["title"].partition(":")[0]: table for table in tables}


def figures(table: dict[str, Any]) -> dict[str, list[Any]]:
    return {row[0]: row[1:] for row in table["rows"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(2)
    n = 60
    bank = ItemBank.from_difficulties(
        a=rng.lognormal(0.2, 0.2, n), b=rng.normal(size=n), c=np.full(n, 0.1)
    )
    thetas = rng.normal(size=28)  # too few for split halves, so that it takes no time
    scores = np.array(list(draw_scores(bank, thetas, rng)))
    write_scores(made / "own" / "responses.csv.gz", scores)
    lines = ["item,a,b,c,d", *(f"i{i},{bank.a[i]},{bank.b[i]},0.1,1" for i in range(n))]
    (made / "own" / "bank.csv").write_text("\n".join(lines))
    write_scores(made / "tiny" / "law.csv.gz", scores[:, :30])
    write_scores(made / "tiny" / "maths.csv.gz", scores[:, 30:])
    mu = 1 / (1 + np.exp(-(rng.normal(size=(8, 1)) - bank.b)))
    judged = np.clip(mu + 0.1 * rng.normal(size=mu.shape), 0, 1)
    write_scores(made / "judged" / "judge_scores.csv.gz", 1 + 9 * judged, names="f")
    return made


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce all counts of the protocols."""
    monkeypatch.setattr(atlas, "_STOPS", (0.3,))
    monkeypatch.setattr(atlas, "_ITEMS", 30)
    monkeypatch.setattr(wild, "_LEAST", 24)
    monkeypatch.setattr(wild, "_PARTITIONS", 1)
    monkeypatch.setattr(wild, "_TESTED", 2)
    monkeypatch.setattr(continuous, "_SPLITS", 2)


@pytest.mark.usefixtures("short")
def test_atlas_has_all_tables_and_a_page(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    tables = run("atlas", folder, "--output", page)
    theta = figures(tables["Table 2"])
    assert theta["own, random: IES"] == [None, pytest.approx(1.0), None]
    published, theirs, ours = theta["own, SE-0.3: MAE"]
    assert published is None
    items, beside = theta["own, SE-0.3: items"][1], theta["own, random: MAE"][1]
    ies = theirs / beside * items / theta["own, random: items"][1]
    assert theta["own, SE-0.3: IES"][1] == pytest.approx(ies)
    assert 0 < ours < 1
    assert figures(tables["Table 6"])["own, SE-0.3: overlap"][1] > 0.3
    assert tables["Table 1"]["rows"][0][0] == "law"
    law = tables["Table 1"]["rows"][0]
    assert law[6] == law[2]  # so few items make one part
    small = figures(tables["Table 7"])
    kinds = {key.partition(" items, ")[2]: row for key, row in small.items() if "law" in key}
    assert kinds["SE-0.3: MAE"][0] == 0.1517
    assert 0 < kinds["SE-0.3: items"][1] <= 30
    one, other = tables["Figures 3, 7, 8"]["rows"][:2]
    assert one[2] == other[2]
    assert one[3] < other[3]
    assert "<svg" in page.read_text()


def test_a_tenth_of_the_models_represents_all() -> None:
    scores = np.random.default_rng(1).random((400, 1)) > np.linspace(0, 1, 50)
    tested = atlas.stratified(scores.astype(float), np.random.default_rng(2))
    assert len(set(tested.tolist())) == 40
    of_all, own = scores.mean(axis=1), scores[tested].mean(axis=1)
    quantiles = np.linspace(0.05, 0.95, 10)
    assert np.quantile(own, quantiles) == pytest.approx(np.quantile(of_all, quantiles), abs=0.06)


def test_the_mean_rmsea_of_parts_is_that_of_each_alone() -> None:
    rng = np.random.default_rng(3)
    n = 80  # two parts
    bank = ItemBank.from_difficulties(a=rng.lognormal(0.2, 0.2, n), b=rng.normal(size=n))
    rows = np.array(list(draw_scores(bank, rng.normal(size=400), rng)))
    table = ResponseTable(tuple(map(str, range(400))), tuple(map(str, range(n))), rows)
    matrix, found = atlas._fitted(table, "2pl")
    whole = atlas.mean_rmsea(matrix, found)
    assert whole is not None
    assert whole < 0.02  # the model is true
    spoilt = replace(found, items=found.items._replace(a=found.items.a * 5))
    worse = atlas.mean_rmsea(matrix, spoilt)
    assert worse is not None
    assert worse > 0.05


@pytest.mark.usefixtures("short")
def test_continuous_counts_pairs_and_items(folder: Path) -> None:
    tables = run("continuous", folder)
    ties = figures(tables["Table 3"])
    for way in (2, 3):
        assert 0 <= ties["share of ties"][way] <= 1
    published = ties["precision of ties"][:2]
    assert published == [0.5, 0.46]
    ranking = figures(tables["Table 2"])
    assert ranking["share of the scores"][2] == pytest.approx(ranking["items"][2] / (4 * 60))
    assert figures(tables["Table 6"])["discrimination"][2] > 1


def test_temperatures_of_a_model_are_held_out_together() -> None:
    names = tuple(f"m{row % 6}@{(0.7, 0.0)[row // 6]}" for row in range(12))
    scores = np.random.default_rng(4).random((12, 30))
    table = ResponseTable(names, tuple(map(str, range(30))), scores)
    assert continuous.ranked(names) == [6, 7, 8, 9, 10, 11]  # at temperature 0
    assert continuous.ranked(("a", "b", "a@x", "b@1")) == [0, 1, 2]
    chosen = continuous.held_out(names)[0]
    ((theirs, _),) = continuous.splits(table, [chosen], 0)
    assert theirs.full == pytest.approx(scores[[6, 7, 8, 9]])
    known = [row for row in range(12) if row % 6 in (4, 5)]  # the others, at both temperatures
    alone = ResponseTable(tuple(names[row] for row in known), table.items, scores[known])
    assert theirs.bank.b == pytest.approx(bank_by_moments(alone).b)


@pytest.mark.usefixtures("short")
def test_wild_scores_interpolation_and_extrapolation_apart(folder: Path) -> None:
    tables = run("wild", folder)
    never = figures(tables["Figures 2, 3, 10"])
    own = figures(tables["Figure 4"])
    assert never["MIRT, V-optimal, adaptive"][0] == "< 0.07 at 16"
    # Only the mean of the reference models is known for a task never asked.
    assert len(set(never["task mean"][1:3])) == 1
    assert len(set(own["task mean"][1:3])) == 2
    assert never["MIRT, V-optimal, adaptive"][3] is None  # there are no 64 items
    assert [row[0] for row in tables["Figures 12, 13"]["rows"]] == ["law", "maths"]
    assert tables["Figure 6"]["missing"]
    # Where one task is the target, only the other one may be asked.
    assert {row[2] for row in tables["Figure 11"]["rows"]} == {16.0}
    hardest = [row[3] for row in tables["Figures 14, 15"]["rows"]]
    assert hardest == sorted(hardest, reverse=True)
    both = [row[3] for row in tables["Figures 12, 13"]["rows"]]
    assert np.mean(hardest) == pytest.approx(np.mean(both))


@pytest.mark.usefixtures("short")
def test_wild_shows_cost_and_error_of_the_cheapest_items(folder: Path, tmp_path: Path) -> None:
    two = tmp_path / "tiny"
    two.mkdir()
    for path in sorted((folder / "tiny").glob("*.csv.gz")):
        (two / path.name).write_bytes(path.read_bytes())
    columns = [f"i{item},{1 + item % 7}" for item in range(60)]
    (two / "costs.csv").write_text("\n".join(["item,cost", *columns]))
    costs = figures(run("wild", tmp_path)["Figure 6"])
    cheapest, plain = costs["MIRT, cheapest"], costs["MIRT, V-optimal, adaptive"]
    by_cost = costs["MIRT, V-optimal, adaptive, by cost"]
    assert costs["2PL, cheapest"][4:] == cheapest[4:]
    assert cheapest[4] < by_cost[4] <= plain[4]  # of 4 items; no four cost less
    assert 4.0 <= cheapest[4] <= 8.0
    assert all(0.0 < ways[1] < 0.5 for ways in costs.values())


@pytest.mark.parametrize("paper", ["atlas", "continuous", "wild"])
def test_an_empty_folder_has_no_data_for_any_table(paper: str, tmp_path: Path) -> None:
    assert all(table["missing"] for table in run(paper, tmp_path).values())


@pytest.mark.parametrize(
    ("paper", "name", "complaint"),
    [
        ("atlas", "own/responses.csv.gz", "expected at least 4 models, got 3"),
        ("continuous", "own/judge_scores.csv.gz", "expected at least 6 models"),
    ],
)
def test_too_few_models_are_refused(
    folder: Path, tmp_path: Path, paper: str, name: str, complaint: str
) -> None:
    write_scores(tmp_path / name, np.eye(3))
    (tmp_path / "own" / "bank.csv").write_bytes((folder / "own" / "bank.csv").read_bytes())
    assert complaint in refused("reproduce", paper, "--data", tmp_path)


@pytest.mark.slow
def test_atlas_on_real_answers_is_near_the_published_results(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables 1 to 3, 6 and 7, and figures 4 to 6; small banks use a quarter of their models."""
    monkeypatch.setattr(atlas, "_ITEMS", 20)  # other methods are not checked here
    (tmp_path / "arc_mixtral").symlink_to(shared_data / "arc_mixtral")
    (tmp_path / "tiny").mkdir()
    for name in ("arc.csv.gz", "gsm8k.csv.gz"):
        head, *rows = gzip.decompress((shared_data / "tiny" / name).read_bytes()).splitlines()
        (tmp_path / "tiny" / name).write_bytes(gzip.compress(b"\n".join([head, *rows[::4]])))
    tables = run("atlas", tmp_path)
    theta, score = figures(tables["Table 2"]), figures(tables["Table 3"])
    use = figures(tables["Table 6"])
    for stop in ("SE-0.1", "SE-0.2", "SE-0.3"):
        row = f"arc_mixtral, {stop}"
        # Items are sampled: a mean error varies by some 0.005.
        for table, kind, within in (
            (theta, "MAE", 0.015),
            (theta, "items", 4),
            (score, "MAE", 0.005),
            (use, "overlap", 0.06),
        ):
            published, theirs, ours = table[f"{row}: {kind}"]
            assert theirs == pytest.approx(published, abs=within)
            assert kind != "MAE" or ours < theirs
    for name, published, rmsea, *others in tables["Table 1"]["rows"]:
        assert rmsea == pytest.approx(published, abs=0.015), name
        assert others[3] == pytest.approx(published, abs=0.015), name  # mean of parts
    small = figures(tables["Table 7"])
    errors = [row for name, row in small.items() if name.endswith("SE-0.2: MAE")]
    assert len(errors) == 2
    for published, theirs in errors:
        assert theirs == pytest.approx(published, abs=0.02)  # other small banks
    ranks = figures(tables["Figures 2, 4-6"])
    assert ranks["arc: Spearman"][1] == pytest.approx(0.91, abs=0.03)
    assert ranks["arc: Kendall"][1] == pytest.approx(0.77, abs=0.03)

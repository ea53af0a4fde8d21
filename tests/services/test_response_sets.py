"""Recorded answers, from files to the matrix of a response set."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from app.errors import FileFormatError, InvalidInputError, NotFoundError
from app.exchange.results.recorded import SourceFile
from app.records.response_sets import ResponseSet, StoredSheet
from app.services.responses.imports import AnswerImport, SkippedRows
from app.services.responses.service import AnswerImportReport, ResponseSetService, new_set
from app.services.responses.sheets import Sheet
from app.storage.database import Database
from app.storage.repositories import response_sets


@pytest.fixture
def sets(database: Database) -> ResponseSetService:
    return ResponseSetService(database)


def table(text: str, name: str = "scores.csv") -> AnswerImport:
    return AnswerImport(files=[SourceFile.of_bytes(name, text.encode())])


def inspect_log(samples: Sequence[dict[str, Any]], model: str = "m") -> SourceFile:
    log = {"eval": {"task": "t", "model": model}, "samples": samples}
    return SourceFile.of_bytes(f"{model}.json", json.dumps(log).encode())


def reasons(report: AnswerImportReport) -> dict[str, int]:
    return {skipped.reason: skipped.count for skipped in report.skipped}


async def test_later_files_add_items_examinees_and_answers(sets: ResponseSetService) -> None:
    await sets.import_set("s", table("model,q1,q2\nm1,1,\nm2,0,1\n"))
    report = await sets.import_into("s", table("model,q3,q2\nm3,0.5,1\nm1,1,0\n"))
    assert (report.accepted, report.new_examinees, report.new_items) == (4, 1, 1)
    matrix = await sets.matrix("s")
    assert matrix.examinees == ("m1", "m2", "m3")
    assert matrix.items == ("q1", "q2", "q3")
    nan = np.nan
    expected = np.array([[1, 0, 1], [0, 1, nan], [nan, 1, 0.5]])
    np.testing.assert_array_equal(matrix.scores, expected)
    assert report.response_set.outcomes["scored"] == 7
    assert report.response_set.revision == 3


async def test_stored_scores_stay_and_differences_are_reported(sets: ResponseSetService) -> None:
    await sets.import_set("s", table("model,q1,q2,q3\nm1,1,0,0.5\n"))
    report = await sets.import_into("s", table("model,q1,q2,q3,q4\nm1,1,1,0.25,1\n"))
    assert report.accepted == 1
    assert reasons(report) == {"conflict": 2, "duplicate": 1}
    assert (await sets.matrix("s")).scores.tolist() == [[1, 0, 0.5, 1]]
    again = await sets.import_set("s", table("model,q1\nm1,1\n"), dry_run=True)
    assert reasons(again) == {"duplicate": 1}


async def test_a_scored_answer_takes_the_place_of_a_failed_one(sets: ResponseSetService) -> None:
    failed = {"id": 1, "error": {"message": "boom"}}
    scored = {"id": 1, "scores": {"s": {"value": "C"}}}
    report = await sets.import_set("s", AnswerImport(files=[inspect_log([failed])]))
    assert report.without_scores == ("m",)
    assert {name: n for name, n in report.response_set.outcomes.items() if n} == {"error": 1}
    report = await sets.import_into("s", AnswerImport(files=[inspect_log([scored])]))
    assert (report.accepted, report.skipped) == (1, ())
    assert report.response_set.outcomes["error"] == 0
    assert report.response_set.outcomes["scored"] == 1
    report = await sets.import_into("s", AnswerImport(files=[inspect_log([failed])]))
    assert reasons(report) == {"duplicate": 1}
    within = AnswerImport(files=[inspect_log([failed, scored], "m2")])
    report = await sets.import_into("s", within)
    assert reasons(report) == {"superseded": 1}
    assert (await sets.matrix("s")).scores.tolist() == [[1], [1]]


async def test_the_matrix_holds_the_mean_of_repeated_answers(sets: ResponseSetService) -> None:
    text = "subject_id,item_id,trial,response\nm1,q1,1,1\nm1,q1,2,0\nm1,q2,2,1\nm2,q1,1,1\n"
    report = await sets.import_set("s", table(text))
    assert report.response_set.n_sheets == 3
    assert report.response_set.n_examinees == 2
    matrix = await sets.matrix("s")
    np.testing.assert_array_equal(matrix.scores, [[0.5, 1], [1, np.nan]])
    third = "subject_id,item_id,trial,response\nm2,q1,2,0\n"
    report = await sets.import_into("s", table(third))
    assert report.new_examinees == 0
    assert (await sets.matrix("s")).scores[1, 0] == 0.5


async def test_examinees_without_answers_are_named_and_not_stored(sets: ResponseSetService) -> None:
    report = await sets.import_set("s", table("model,q1\nm1,1\nm2,\n"))
    assert report.without_scores == ("m2",)
    assert (report.new_examinees, report.response_set.n_examinees) == (1, 1)
    assert (await sets.matrix("s")).examinees == ("m1",)


async def test_scores_above_the_range_stop_an_import_as_the_others_are_on_their_scale(
    sets: ResponseSetService,
) -> None:
    """Of grades from 1 to 10, only the worst lies in [0, 1]: it would count as right."""
    graded = [{"id": n, "scores": {"s": {"value": value}}} for n, value in enumerate((1, 7, -1))]
    good = inspect_log([graded[0]])
    off = [replace(inspect_log(graded), path=PurePosixPath(f"{n}.json")) for n in range(6)]
    told = r"Another scale in 6 of 7 files.*: 0.json:2: .* got 7; 1.json:2.*; 4.json:2.*; \.\.\."
    with pytest.raises(FileFormatError, match=told):
        await sets.import_set("s", AnswerImport(files=[good, *off]))
    report = await sets.import_set("s", AnswerImport(files=[inspect_log([graded[0], graded[2]])]))
    assert reasons(report) == {"score_out_of_range": 1}


async def test_a_faulty_file_stops_the_whole_import(sets: ResponseSetService) -> None:
    files = [
        SourceFile.of_bytes("good.csv", b"model,q1\nm1,1\n"),
        SourceFile.of_bytes("bad.csv", b"model,q1\nm2,2\nm3,x\n"),
    ]
    with pytest.raises(FileFormatError) as caught:
        await sets.import_set("s", AnswerImport(files=files))
    assert [problem.pointer for problem in caught.value.problems] == ["bad.csv:3:q1"]
    with pytest.raises(NotFoundError):
        await sets.get("s")


@pytest.mark.parametrize("name", ["", " s", "a/b", "a:b", "x" * 201])
async def test_a_name_unfit_for_a_url_is_refused(sets: ResponseSetService, name: str) -> None:
    with pytest.raises(InvalidInputError, match="Expected a name"):
        await sets.create(name)


async def test_an_item_name_that_cannot_be_stored_is_refused(sets: ResponseSetService) -> None:
    line = json.dumps({"subject_id": "m", "responses": {"q\x00": 1}})
    with pytest.raises(InvalidInputError, match="expected a name of the item"):
        await sets.import_set("s", table(line, "x.jsonl"))


async def test_a_set_is_deleted_with_its_answers(sets: ResponseSetService) -> None:
    await sets.import_set("two", table("model,q1\nm1,1\n"))
    await sets.delete("two", (await sets.get("two")).revision)
    await sets.import_set("two", table("model,q9\nm1,1\n"))
    assert (await sets.matrix("two")).items == ("q9",)


async def test_an_empty_set_has_an_empty_matrix(sets: ResponseSetService) -> None:
    await sets.create("s")
    assert (await sets.matrix("s")).scores.shape == (0, 0)


SCORES = npst.arrays(
    np.float64, st.integers(0, 40), elements=st.sampled_from([0.0, 1.0, 0.5, 0.1, np.nan])
)


@given(SCORES)
def test_a_sheet_stores_every_score_exactly(scores: np.ndarray[Any, np.dtype[np.float64]]) -> None:
    sheet = Sheet.of_scores(scores)
    again = Sheet.of_stored(sheet.stored("m", 1))
    np.testing.assert_array_equal(again.scores(len(scores)), scores)
    assert again.counts()["scored"] == np.count_nonzero(~np.isnan(scores))


@given(SCORES, SCORES)
def test_a_merge_keeps_the_first_score_and_counts_all(
    first: np.ndarray[Any, np.dtype[np.float64]], second: np.ndarray[Any, np.dtype[np.float64]]
) -> None:
    sheet = Sheet.of_scores(first)
    merged = sheet.merge(Sheet.of_scores(second))
    n_items = max(len(first), len(second))
    one = np.append(first, np.full(n_items - len(first), np.nan))
    two = np.append(second, np.full(n_items - len(second), np.nan))
    np.testing.assert_array_equal(sheet.scores(n_items), np.where(np.isnan(one), two, one))
    n_given = np.count_nonzero(~np.isnan(two))
    assert merged.taken + merged.duplicates + merged.conflicts == n_given


@given(SCORES, st.randoms(use_true_random=False))
def test_moving_a_sheet_moves_every_answer_with_its_item(
    scores: np.ndarray[Any, np.dtype[np.float64]], random: Any
) -> None:
    columns = np.array(random.sample(range(60), len(scores)), np.intp)
    moved = Sheet.of_scores(scores).moved(columns).scores(60)
    np.testing.assert_array_equal(moved[columns], scores)
    assert np.count_nonzero(~np.isnan(moved)) == np.count_nonzero(~np.isnan(scores))


async def test_each_reason_names_its_first_places(sets: ResponseSetService) -> None:
    line = json.dumps({"subject_id": "m", "responses": {"q": 1}}) + "\n"
    report = await sets.import_set("s", table(line * 30, "x.jsonl"))
    (skipped,) = report.skipped
    places = tuple(f"x.jsonl:{row}: 'm'" for row in range(2, 12))
    assert skipped == SkippedRows("duplicate", 29, places)


async def test_a_small_file_that_would_fill_the_memory_is_refused(
    sets: ResponseSetService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.services.responses.imports.MAX_BYTES", 10_000)
    rows = [{"subject_id": f"m{n}", "responses": {f"q{n}": 0.5}} for n in range(100)]
    text = "\n".join(map(json.dumps, rows))
    with pytest.raises(InvalidInputError, match="import in parts"):
        await sets.import_set("s", table(text, "x.jsonl"))
    await sets.import_set("s", table("\n".join(map(json.dumps, rows[:30])), "x.jsonl"))
    late = [{"subject_id": f"n{n}", "responses": {"late": 1}} for n in range(400)]
    with pytest.raises(InvalidInputError, match="import in parts"):
        await sets.import_into("s", table("\n".join(map(json.dumps, late)), "x.jsonl"))


async def test_files_of_the_same_examinees_are_limited_by_their_memory(
    sets: ResponseSetService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.services.responses.imports.MAX_BYTES", 2 * 50 * 10)
    files = [
        SourceFile.of_bytes(
            f"{n}.csv", f"model,{','.join(f'b{n}q{j}' for j in range(10))}\n".encode()
            + b"m1" + b",1" * 10 + b"\nm2" + b",0" * 10 + b"\n",
        )
        for n in range(50)
    ]  # fmt: skip
    report = await sets.import_set("s", AnswerImport(files=files))
    assert report.accepted == 2 * 50 * 10


async def test_imports_at_the_same_time_lose_nothing(sets: ResponseSetService) -> None:
    requests = [table(f"model,q,q{n}\nm{n},1,0\nm,,1\n") for n in range(6)]
    # The first import creates the set; the others find it.
    reports = await asyncio.gather(*(sets.import_set("s", request) for request in requests))
    assert all(report.accepted == 3 for report in reports)
    found = await sets.get("s")
    assert (found.n_examinees, found.n_items, found.outcomes["scored"]) == (7, 7, 18)
    matrix = await sets.matrix("s")
    for n in range(6):
        row = matrix.scores[matrix.examinees.index(f"m{n}")]
        assert row[matrix.items.index("q")] == 1
        assert row[matrix.items.index(f"q{n}")] == 0
    assert np.nansum(matrix.scores[matrix.examinees.index("m")]) == 6


#: Characters of array literals and placeholders of parameters.
NAMES = [
    *("NULL", "null", "", "a,b", 'a"b', "a\\b", "{x}", "{}", '"', "\\", '\\"', "'", "x\ny", "\t"),
    *(" lead", "trail ", "é\u2028", "😀", "\x01", "%s", ":set_id", "a" * 2000),
]


async def read_back(database: Database, response_set: ResponseSet) -> list[StoredSheet]:
    async with database.snapshot() as uow:
        assert await uow.response_sets.item_keys(response_set.id) == NAMES
        return [sheet async for sheet in uow.response_sets.sheets(response_set.id)]


@pytest.mark.parametrize("answers_at_once", [2**22, 3 * len(NAMES), 1])
async def test_batches_are_read_back(
    database: Database, monkeypatch: pytest.MonkeyPatch, answers_at_once: int
) -> None:
    monkeypatch.setattr(response_sets, "_BATCH_ANSWERS", answers_at_once)
    made = replace(new_set("answers"), n_items=len(NAMES))
    sheets = [
        StoredSheet(name, 1, bytes([at, 0, 255, 34, 92]), None if at % 2 else bytes(16))
        for at, name in enumerate(NAMES)
    ]
    async with database.unit_of_work() as uow:
        await uow.response_sets.add(made)
        written = await uow.response_sets.extend(
            made, items=dict(enumerate(NAMES)), added=list(enumerate(sheets)), changed=[]
        )
    assert written.revision == made.revision + 1
    assert await read_back(database, made) == sheets

    changed = [replace(sheet, codes=b"", fractions=None) for sheet in sheets]
    async with database.unit_of_work() as uow:
        await uow.response_sets.extend(written, items={}, added=[], changed=changed)
    assert await read_back(database, made) == changed

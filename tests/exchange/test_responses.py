import contextlib
import gzip
import io
import threading
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from typing_extensions import override

from app.engine.bank import ItemBank
from app.engine.responses import ResponseTable
from app.errors import FileFormatError, InvalidInputError
from app.exchange.names import align, match_names
from app.exchange.responses import read_parts, read_responses
from app.exchange.results.recorded import LeftOut, TrialTable

WIDE = b"model,q1,q2,q3\nalpha,1,0,\nbeta,NA,0.5,1\n"
LONG = b"examinee,item,score\nalpha,q1,1\nbeta,q2,0.5\nalpha,q2,0\nbeta,q3,1\n"


def parquet(named: Mapping[str, list[object]] = {}, **columns: list[object]) -> bytes:
    sink = io.BytesIO()
    pa_parquet.write_table(pa.table({**named, **columns}), sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        WIDE,
        LONG,
        gzip.compress(WIDE, mtime=0),
        gzip.compress(LONG, mtime=0),
        b"\xef\xbb\xbf" + WIDE.replace(b"\n", b"\r\n"),
        WIDE.rstrip(),
        WIDE.replace(b"1,0,\n", b"True,FALSE,\n"),
        LONG.replace(b",1\n", b",true\n"),
        b",q1,q2,q3\nalpha,1,0,\nbeta,NA,0.5,1\n",
        WIDE.replace(b"q1", b" q1 ").replace(b"alpha", b"alpha "),
        LONG.replace(b"alpha,q2", b" alpha, q2"),
        b"score,item_id,model\n1,q1,alpha\n0.5,q2,beta\n0,q2,alpha\n1,q3,beta\n",
        b",model_name,Question,is correct\n0,alpha,q1,1\n1,beta,q2,.5\n2,alpha,q2,0\n3,beta,q3,1\n",
        LONG.replace(b"examinee,item,score", b"subject-id,doc_id,exact_match"),
        parquet({"model": [" alpha", "beta"], " q1": [1, None]}, q2=[0.0, 0.5], q3=[None, True]),
        parquet(model=["alpha", "beta"], q1=["True", None], q2=["FALSE", "0.5"], q3=["NA", "true"]),
        parquet(
            subject_id=["alpha", "beta", "alpha", "beta"],
            item_id=["q1", "q2", "q2", "q3"],
            response=[1.0, 0.5, 0.0, 1.0],
        ),
    ],
)
def test_every_format_reads_alike(content: bytes) -> None:
    for source in (content, io.BytesIO(content)):
        table = read_responses(source)
        assert table.examinees == ("alpha", "beta")
        assert table.items == ("q1", "q2", "q3")
        np.testing.assert_array_equal(table.scores, [[1, 0, np.nan], [np.nan, 0.5, 1]])
        assert table.n_answers == 4


@pytest.mark.parametrize("missing", [b"", b"NA", b"NaN", b"nan", b"null", b"None"])
def test_values_for_missing_are_no_scores(missing: bytes) -> None:
    table = read_responses(b"model,q1,q2\nalpha,1," + missing + b"\n")
    assert np.isnan(table.scores[0, 1])


def test_rows_of_a_long_file_without_a_score_are_left_out_one_by_one() -> None:
    content = b"examinee,item,score\nalpha,q1,\nalpha,q2,1\nalpha,q3,NaN\n"
    first, second, part = read_parts(content)
    assert [first, second] == [LeftOut(row, "not_scored", "the score is empty") for row in (2, 4)]
    assert isinstance(part, TrialTable)
    assert part.table.n_answers == read_responses(content).n_answers == 1


def test_numbers_are_names_of_items_and_examinees() -> None:
    long = read_responses(b"model,question,correct\n1,0,1\n0,1,1\n")
    assert (long.examinees, long.items) == (("1", "0"), ("0", "1"))
    wide = read_responses(b"model,0,1,12\n7,1,0,1\n")
    assert (wide.examinees, wide.items) == (("7",), ("0", "1", "12"))


@pytest.mark.parametrize(
    ("content", "problems"),
    [
        (
            b"model,q1,q2\na,1,yes\nb,no,0\n",
            [("r.csv:3:q1", "a score, got 'no'"), ("r.csv:2:q2", "a score, got 'yes'")],
        ),
        (
            b"model,q1,q2\na,1,2\nb,-1,0\n",
            [("r.csv:2:q2", "[0.0, 1.0], got 2"), ("r.csv:3:q1", "[0.0, 1.0], got -1")],
        ),
        (
            b"model,q1\na,1.0000000001\nb,1\n",
            [("r.csv:2:q1", "[0.0, 1.0], got 1.0000000001")],
        ),
        (b"model,q1\na,1\nb,0\na,0\n", [("r.csv:4:model", "each examinee once, got 'a'")]),
        (b"model,q1\n,1\n", [("r.csv:2:model", "a name, got nothing")]),
        (b"model,q1,q1\na,1,1\n", [("r.csv:1:q1", "each column once, got 'q1'")]),
        (b"model,q1,\na,1,1\n", [("r.csv:1:3", "an item id, got an empty name")]),
        (b"model,q1,q2\na,1,1\nb,1\n", [("r.csv:3", "expected 3 cells, got 2")]),
        (
            b"examinee,item,score\na,q,1\na,q,1\nb,q,3\n",
            [("r.csv:3", "another for 'a', 'q'"), ("r.csv:4:score", "[0.0, 1.0], got 3")],
        ),
        (b"examinee,item,score\na,,1\n", [("r.csv:2:item", "a name, got nothing")]),
        (b"examinee,item,score\na,q,right\n", [("r.csv:2:score", "a score, got 'right'")]),
        (b"examinee,item,score\na,q,true\nb,q,0_1\n", [("r.csv:3:score", "got '0_1'")]),
        (b"model,q1,q2\na,true,1\nb,1\n", [("r.csv:3", "expected 3 cells, got 2")]),
        (b"model,q1\na,2\nb,False\n", [("r.csv:2:q1", "[0.0, 1.0], got 2")]),
        (b'model,"q\n1",q2\nm1,1,0\n"m\n2",1\n', [("r.csv:3", "expected 3 cells, got 2")]),
        (b"examinee,item,trial,score\nm,q,1,1\nm,q,1,0\n", [("r.csv:3", "another for 'm', 'q'")]),
        (
            b"examinee,item,trial,score\nm,q,1.5,1\nn,q,,1\n",
            [("r.csv:2:trial", "a whole number"), ("r.csv:3:trial", "a whole number")],
        ),
        (
            parquet(model=["a"], q1=["right"]),
            [("r.csv:2:q1", "expected a score, got 'right'")],
        ),
    ],
)
def test_faults_are_listed_with_file_row_and_column(
    content: bytes, problems: list[tuple[str, str]]
) -> None:
    with pytest.raises(FileFormatError) as refused:
        read_responses(content, name="r.csv")
    found = refused.value.problems
    assert sorted(p.pointer for p in found) == sorted(pointer for pointer, _ in problems)
    for pointer, words in problems:
        assert any(p.pointer == pointer and words in p.detail for p in found)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the file is empty"),
        (b"model,q1\na,40\n", "got 40. For scores from 0 to 100 give --score-range 0 100"),
        (b"model\na\n", "a column for each item"),
        (b"model,item,score,cost\na,1,1,0\n", "perhaps trial, got model, item, score, cost"),
        (b"item,a,b\nq1,1,0\n", r"responses:1: .* column 'item' .* score \(or .*, got item, a, b"),
        (b"llm,doc_id,acc\na,0,1\nb,1,0\n", "perhaps trial, got llm, doc_id, acc"),
        (b"subject,question_id,correct\nlaw,1,1\n", "subject may be a topic: if these are mod"),
        (b"model,item,acc,score\na,0,1,1\n", "each once, .* got model, item, acc, score"),
        (b"llm,prompt,mark\na,0,1\na,1,1\n", "once, got 'a'. If each row is one answer, name"),
        (b"llm,prompt,mark\na,x,1\n", "^responses:2:prompt: .* got 'x'. If each row is one"),
        (parquet(llm=["a"], prompt=["x"], mark=[1]), "'x'. If each row is one answer"),
        (
            b"n,prompt,mark\n1,12,1\n",
            r"lab. If each row .* its columns examinee, item and score\.$",
        ),
        (b"model;q1\na;1\n", "Cells are separated by commas"),
        (b"model,q1\n", "a row of scores below the header"),
        (b"model,q1\na,\n", "got empty cells alone"),
        (b"PAR1 and nothing else", "Parquet"),
        (b"\x1f\x8bbroken", "gzip"),
        (b"model,q1\n\xff,1\n", "UTF"),
        (b'model,"q1\na,1\n', "header"),
    ],
)
def test_bytes_that_are_no_responses_are_refused(content: bytes, words: str) -> None:
    with pytest.raises(FileFormatError, match=words):
        read_responses(content)


def test_other_ranges_of_scores_can_be_allowed() -> None:
    judged = b"model,q1\na,7\nb,10\n"
    assert read_responses(judged, score_range=(1, 10)).scores[:, 0].tolist() == [7.0, 10.0]
    assert read_responses(judged, score_range=None).scores[:, 0].tolist() == [7.0, 10.0]
    with pytest.raises(FileFormatError, match="got 10"):
        read_responses(judged, score_range=(1, 9))
    with pytest.raises(FileFormatError, match="got inf"):
        read_responses(b"model,q1\na,inf\n", score_range=None)


def test_a_table_needs_names_that_fit_its_shape() -> None:
    with pytest.raises(InvalidInputError, match=r"\(1, 2\)"):
        ResponseTable(("a",), ("x", "y"), np.zeros((1, 3)))
    with pytest.raises(InvalidInputError, match="'x' occurs twice"):
        ResponseTable(("a",), ("x", "x"), np.zeros((1, 2)))


# Names changed by R


def test_names_changed_by_r_are_matched_and_reported() -> None:
    match = match_names(["1", "X2", "a-b", "plain"], ["X1", "2", "a.b", "plain"])
    assert match.found == {"1": "X1", "X2": "2", "a-b": "a.b", "plain": "plain"}
    assert match.renamed == {"1": "X1", "X2": "2", "a-b": "a.b"}
    assert match.unknown == ()


@pytest.mark.parametrize(
    ("names", "known"),
    [(["1"], ["X1", "1"]), (["X1", "1"], ["X1"]), (["1", "X1"], ["1", "X1"])],
)
def test_an_exact_name_takes_precedence(names: list[str], known: list[str]) -> None:
    match = match_names(names, known)
    assert match.renamed == {}
    assert all(name == item for name, item in match.found.items())


def test_ambiguous_names_are_not_guessed() -> None:
    assert match_names(["a.b"], ["a-b", "a+b"]).unknown == ("a.b",)
    assert match_names(["a-b", "a+b"], ["a.b"]).unknown == ("a-b", "a+b")


def test_columns_are_put_in_the_order_of_the_bank() -> None:
    bank = ItemBank.from_intercepts(
        a=[1.0, 1.0, 1.0], intercept=[0.0, 0.0, 0.0], item_ids=["q3", "q1", "q9"]
    )
    aligned = align(read_responses(WIDE), bank)
    np.testing.assert_array_equal(aligned.scores, [[np.nan, 1, np.nan], [1, np.nan, np.nan]])
    assert aligned.match.unknown == ("q2",)
    assert aligned.n_skipped == 2


def test_nothing_in_common_is_refused_with_examples_of_both() -> None:
    bank = ItemBank.from_intercepts(a=[1.0], intercept=[0.0], item_ids=["other"])
    with pytest.raises(InvalidInputError, match=r"'q1'.*'other'"):
        align(read_responses(WIDE), bank)


def test_words_below_numbers_lose_no_row_and_repeat_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.exchange.table_batches.BLOCK_BYTES", 64)
    rows = [f"model-{n},{n % 2},{'01'[n % 3 == 0]}" for n in range(40)]
    words = [row.replace(",1", ",true").replace(",0", ",false") for row in rows[25:]]
    plain, mixed = (
        read_responses("\n".join(("model,q1,q2", *some, "")).encode())
        for some in (rows, rows[:25] + words)
    )
    assert mixed.examinees == plain.examinees
    np.testing.assert_array_equal(mixed.scores, plain.scores)


@pytest.mark.parametrize("cell", ["1", "2", "x"])
def test_a_short_file_is_read_by_no_thread_that_may_outlive_the_command(cell: str) -> None:
    readers = set()

    class Watched(io.BytesIO):
        @override
        def read(self, size: int | None = -1, /) -> bytes:
            readers.add(threading.current_thread())
            return super().read(size)

    source = Watched(f"model,a,b\nm1,1,0\nm2,0,{cell}\n".encode())
    with contextlib.suppress(FileFormatError):
        read_responses(source)
    assert readers == {threading.current_thread()}


def test_a_cell_of_a_long_file_that_is_no_number_is_reported_with_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.exchange.table_batches.BLOCK_BYTES", 64)
    rows = [f"m{i},1,0" for i in range(40)]
    assert len(read_responses("\n".join(["model,a,b", *rows]).encode()).examinees) == 40
    rows[30] = "m30,1,x"
    with pytest.raises(FileFormatError, match="responses:32:b: expected a score, got 'x'"):
        read_responses("\n".join(["model,a,b", *rows]).encode())

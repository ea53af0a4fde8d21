"""`sextant banks`, called as from a shell on an own database."""

import gzip
import json
from base64 import b64decode
from functools import partial
from pathlib import Path

import pytest

from app.cli.bank import from_results, sent_results
from app.exchange.results.recorded import SourceFile
from tests.cli import shell

pytestmark = pytest.mark.usefixtures("own_database")
done, refused = partial(shell.done, "banks"), partial(shell.refused, "banks")

ITEMS = "\n".join(
    json.dumps(item)
    for item in (
        {"key": "1", "prompt": "2 + 2 = ?", "target": "4"},
        {"key": "2", "prompt": "2 + 3 = ?", "choices": ["5", "6"], "target": "A"},
        {"key": "3", "prompt": "2 + 2 = ?", "target": "4"},
    )
)
MIRT = ",a1,d,g,u\nX1,1,0.5,0,1\nX2,-1,0.5,0.2,1\nX3,1,0,0,1\nX9,1,0,0,1\n"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    items, parameters = tmp_path / "items.jsonl", tmp_path / "bank.csv"
    items.write_text(ITEMS, encoding="utf-8")
    parameters.write_text(MIRT, encoding="utf-8")
    return items, parameters


def test_a_bank_is_imported_listed_shown_and_linted(files: tuple[Path, Path]) -> None:
    items, parameters = files
    arguments = ("import", "sums", "--items", items, "--parameters", parameters)
    assert "nothing was stored" in done(*arguments, "--dry-run").stderr
    assert "sums" not in done("list").stdout

    result = done(*arguments, "--allow", "negative_slope", "--scorer", "numeric")
    assert "items: 3 read, 3 accepted" in result.stdout
    assert "parameters: 4 read, 3 accepted, 1 skipped (no_matching_item)" in result.stdout
    assert "3 parameter names matched as R spells them: X1 = 1, X2 = 2, X3 = 3" in result.stdout
    assert "error: negative_slope" in result.stdout
    assert "2 active, 1 quarantined, 0 pretest" in result.stdout
    again = done(*arguments, "--allow", "negative_slope").stdout
    assert "nothing new: the latest version says all of this\nversion 1: 3pl" in again

    listed = done("list").stdout.splitlines()[1].split()
    assert listed[:5] == ["sums", "3", "1", "2", "3pl"]
    assert "no bank 'sumz'. Did you mean 'sums'? `sextant banks list`" in refused("show", "sumz")
    shown = done("show", "sums").stdout
    assert "scorer      numeric" in shown
    assert "version 1: 3pl, scale sums-v1-" in shown

    findings = done("lint", "sums").stdout.splitlines()
    assert [line.split()[:3] for line in findings[:2]] == [
        ["error", "negative_slope", "active"],
        ["error", "duplicate_content", "quarantined"],
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "none"), "There is no bank 'none'. `sextant banks list`"),
        (("import", "sums"), "got neither"),
        (("import", "a/b", "--parameters", "FILE"), "without / :"),
        (("import", "sums", "--parameters", "FILE", "--scorer", "exakt"), "Did you mean 'exact'"),
        (("import", "sums", "--parameters", "FILE", "--response-model", "2pl"), "not of a 2pl one"),
        (("import", "sums", "--items", "FILE"), "wrong columns; known are a, b, c, choices, d, "),
        (("import", "sums", "--items", "FILE"), " no such column: 'a1'"),
        (("from-results", "sums", "FILE", "--model", "5pl"), "did you mean '4pl'?"),
    ],
)
def test_an_impossible_request_gives_one_clear_message(
    files: tuple[Path, Path], arguments: tuple[str, ...], message: str
) -> None:
    assert message in refused(*(files[1] if part == "FILE" else part for part in arguments))


def test_a_faulty_item_file_is_refused_with_the_place(tmp_path: Path) -> None:
    lines = ({"key": f"q{n}", "prompt": "p", "target": t} for n, t in ((1, "1,000 m"), (2, "see")))
    file = tmp_path / "bad.jsonl"
    file.write_text("\n".join(json.dumps(line | {"scorer": "numeric"}) for line in lines))
    assert (
        "items:2:target: expected a number or a formula, with which `numeric` compares answers,"
        " got 'see' of item 'q2'."
    ) in refused("import", "sums", "--items", file)
    assert "sums" not in done("list").stdout


@pytest.mark.usefixtures("own_server")
def test_a_bank_is_exported_and_comes_back_the_same(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    items, _ = files
    parameters, target = tmp_path / "abcd.csv", tmp_path / "out.parquet"
    parameters.write_text("item,a,b,c,d\n1,1.2,0.3,0.25,1\n2,0.7,-0.1,0,1\n3,-0.4,2,0,1\n")
    done("import", "sums", "--items", items, "--parameters", parameters)
    exported = done("export", "sums", "--format", "parquet", "--out", target)
    assert "Wrote version 1 to " in exported.stdout
    assert target.read_bytes().startswith(b"PAR1")
    done("import", "copy", "--items", items, "--parameters", target)
    printed = done("export", "copy", "--version", "1").stdout
    assert printed.startswith("X,a1,d,g,u\n1,1.2,-0.36,0.25,1.0\n")
    assert printed == done("export", "sums").stdout
    assert not list(tmp_path.glob(".*.part"))


def test_an_impossible_export_gives_one_clear_message(tmp_path: Path) -> None:
    parameters = tmp_path / "flat.csv"
    parameters.write_text("X,a1,d,g,u\nq,1,0,0,1\n=flat,0,0.5,0,1\n")
    done("import", "flat", "--parameters", parameters)
    target = tmp_path / "out.csv"
    for words, message in (
        (("export", "flat", "--format", "py-irt", "--out", target), "'=flat'. Export mirt"),
        (("export", "flat", "--version", "7"), "There is no version of bank 'flat': '7'"),
        (("export", "none"), "There is no bank 'none'"),
        (("export", "flat", "--format", "xlsx"), "xlsx"),
    ):
        assert message in refused(*words)
    assert not target.exists()
    done("export", "flat", "--out", target)
    assert target.read_text().endswith("\n'=flat,0.0,0.5,0.0,1.0\n")


@pytest.mark.usefixtures("own_server")
def test_a_server_lists_the_banks_of_its_database(files: tuple[Path, Path]) -> None:
    done("import", "bare", "--items", files[0], "--scorer", "numeric")
    imported = ("import", "sums", "--items", files[0], "--parameters", files[1])
    done(*imported, "--allow", "negative_slope", "--scorer", "numeric")
    listed = done("list").stdout
    assert len(listed.splitlines()) == 4  # a head, and the demo's bank
    assert listed == done("list", "--server", "local").stdout


def test_questions_that_all_models_answered_alike_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    version = {
        "id": "bkv_1",
        "number": 1,
        "response_model": "2pl",
        "scale": "s",
        "has_content": True,
        "parameters_hash": "",
        "provisional": False,
        "lint": {"items": {"active": 9, "quarantined": 0, "pretest": 0}},
    }
    result = {
        "kept": {"examinees": 8, "items": 9},
        "dropped_items": {"reasons": {"no_answers": 1}},
        "score_only_items": {"reasons": {"constant": 3, "low_point_biserial": 2}},
    }
    calibration = {
        "id": "cal_1",
        "status": "completed",
        "created_at": "2026-11-30T10:00:00Z",
        "response_set_id": "rsp_1",
        "bank_id": "bnk_1",
        "bank_version_id": "bkv_1",
        "publication_failure": None,
        "result": result,
    }
    from_results._show("mine", {"choices": []}, calibration, version)
    told = capsys.readouterr().out
    assert "Questions that are left out: 1 no answers\n" in told
    assert (
        "Questions that count in the score, tell nothing about ability: 3 all right or all wrong, "
        "2 unrelated to the rest of the score\n"
    ) in told


def test_each_part_of_a_large_file_has_all_filters_of_its_documents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [
        {"doc_id": number, "resps": [["4"]], "filter": name}
        for name in ("strict", "flexible")
        for number in range(2)
    ]
    file = SourceFile.of_bytes("m/samples_sums.jsonl", "\n".join(map(json.dumps, rows)).encode())

    def sent() -> list[list[tuple[int, str]]]:
        return [
            [(row["doc_id"], row["filter"]) for row in map(json.loads, content.splitlines())]
            for (part,) in sent_results._parts([file])
            for content in [gzip.decompress(b64decode(part["content_base64"]))]
        ]

    assert sent() == [[(0, "strict"), (1, "strict"), (0, "flexible"), (1, "flexible")]]
    monkeypatch.setattr(sent_results, "_PIECE", 100)
    assert sent() == [[(n, name) for name in ("strict", "flexible")] for n in range(2)]

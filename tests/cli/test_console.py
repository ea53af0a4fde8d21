"""What the terminal shows of an error."""

import io

import pytest
from rich.table import Table

from app.cli.bank import catalog
from app.cli.terminal import console, tables
from app.errors import FieldProblem, InvalidInputError


@pytest.mark.parametrize(
    ("detail", "problems", "lines"),
    [
        ("/seed: expected a number.", [("/seed", "expected a number")], 1),
        ("base_url is no URL.", [("/base_url", "base_url is no URL.")], 1),
        ("The ranking has it twice.", [("/endpoints/1", "expected each endpoint once")], 2),
        ("2 fields cannot be used.", [("/a", "not known"), ("/b", "not known")], 3),
    ],
)
def test_a_single_fault_is_told_once(
    detail: str, problems: list[tuple[str, str]], lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    console.show_error(
        InvalidInputError(detail, problems=[FieldProblem(*problem) for problem in problems])
    )
    assert len(capsys.readouterr().err.strip().splitlines()) == lines


def test_nothing_in_a_pipe_is_cut_or_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    text = io.StringIO()
    pipe = console.SafeConsole(file=text)
    monkeypatch.setattr(tables, "out", pipe)
    long = [f"{letter * 40} {letter * 40}" for letter in "ab"]
    table = Table(*long, box=None)
    table.add_row(*long)
    pipe.print(table)
    pipe.print(" ".join(long))
    tables.show_table(("id", "名前"), [(long[0], "x"), ("名前", long[1])])
    written = text.getvalue().splitlines()
    assert len(written) == 6
    assert all(each in written[1] for each in long)
    assert written[2] == " ".join(long)
    assert written[3:] == [f"id{' ' * 79}  名前", f"{long[0]}  x", f"名前{' ' * 77}  {long[1]}"]


def test_a_narrow_terminal_cuts_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    screen = io.StringIO()
    monkeypatch.setattr(tables, "out", console.SafeConsole(file=screen))
    tables.show_table(("id", "status"), [("ses_01jd0000000000000000000000", "running")])
    assert "ses_01jd0000000000000000000000  running\n" in screen.getvalue()


def test_a_terminal_breaks_sentences_between_words_and_no_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    screen = io.StringIO()
    address = "http://127.0.0.1:8000/sessions/ses_01jd0000000000000000000000"
    console.SafeConsole(file=screen).say(f"At the latest at fifty questions: {address} tells")
    assert screen.getvalue().splitlines() == [
        "At the latest at",
        "fifty questions:",
        address,
        "tells",
    ]


def test_a_phase_that_lasts_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress = catalog._Progress()
    for phase in ("fetching", "joining", "joining", "writing", "writing"):
        progress.tell({"phase": phase})
    for done in (1, 2, 30, 99):
        progress.tell({"phase": "fetching", "file": "f", "bytes": done, "of_bytes": 100})
    told = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in told] == ["joining", "writing", *["fetching f"] * 3]


def test_a_word_between_colons_is_no_picture() -> None:
    shown = io.StringIO()
    terminal = console.SafeConsole(file=shown)
    table = Table()
    table.add_row("item:x:1")
    terminal.say("found 'root:x:0'")
    terminal.print("root:smile:0", table)
    assert all(text in shown.getvalue() for text in ("root:x:0", "root:smile:0", "item:x:1"))

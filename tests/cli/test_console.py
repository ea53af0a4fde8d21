"""Terminal output: layout, and text of servers or models that must not act as control codes."""

import io
import json

import pytest
from rich.table import Table

from app.cli import main
from app.cli.bank import catalog
from app.cli.terminal import console
from app.errors import FieldProblem, InvalidInputError, NotFoundError
from sextant_client.models import Interval
from tests.cli.shell import done


@pytest.mark.parametrize(
    ("detail", "problems", "lines"),
    [
        ("/seed: expected a number.", [("/seed", "expected a number")], 1),
        ("base_url is no URL.", [("/base_url", "base_url is no URL.")], 1),
        ("The ranking has it twice.", [("/endpoints/1", "expected each endpoint once")], 2),
        ("2 fields cannot be used.", [("/a", "not known"), ("/b", "not known")], 3),
        ("2 faults, the first: /a: not known.", [("/a", "not known"), ("/b", "not known")], 2),
    ],
)
def test_a_single_fault_is_shown_once(
    detail: str, problems: list[tuple[str, str]], lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    console.show_error(
        InvalidInputError(detail, problems=[FieldProblem(*problem) for problem in problems])
    )
    assert len(capsys.readouterr().err.strip().splitlines()) == lines


@pytest.mark.parametrize(
    ("kind", "command"),
    [("bank", "banks list"), ("entry of the catalogue", "banks catalog"), ("item", "banks export")],
)
def test_what_is_missing_is_followed_by_where_to_look(
    kind: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    console.show_error(NotFoundError(kind, "none"))
    assert f"There is no {kind} 'none'. `sextant {command}" in capsys.readouterr().err


def test_nothing_in_a_pipe_is_cut_or_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    text = io.StringIO()
    pipe = console.SafeConsole(file=text)
    monkeypatch.setattr(console, "out", pipe)
    long = [f"{letter * 40} {letter * 40}" for letter in "ab"]
    table = Table(*long, box=None)
    table.add_row(*long)
    pipe.print(table)
    pipe.print(" ".join(long))
    console.show_table(("id", "名前"), [(long[0], "x"), ("名前", long[1])])
    written = text.getvalue().splitlines()
    assert len(written) == 6
    assert all(each in written[1] for each in long)
    assert written[2] == " ".join(long)
    assert written[3:] == [f"id{' ' * 79}  名前", f"{long[0]}  x", f"名前{' ' * 77}  {long[1]}"]


def test_a_narrow_terminal_cuts_no_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    screen = io.StringIO()
    monkeypatch.setattr(console, "out", console.SafeConsole(file=screen))
    console.show_table(("id", "status"), [("ses_01jd0000000000000000000000", "running")])
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


def test_the_local_catalogue_shows_how_each_bank_was_asked() -> None:
    listed = done("banks", "catalog", "--server", "local").stdout.splitlines()
    lines = {line.split()[0]: line for line in listed}
    assert "generate, 5-shot" in lines["gsm8k"]
    assert "here, of 134 agents" in lines["swebench-verified"]


def test_a_long_phase_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress = catalog._Progress()
    for phase in ("fetching", "joining", "joining", "writing", "writing"):
        progress.tell({"phase": phase})
    for size in (1, 2, 30, 99):
        progress.tell({"phase": "fetching", "file": "f", "bytes": size, "of_bytes": 100})
    told = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in told] == ["joining", "writing", *["fetching f"] * 3]


def test_colons_make_no_emoji_and_brackets_no_style() -> None:
    shown = io.StringIO()
    terminal = console.SafeConsole(file=shown)
    table = Table("[head]", title="[title]")
    table.add_row("item:x:1 [b]")
    terminal.say("found 'root:x:0' [said]")
    terminal.print("root:smile:0 [red]", table, style="bold")
    texts = ("root:x:0", "root:smile:0", "item:x:1", "[b]", "[said]", "[red]", "[head]", "[title]")
    assert [text for text in texts if text not in shown.getvalue()] == []


#: Escape, CSI and OSC of one character, bell, delete, carriage return, bidi override, line
#: separator, tag.
OBEYED = "\x1b\x9b\x9d\x07\x7f\r\u202e\u2066\u2028\U000e0041"
HOSTILE = f"mo{OBEYED}[31mdel\x1b]0;title\x07"


def _terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    screen = io.StringIO()
    for each in (console.out, console.err):
        monkeypatch.setattr(each, "_file", screen)
        monkeypatch.setattr(each, "_force_terminal", True)
    return screen


@pytest.mark.parametrize("style", [None, "bold"])
def test_foreign_text_is_shown_without_control_codes(
    style: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = _terminal(monkeypatch)
    table = Table(title=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    console.out.print(table)
    console.out.print(HOSTILE, style=style, soft_wrap=True)
    problems = [FieldProblem(HOSTILE, HOSTILE), FieldProblem(HOSTILE, HOSTILE)]
    console.show_error(InvalidInputError(HOSTILE, problems=problems))
    console.show_warning(HOSTILE)
    shown = screen.getvalue()
    own = shown.replace("\x1b[", "")  # styles of rich are plain CSI sequences
    assert "\x1b" not in own
    assert not set(own) & set(OBEYED)
    assert "\x1b[31mdel" not in shown
    assert "]0;title" in shown


def test_json_for_the_terminal_is_equal_and_without_control_codes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = {HOSTILE: [HOSTILE, "Größe 数\tand\nlines"]}
    console.write_json("-", document)
    written = capsys.readouterr().out
    assert json.loads(written) == document
    assert not set(written) & set(OBEYED)
    assert "Größe 数" in written


def test_output_outside_ascii_ends_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", log)
    monkeypatch.setattr("sys.argv", ["sextant", "--version"])
    with pytest.raises(SystemExit):
        main()
    console.SafeConsole().say("±5 points")
    console.write_json("-", {"margin": "±5"})
    log.seek(0)
    _, text, document = log.read().split("\n", 2)
    assert text == "?5 points"
    assert json.loads(document) == {"margin": "±5"}


def test_no_number_is_a_negative_zero() -> None:
    assert [console.number(one, "+z.1f") for one in (-0.04, -0.06)] == ["+0.0", "-0.1"]
    ends = Interval(lo=-0.0004, hi=0.02, level=0.95)
    assert console.interval(ends, times=100.0) == "-0.04 to +2.00"
    assert console.interval(ends) == "+0.00 to +0.02"

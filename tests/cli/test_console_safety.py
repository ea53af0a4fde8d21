"""Nothing that a server or a model writes is obeyed by the terminal."""

import io
import json

import pytest
from rich.table import Table

from app.cli.terminal import console
from app.errors import FieldProblem, InvalidInputError

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
def test_what_others_wrote_is_shown_and_not_obeyed(
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
    own = shown.replace("\x1b[", "")  # rich's own styles are plain CSI sequences
    assert "\x1b" not in own
    assert not set(own) & set(OBEYED)
    assert "\x1b[31mdel" not in shown
    assert "]0;title" in shown


def test_json_for_the_terminal_means_the_same_and_obeys_nobody(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = {HOSTILE: [HOSTILE, "Größe 数\tand\nlines"]}
    console.write_json("-", document)
    written = capsys.readouterr().out
    assert json.loads(written) == document
    assert not set(written) & set(OBEYED)
    assert "Größe 数" in written

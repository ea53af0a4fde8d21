"""All commands: those that need stored data talk to a server, and only to it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from app.cli import PANELS, build, main
from app.cli.terminal.options import share_of
from app.errors import InvalidInputError
from tests.cli.shell import done, refused

#: Commands that work on files, this machine, a local database, or the login.
_WITHOUT = {
    *("estimate", "simulate", "rank-simulate", "calibrate", "lint", "reproduce"),
    *("demo", "demo-model", "serve", "worker", "migrate", "backup", "restore"),
    "keys rotate-secret",
    "logout",
}
#: Prints the address of a page without a request.
_ASKS_NOBODY = {"open"}
#: Arguments that a command needs beyond its required parameters.
_MORE = {
    "gate": (
        *("--endpoint", "http://127.0.0.1:9/v1", "--model", "m", "--bank", "b"),
        *("--threshold", "0.5"),
    ),
    "rank": ("--endpoint", "two"),
    "sessions extend": ("--max-items", "9"),
    "response-sets import": ("FILE",),
    "banks import": ("--items", "FILE"),
    "report": ("--version", "x"),
    "compose": ("--version", "x"),
}


def _leaves(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", None)
    if children is None:
        yield name, command
        return
    for child, found in children.items():
        yield from _leaves(found, f"{name} {child}".strip())


def _commands() -> Iterator[tuple[str, Any]]:
    for name in (name for commands in PANELS.values() for name in commands):
        group: Any = get_command(build(name))
        yield from _leaves(group.commands[name], name)


_ALL = dict(_commands())


def test_the_exceptions_are_commands() -> None:
    assert set(_ALL) >= _WITHOUT | _ASKS_NOBODY
    for name in set(_ALL) - {"login"}:  # takes the server as its argument
        command = _ALL[name]
        options = {option for parameter in command.params for option in parameter.opts}
        assert ("--server" in options) == (name not in _WITHOUT), name
        if not name.startswith("projects "):  # take the project as an argument
            assert ("--project" in options) == (name not in _WITHOUT | _ASKS_NOBODY), name
        assert ("--server-key" in options) == (name not in _WITHOUT | _ASKS_NOBODY), name


@pytest.mark.parametrize("name", sorted(set(_ALL) - _WITHOUT - _ASKS_NOBODY - {"login"}))
def test_a_command_with_a_server_starts_no_database(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none?connect_timeout=1")
    monkeypatch.setenv("SEXTANT_DATA_DIR", "/proc/none")
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "answers.csv"
    file.write_text("model,q1\na,1\n")
    words = name.split()
    for parameter in _ALL[name].params:
        if parameter.required:
            value = str(file) if parameter.name == "paths" else "1"
            words += [*(word for word in parameter.opts[:1] if word.startswith("-")), value]
    words += [str(file) if word == "FILE" else word for word in _MORE.get(name, ())]
    words += ["--yes"] * name.endswith(" delete")
    words += ["--server", "http://127.0.0.1:9", "--server-key", "sxt_x"]
    told = refused(*words, code=64 if name == "gate" else 2)
    assert "The Sextant server at http://127.0.0.1:9" in told
    assert "cannot be reached" in told


_DELETE = sorted(name for name in _ALL if name.endswith(" delete") and name != "banks delete")


@pytest.mark.parametrize("name", _DELETE)
def test_nothing_is_deleted_unasked(name: str) -> None:
    told = refused(*name.split(), "mine", "--server", "http://127.0.0.1:9")
    assert told.startswith("Error: Delete the ")
    assert told.endswith("There is no terminal to ask on: confirm with --yes.")


@pytest.mark.parametrize(
    ("words", "told"), [((), "rank-simulate"), (("lint", "--help"), "sextant lab lint [OPTIONS]")]
)
def test_lab_lists_only_its_commands_and_runs_them(
    words: tuple[str, ...],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["sextant", "lab", *words])
    with pytest.raises(SystemExit):
        main()
    shown = "".join(capsys.readouterr())
    assert told in shown
    assert "leaderboard" not in shown


@pytest.mark.usefixtures("own_database")
def test_a_command_works_in_the_project_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    items = tmp_path / "items.jsonl"
    items.write_text('{"key": "q", "prompt": "1 + 1?", "target": "2"}')

    done("projects", "create", "other")
    # Over the API of this process, and directly on the database.
    named = ("--project", "other")
    done("banks", "import", "sums", "--items", items, *named)
    saved = ("endpoints", "save", "mine", "--endpoint", "http://127.0.0.1:9/v1", "--model", "m")
    done(*saved, *named)
    for words in (("banks", "list"), ("endpoints", "list")):
        assert len(done(*words, *named).stdout.splitlines()) == 2
        assert len(done(*words).stdout.splitlines()) == 1
    monkeypatch.setenv("SEXTANT_PROJECT", "other")
    assert "mine" in done("endpoints", "list").stdout
    for words in (("banks", "list"), ("endpoints", "list")):
        assert "There is no project 'nope'" in refused(*words, "--project", "nope")


_WRITES = {"--json", "--out", "--output", "--junit", "--markdown"}


@pytest.mark.parametrize("name", sorted(_ALL))
def test_an_impossible_output_is_refused_before_any_work(name: str) -> None:
    for option in _WRITES & {option for one in _ALL[name].params for option in one.opts}:
        # Nothing else is given: the place is looked at before what the command needs.
        told = refused(*name.split(), option, "no/where", code=64 if name == "gate" else 2)
        assert f"'{option}': no/where: cannot be written: no such directory" in told


def test_the_least_margin_is_the_one_of_the_help() -> None:
    helps = {one.help for found in _ALL.values() for one in found.params if one.name == "margin"}
    (least,) = {float(re.findall(r"at least (\d+\.\d+)", text)[0]) for text in helps}
    assert share_of(least) == least / 100
    with pytest.raises(InvalidInputError):
        share_of(0.99 * least)


def test_help_of_run_is_one_screen_and_names_where_the_rest_is() -> None:
    def told(flag: str) -> str:
        done = CliRunner().invoke(build("run"), ["run", flag], env={"COLUMNS": "80"})
        assert done.exit_code == 0, done.output
        return done.output

    brief, whole = told("--help"), told("--help-all")
    assert len(brief.splitlines()) <= 40
    assert "--help-all" in brief
    assert "Example: sextant run" in brief
    assert "--margin" in brief
    assert "--temperature" not in brief
    assert all(text in whole for text in ("--margin", "--temperature", "Prompt", "Budget"))
    said = " ".join(whole.replace("│", " ").split())
    assert "Time limit, seconds." in said
    assert "With --margin, the goal that is reached first ends the test." in said

"""The `sextant` command: one module a subcommand, imported only when that subcommand is called."""

import importlib
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typing_extensions import override

from app import DISTRIBUTION
from app.acting import AuditEntry, acting_for, present

#: `PANELS`: panel of the help -> subcommand -> one line of help. Module `app.cli.commands.NAME`, or
#: in the lab `app.cli.lab.NAME`, with `_` for `-`, holds `command` (a function) or `app` (a group
#: of subcommands).
LAB = "Lab: research on files, without a server"
PANELS = {
    "Measure": {
        "demo": "Run one adaptive test of a scripted model; needs no setup.",
        "demo-model": "Serve a simulated model to try things out.",
        "run": "Measure one endpoint, with live progress.",
        "gate": "Decide go, no go or inconclusive by one session; the exit code tells.",
        "compare": "Compare two sessions, or two models of a response set.",
        "rank": "Rank several endpoints.",
        "leaderboard": "Show the latest results on a bank.",
        "sessions": "List, show, watch, cancel and delete sessions; score answers again.",
        "gates": "List and show gates.",
        "baselines": "Name results as baselines, which gates compare later results with.",
        "open": "Open a page of the server in a browser.",
    },
    "Banks": {
        "banks": "Install, import, list, show, lint, export, recalibrate and delete item banks.",
        "response-sets": "Import, collect, list, show, export and delete recorded answers.",
        "calibrations": "Start, list, show, watch, publish, cancel and delete calibrations.",
    },
    "Server": {
        "serve": "Serve the API and a worker in one process.",
        "login": "Save a server and the key for it.",
        "logout": "Log out: remove the saved server and key.",
        "keys": "Create, list and revoke API keys.",
        "endpoints": "Save, list, show, probe and delete endpoints.",
        "projects": "Manage projects (separate data for each team).",
    },
    "Operate": {
        "worker": "Run one more worker on the same database.",
        "migrate": "Bring the database schema up to date.",
        "backup": "Write everything in the database to a file.",
        "restore": "Restore a backup into an empty database, or over a full one.",
    },
    LAB: {
        "simulate": "Try a test design on recorded answers.",
        "rank-simulate": "Rank models by their recorded answers.",
        "estimate": "Estimate theta from a bank file and a response file.",
        "reproduce": "Run the protocol of a published study on recorded answers.",
        "compose": "Build the best fixed short form of a benchmark.",
        "calibrate": "Estimate item parameters from a response file.",
        "lint": "Check the parameters of a bank file.",
        "report": "Write a report on a bank as one HTML page.",
    },
}


#: Subcommand in the module of another -> this module, and the name in it.
_BESIDE = {
    "logout": "login.logout",
    "open": "login.open_page",
    "restore": "backup.restore",
    "migrate": "backup.migrate",
    "worker": "serve.worker",
    "baselines": "gates.baselines",
    "projects": "keys.projects",
}
#: Groups of commands: the audit trail also records the word after the group.
_GROUPS = frozenset(
    {"keys", "projects", "banks", "response-sets", "sessions", "calibrations", "baselines"}
)


#: What click says of a date in another form, and what is said instead.
_NO_DATE = re.compile(r"^(.*) does not match the formats .*", re.DOTALL)
_A_DATE = r"expected a date such as 2030-01-31, or a time such as 2030-01-31T12:00:00, got \1"


class _Group(TyperGroup):
    """All subcommands; a value of the wrong type is refused in the words of the API."""

    @override
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            from pydantic import ValidationError

            from app.validation import sentence

            if isinstance(error.__cause__, ValidationError):
                error.message = sentence(error.__cause__.errors()[0])
                if getattr(error.param, "metavar", None) == "POINTS":
                    told, _, _ = error.message.partition(";")  # its hint is on shares
                    error.message = told.replace("a number", "points as a plain number")
            error.message = _NO_DATE.sub(_A_DATE, error.message)
            raise


def build(wanted: str | None, panels: Mapping[str, Mapping[str, str]] = PANELS) -> typer.Typer:
    """Build the command line: import one subcommand, and list the others with their help lines.

    Args:
        wanted: The subcommand that will run. Importing the others costs seconds (scipy,
            pyarrow, FastAPI) for nothing.
        panels: The panels of `PANELS` whose subcommands there are.
    """
    cli = typer.Typer(
        name="sextant",
        cls=_Group,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    cli.callback(
        help="Measure the ability of a language model with as few benchmark items as possible."
    )(_root)
    commands = [(panel, *said) for panel, inside in panels.items() for said in inside.items()]
    for panel, name, help_line in commands:
        if name != wanted:
            cli.command(name, help=help_line, rich_help_panel=panel)(_not_imported)
            continue
        folder = "lab" if panel == LAB else "commands"
        beside, _, own = _BESIDE.get(name, name).replace("-", "_").partition(".")
        module = importlib.import_module(f"app.cli.{folder}.{beside}")
        found = getattr(module, own) if own else getattr(module, "app", None) or module.command
        if isinstance(found, typer.Typer):
            cli.add_typer(found, name=name, help=help_line)
        else:
            cli.command(name, cls=getattr(module, "Command", None))(found)
    return cli


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"sextant {version(DISTRIBUTION)}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Callback for the options that precede every subcommand."""


def _not_imported() -> None:
    """Placeholder for a subcommand that does not run, so that `--help` can list it."""


def main() -> None:
    """Entry point of the `sextant` command."""
    # What a log in ASCII cannot hold becomes a question mark, and ends no command.
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a TextIOWrapper
    program, panels = "sextant", PANELS
    if sys.argv[1:2] == ["lab"]:  # groups these commands in help; each works without it
        del sys.argv[1]
        program, panels = "sextant lab", {LAB: PANELS[LAB]}
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    wanted, command, *_ = [*words, None, None]
    name = " ".join(filter(None, ("sextant", wanted, command if wanted in _GROUPS else None)))
    entry = AuditEntry(action=lambda: name, path="", request_id=None, address="command line")
    with acting_for(replace(present(), audit_entry=entry)):
        build(wanted, panels)(prog_name=program)

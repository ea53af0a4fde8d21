"""`sextant banks drift`, `check-join` and `recalibrate`: what new answers say about a bank."""

from typing import Annotated, Any
from urllib.parse import urlencode

import typer
from pydantic import JsonValue

from app.cli.servers.connection import connected, path_of, request, run_until_signal, there
from app.cli.servers.options import SAME, also_json, on_server
from app.cli.terminal.console import JsonObject, number, out, show_list
from app.cli.terminal.options import PUBLICATION
from app.cli.terminal.replies import Calibration, Version, at
from app.cli.terminal.watch import follow
from app.errors import CalibrationError
from app.records.banks import Provisional, provisional_words
from sextant_client import AsyncSextant

#: Items that are printed, and the most that `--json` lists.
_SHOWN, _MOST = 20, 100_000

Bank = Annotated[str, typer.Argument(help="Name or id of the bank.")]
Responses = Annotated[
    str,
    typer.Option(help="Name or id of the set of the new answers; see `response-sets collect`."),
]
VersionOption = Annotated[
    str | None, typer.Option(help="Number of the version; by default the latest.")
]


class _Calibration(Calibration):
    scored_answers: int | None = at("result", "scored_answers", default=None)
    judged: int | None = at("result", "drift", "judged", default=None)
    easier: int | None = at("result", "drift", "easier", default=None)
    harder: int | None = at("result", "drift", "harder", default=None)


class _Version(Version):
    knowledge: dict[str, JsonValue]


@on_server(json=SAME)
def drift(
    name: Bank,
    responses: Responses,
    version: VersionOption = None,
) -> None:
    """Find items whose difficulty or slope has changed, by new answers."""
    path = _of_version(name, version, "drift", response_set=responses, limit=_MOST)
    look = request("GET", path)
    if not also_json(look):
        return
    out.say(look["verdict"])
    show_list(
        [item for item in look["data"][:_SHOWN] if item["z"] is not None],
        {
            "item": "key",
            "answers": "answers",
            "old b": lambda one: number(one["old_b"]),
            "new b": lambda one: number(one["new_b"]),
            "z": lambda one: number(one["z"], "+z.1f"),
            "right": lambda one: number(one["easier"], "+z.0%"),
            "": _mark,
        },
    )


def _mark(item: JsonObject) -> str:
    if not item["drifted"]:
        return ""
    return "easier: leaked?" if item["possibly_leaked"] else "harder"


@on_server(json=SAME)
def check_join(
    name: Bank,
    responses: Annotated[
        str | None,
        typer.Option(
            help="Name or id of a response set with answers from outside the calibration; by "
            "default the answers of the version's live sessions."
        ),
    ] = None,
    version: VersionOption = None,
) -> None:
    """Check whether a bank's parameters belong to its questions, by answers.

    Exit code 1: they do not, or not to all questions.
    """
    query = {} if responses is None else {"response_set": responses}
    found = request("GET", _of_version(name, version, "join", **query))
    if also_json(found):
        out.say(found["explanation"])
        if (rank := found["rank_correlation"]) is not None:
            out.print(f"rank correlation of right answers with difficulty: {rank:+z.2f}")
    if found["verdict"] not in ("holds", "undecided"):
        raise typer.Exit(1)


@on_server(
    runs=True,
    fields=PUBLICATION,
    names={"/response_set": "--responses", "/bank": "NAME"},
)
def recalibrate(
    body: dict[str, Any],
    name: Bank,
    responses: Annotated[
        str | None,
        typer.Option(
            help="Name or id of the response set of the new answers; by default the answers of "
            "all sessions on the bank, which are collected first."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Response model of new items; by default the version's."),
    ] = None,
) -> None:
    """Make the next version from new answers, on the scale of the latest one.

    Items in pretest get parameters; the others keep theirs. Items that drifted
    are calibrated again and quarantined. If the parameters are provisional, all
    of them are revised, from the guesses and all answers. Without a server, the
    command runs a worker as long as needed.
    """
    publication = {"bank": name, **body}

    async def run() -> tuple[_Calibration, _Version]:
        async with connected() as client:
            wanted = responses or await _live(client, name)
            record = await _calibrated(client, name, wanted, model)
            publish = f"/v1/calibrations/{record.id}:publish"
            made = await client.request("POST", publish, json=publication)
            return record, _Version.model_validate(made)

    record, version = run_until_signal(run())
    basis = f"{record.scored_answers} answers of {record.kept_examinees} examinees"
    if record.judged is not None:
        said = (
            f"; {record.judged} old items judged, {record.easier} became easier and "
            f"{record.harder} harder"
        )
    else:
        known = Provisional.of(version.knowledge)
        said = "" if known is None else f". {provisional_words(known)}"
    out.say(f"{basis}{said}")
    out.say(f"version {version.number} on scale {version.scale}: {version.states_and_id}")


async def _calibrated(
    client: AsyncSextant, bank: str, responses: str, model: str | None
) -> _Calibration:
    """Calibrate the answers onto the scale of the latest version; wait until that has ended."""
    version = _Version.model_validate(await client.request("GET", _of_version(bank, None)))
    plan: JsonObject
    if Provisional.of(version.knowledge) is not None:
        plan = {"prior_version_id": version.id}
    else:
        link: JsonObject = {"bank_version_id": version.id, "check_drift": True}
        plan = {
            "model": model or version.response_model,
            "link": {"method": "fixed_anchor", **link},
        }
    body = {"response_set": responses, **plan}
    begun = await client.request("POST", "/v1/calibrations", json=body)
    ended = await follow(client, path_of("calibrations", str(begun["id"])))
    record = _Calibration.model_validate(ended)
    if record.failure is not None:
        raise CalibrationError(record.failure.detail)
    if record.result is None:
        raise CalibrationError(f"The calibration {record.id} was {record.status}.")
    return record


async def _live(client: AsyncSextant, bank: str) -> str:
    """Update the set of all answers of sessions on a bank, and return its id."""
    found = await client.request("GET", path_of("banks", bank))
    name = f"live-{found['id']}"
    async with there(client, "response-sets", name, {"name": name}):
        report = await client.request(
            "POST", f"/v1/response-sets/{name}:collect", json={"bank": found["id"]}
        )
    return str(report["response_set"]["id"])


def _of_version(bank: str, version: str | None, *what: str, **query: str | int) -> str:
    path = path_of("banks", bank, "versions", version or "latest", *what)
    return f"{path}?{urlencode(query)}" if query else path

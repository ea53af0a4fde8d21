"""`sextant calibrations`: those that run, or ran, on what is stored."""

from typing import Annotated, Any
from urllib.parse import quote

import typer

from app.cli.client import ApiClient
from app.cli.connection import FAILED, asked, run_to_the_end, stored
from app.cli.console import err, fail_clearly, out, write_json
from app.cli.options import AskServerOption, SameAsJsonOption, ServerKeyOption
from app.cli.tables import number, show_facts, show_table, when

app = typer.Typer(no_args_is_help=True, help="List, show, watch, cancel and delete calibrations.")

Id = Annotated[str, typer.Argument(help="Id of a calibration.")]


@app.command("list")
@fail_clearly
def list_calibrations(
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """List calibrations, the newest first."""
    found = asked(server, server_key, lambda client: client.every("/v1/calibrations?", limit=limit))
    write_json(json, {"data": found})
    if json != "-":
        show_table(
            ("id", "status", "model", "examinees", "items", "published", "began"),
            (
                (
                    one["id"],
                    _stands(one),
                    one["settings"].get("model", "-"),
                    str(_kept(one, "examinees")),
                    str(_kept(one, "items")),
                    one["bank_version_id"] or "-",
                    when(one["created_at"]),
                )
                for one in found
            ),
        )


@app.command()
@fail_clearly
def show(
    calibration: Id,
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """Show where a calibration stands, or what came out of it."""
    found = asked(server, server_key, lambda client: client.get(_path(calibration)))
    write_json(json, found)
    if json != "-":
        _show(found)


@app.command()
@fail_clearly
def watch(
    calibration: Id,
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """Watch a calibration until it ends; leaving it with Ctrl-C does not end it."""

    async def look() -> dict[str, Any]:
        async with stored(server, server_key) as client:
            told = ""
            async for kind, data in client.events(f"{_path(calibration)}/events"):
                line = str(data.get("phase", kind.partition(".")[2])).replace("_", " ")
                if line != told:
                    err.say(line)
                told = line
            return await client.get(_path(calibration))

    found = run_to_the_end(look)
    if json != "-":
        _show(found)
    write_json(json, found)
    if found["status"] != "completed":
        raise typer.Exit(FAILED)


@app.command()
@fail_clearly
def cancel(
    calibration: Id, server: AskServerOption = None, server_key: ServerKeyOption = None
) -> None:
    """End a calibration; its worker stops within seconds."""

    async def end(client: ApiClient) -> dict[str, Any]:
        return await client.post(f"{_path(calibration)}:cancel", None)

    found = asked(server, server_key, end)
    out.say(f"{found['id']} is {found['status']}.")


@app.command()
@fail_clearly
def delete(
    calibration: Id, server: AskServerOption = None, server_key: ServerKeyOption = None
) -> None:
    """Delete an ended calibration that no bank version was made of."""
    asked(server, server_key, lambda client: client.delete(_path(calibration)))
    out.say(f"Deleted {calibration}.")


def _show(found: dict[str, Any]) -> None:
    result = found["result"] or {}
    facts = {
        "status": _stands(found),
        "model": found["settings"].get("model", "-"),
        "responses": found["response_set_id"],
        "examinees": str(_kept(found, "examinees")),
        "items": str(_kept(found, "items")),
    }
    if "fit" in result:
        fit = result["fit"]
        facts["fit"] = f"{fit['verdict']} (RMSEA {number(fit['rmsea'], '.3f')})"
    if found["bank_version_id"]:
        facts["published"] = found["bank_version_id"]
    if found["failure"]:
        facts["failure"] = found["failure"]["detail"]
    show_facts(found["id"], facts)


def _stands(found: dict[str, Any]) -> str:
    phase = (found["progress"] or {}).get("phase")
    if phase is None or found["finished_at"] is not None:
        return str(found["status"])
    return f"{found['status']}: {str(phase).replace('_', ' ')}"


def _kept(found: dict[str, Any], what: str) -> Any:
    return ((found["result"] or {}).get("kept") or {}).get(what, "-")


def _path(calibration: str) -> str:
    return f"/v1/calibrations/{quote(calibration, safe='')}"

"""`sextant calibrations`: begun on recorded answers, looked at, made versions of."""

from typing import Annotated, Any, Literal
from urllib.parse import quote

import typer

from app.cli.servers.connection import (
    FAILED,
    asked,
    connected,
    ended_with_us,
    events,
    given,
    run_to_the_end,
    stored,
)
from app.cli.servers.logins import target
from app.cli.terminal.console import err, fail_clearly, out, write_json
from app.cli.terminal.options import (
    AllowFewOption,
    AllowOption,
    AskServerOption,
    DimensionsOption,
    FilterConfidenceOption,
    FilteringOption,
    KeepForScoreOption,
    KeepOption,
    NegativeSlopesOption,
    NotesOption,
    PartitionSizeOption,
    PriorsOption,
    SameAsJsonOption,
    ServerKeyOption,
    ServerOption,
    filter_choices,
)
from app.cli.terminal.tables import number, show_facts, show_table, when
from app.errors import InvalidInputError
from sextant_client import AsyncSextant

app = typer.Typer(
    no_args_is_help=True, help="Start, list, show, watch, publish, cancel and delete calibrations."
)

Id = Annotated[str, typer.Argument(help="Id of a calibration.")]
#: What leaves items and examinees out.
_FILTERS = (
    "least_sd",
    "greatest_mean",
    "least_mean",
    "least_point_biserial",
    "least_percentile",
)
_OPTIONS = {
    "/response_set": "RESPONSES",
    "/model": "--model",
    "/dimensions": "--dimensions",
    "/partition_size": "--partition-size",
    "/negative_slopes": "--negative-slopes",
    "/filters/point_biserial_confidence": "--filter-confidence",
    "/seed": "--seed",
    "/link": "--link-to",
    "/bank": "--bank",
    "/notes": "--notes",
    "/keep": "--keep",
    "/allow": "--allow",
    "/unparsed_policy": "--unparsed",
    "/allow_unconverged": "--allow-unconverged",
    "/carry_over": "--carry-over",
}


@app.command()
@fail_clearly
def start(
    responses: Annotated[
        str, typer.Argument(help="Response set, by name or id; see `sextant response-sets`.")
    ],
    model: Annotated[
        str | None,
        typer.Option(help="1pl, 2pl, 3pl, 4pl, continuous, mirt or nested; by default 2pl."),
    ] = None,
    dimensions: DimensionsOption = None,
    partition_size: PartitionSizeOption = None,
    filters: FilteringOption = True,
    keep_for_score: KeepForScoreOption = True,
    filter_confidence: FilterConfidenceOption = None,
    priors: PriorsOption = True,
    allow_few: AllowFewOption = False,
    negative_slopes: NegativeSlopesOption = None,
    report_card: Annotated[
        bool,
        typer.Option(
            help="Test examinees on banks calibrated without them; takes several times as long."
        ),
    ] = True,
    link_to: Annotated[
        str | None,
        typer.Option(
            metavar="BANK",
            help="Name or id of the bank, or id of the version, on whose scale the items are to "
            "land.",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Deals the items to parts.")] = None,
    bank: Annotated[
        str | None,
        typer.Option(
            help="Publish it as the next version of this bank; a new name makes a new bank."
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option(help="Watch it until it ends, which Ctrl-C brings about.")
    ] = True,
    server: ServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """Calibrate recorded answers that are stored; without a server, with a worker of our own."""
    chosen = filter_choices(
        filters=filters, keep_for_score=keep_for_score, confidence=filter_confidence
    )

    async def run() -> dict[str, Any]:
        async with connected(
            server, server_key, bank=None, changes_banks=True, options=_OPTIONS
        ) as client:
            link = None if link_to is None else {"bank_version_id": await _version(client, link_to)}
            body = given(
                response_set=responses,
                model=model,
                dimensions=dimensions,
                partition_size=partition_size,
                priors=priors,
                allow_few=allow_few,
                negative_slopes=negative_slopes,
                report_card=report_card,
                filters=chosen if filters else dict.fromkeys(_FILTERS),
                link=link,
                seed=seed,
                publish=None if bank is None else {"bank": bank},
            )
            made = await client.request("POST", "/v1/calibrations", json=body)
            if not wait:
                return made
            err.say(made["id"])
            async with ended_with_us(client, "calibrations", made["id"]):
                return await _followed(client, made["id"])

    if not wait and target(server, server_key) is None:
        raise InvalidInputError("--no-wait needs a server, whose worker goes on without us.")
    _report(run_to_the_end(run), json, fails=wait)


@app.command()
@fail_clearly
def publish(
    calibration: Id,
    bank: Annotated[
        str, typer.Option(help="Bank that gets the version; a new name makes a new bank.")
    ],
    notes: NotesOption = "",
    keep: KeepOption = None,
    allow: AllowOption = None,
    unparsed: Annotated[
        Literal["wrong", "missing"] | None,
        typer.Option(help="How unparseable answers counted; by default as the response set says."),
    ] = None,
    allow_unconverged: Annotated[
        bool, typer.Option("--allow-unconverged", help="Even though it did not converge.")
    ] = False,
    carry_over: Annotated[
        bool,
        typer.Option(
            "--carry-over",
            help="Items that only the version it is linked to has keep their parameters.",
        ),
    ] = False,
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """Make a bank version of a completed calibration."""
    body = given(
        bank=bank,
        notes=notes or None,
        keep=keep or None,
        allow=allow or None,
        unparsed_policy=unparsed,
        allow_unconverged=allow_unconverged or None,
        carry_over=carry_over or None,
    )
    path = f"{_path(calibration)}:publish"
    version = asked(
        server, server_key, lambda client: client.request("POST", path, json=body), _OPTIONS
    )
    write_json(json, version)
    if json != "-":
        states = version["lint"]["items"]
        out.say(
            f"version {version['number']} of {bank}: {states['active']} active, "
            f"{states['quarantined']} set aside, {states['pretest']} in pretest  {version['id']}"
        )


@app.command("list")
@fail_clearly
def list_calibrations(
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 20,
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """List calibrations, the newest first."""
    found = asked(
        server, server_key, lambda client: client.list_all("/v1/calibrations", limit=limit)
    )
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
    found = asked(server, server_key, lambda client: client.request("GET", _path(calibration)))
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
            return await _followed(client, calibration)

    _report(run_to_the_end(look), json, fails=True)


@app.command()
@fail_clearly
def cancel(
    calibration: Id, server: AskServerOption = None, server_key: ServerKeyOption = None
) -> None:
    """End a calibration; its worker stops within seconds."""
    path = f"{_path(calibration)}:cancel"
    found = asked(server, server_key, lambda client: client.request("POST", path))
    out.say(f"{found['id']} is {found['status']}.")


@app.command()
@fail_clearly
def delete(
    calibration: Id, server: AskServerOption = None, server_key: ServerKeyOption = None
) -> None:
    """Delete an ended calibration that no bank version was made of."""
    asked(server, server_key, lambda client: client.remove(_path(calibration)))
    out.say(f"Deleted {calibration}.")


async def _followed(client: AsyncSextant, calibration: str) -> dict[str, Any]:
    """A calibration once it has ended; its phases are said on the way."""
    told = ""
    async for kind, data in events(client, _path(calibration)):
        line = str(data.get("phase", kind.partition(".")[2])).replace("_", " ")
        if line != told:
            err.say(line)
        told = line
    return await client.request("GET", _path(calibration))


async def _version(client: AsyncSextant, name: str) -> str:
    """The version that is meant: one by its id, or the latest of a bank."""
    if name.startswith("bkv_"):
        return name
    found = await client.request("GET", f"/v1/banks/{quote(name, safe='')}/versions/latest")
    return str(found["id"])


def _report(found: dict[str, Any], json: str | None, *, fails: bool) -> None:
    if json != "-":
        _show(found)
    write_json(json, found)
    if fails and found["status"] != "completed":
        raise typer.Exit(FAILED)


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
    for warning in result.get("warnings", ()):
        err.say(f"Note: {warning}")


def _stands(found: dict[str, Any]) -> str:
    phase = (found["progress"] or {}).get("phase")
    if phase is None or found["finished_at"] is not None:
        return str(found["status"])
    return f"{found['status']}: {str(phase).replace('_', ' ')}"


def _kept(found: dict[str, Any], what: str) -> Any:
    return ((found["result"] or {}).get("kept") or {}).get(what, "-")


def _path(calibration: str) -> str:
    return f"/v1/calibrations/{quote(calibration, safe='')}"

"""`sextant calibrations`: calibrate recorded answers and publish the result as a version."""

from functools import partial
from typing import Annotated, Any

import typer

from app.cli.servers.connection import (
    FAILED,
    asked,
    connected,
    ended_with_us,
    listed,
    path_of,
    request,
    run_to_the_end,
    version_of,
)
from app.cli.servers.options import SAME, also_json, chosen, on_server, tell_list
from app.cli.terminal import options
from app.cli.terminal.console import JsonObject, err, number, out, show_facts, when
from app.cli.terminal.fields import option
from app.cli.terminal.options import YesOption, confirm, given, require_filters
from app.cli.terminal.replies import Calibration, Version, at
from app.cli.terminal.watch import Phases, follow
from app.errors import InvalidInputError
from sextant_client import AsyncSextant

app = typer.Typer(no_args_is_help=True)
_path = partial(path_of, "calibrations")

Id = Annotated[str, typer.Argument(help="Id of a calibration.")]
#: Options of the filters, which leave out items and examinees.
_FILTERS = (
    "least_sd",
    "greatest_mean",
    "least_mean",
    "least_point_biserial",
    "least_percentile",
)


@on_server(
    app,
    json=SAME,
    runs=True,
    fields={
        **options.CALIBRATION,
        "/report_card": option(
            bool,
            "Cross-validate (default): test held-out examinees on banks calibrated "
            "without them; takes several times as long.",
            "--report-card/--no-report-card",
        ),
        "/publish/bank": option(
            str, "Publish as the next version of this bank; a new name creates a bank."
        ),
    },
    names={
        "/response_set": "RESPONSES",
        "/link": "--link-to",
    },
)
def start(
    body: dict[str, Any],
    responses: Annotated[
        str, typer.Argument(help="Name or id of the response set; see `sextant response-sets`.")
    ],
    filters: options.FilteringOption = True,
    link_to: Annotated[
        str | None,
        typer.Option(
            metavar="BANK",
            help="Link to the scale of this bank (name or id) or version (id).",
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option(help="Watch the calibration until it ends; Ctrl-C cancels it.")
    ] = True,
) -> None:
    """Calibrate a response set; without a server, the command runs a worker itself."""
    require_filters(body, filters=filters)
    if not filters:
        body["filters"] = dict.fromkeys(_FILTERS)

    async def run() -> JsonObject:
        async with connected() as client:
            link = None if link_to is None else {"bank_version_id": await _version(client, link_to)}
            plan = {"response_set": responses, **body, **given(link=link)}
            made = await client.request("POST", "/v1/calibrations", json=plan)
            if not wait:
                return made
            calibration = str(made["id"])
            err.say(calibration)
            async with ended_with_us(client, "calibrations", calibration):
                return await follow(client, _path(calibration), Phases().take)

    if not wait and chosen().target is None:
        raise InvalidInputError(
            "--no-wait needs a server: its worker continues after this command ends."
        )
    _report(run_to_the_end(run), fails=wait)


@on_server(
    app,
    json=SAME,
    fields={
        **options.PUBLICATION,
        "/allow_unconverged": option(
            bool, "Publish even if the calibration did not converge.", "--allow-unconverged"
        ),
        "/carry_over": option(
            bool,
            "Also take over items and parameters that only the linked version has.",
            "--carry-over",
        ),
    },
)
def publish(
    body: dict[str, Any],
    calibration: Id,
    bank: Annotated[
        str, typer.Option(help="Bank that gets the version; a new name creates a bank.")
    ],
) -> None:
    """Make a bank version of a completed calibration."""
    body["bank"] = bank
    found = request("POST", f"{_path(calibration)}:publish", body)
    if also_json(found):
        version = Version.model_validate(found)
        out.say(f"version {version.number} of {bank}: {version.states_and_id}")


@on_server(app, "list", json=SAME)
def list_calibrations(
    limit: Annotated[int, typer.Option(min=1, help="List at most this many.")] = 20,
) -> None:
    """List calibrations, the newest first."""
    tell_list(
        listed("/v1/calibrations", limit),
        {
            "id": "id",
            "status": _stands,
            "model": "model",
            "examinees": "kept_examinees",
            "items": "kept_items",
            "published": "bank_version_id",
            "began": lambda one: when(one.created_at),
        },
        Calibration,
    )


@on_server(app, json=SAME)
def show(calibration: Id) -> None:
    """Show the state of a calibration, or its results."""
    found = request("GET", _path(calibration))
    if also_json(found):
        _show(found)


@on_server(app, json=SAME)
def watch(calibration: Id) -> None:
    """Watch a calibration until it ends; Ctrl-C does not end it."""

    async def look() -> JsonObject:
        async with connected() as client:
            return await follow(client, _path(calibration), Phases().take)

    _report(run_to_the_end(look), fails=True)


@on_server(app)
def cancel(calibration: Id) -> None:
    """Cancel a calibration; its worker stops within seconds."""
    found = request("POST", f"{_path(calibration)}:cancel")
    out.say(f"{found['id']} is {found['status']}.")


@on_server(app)
def delete(calibration: Id, yes: YesOption = False) -> None:
    """Delete an ended calibration that was never published."""
    confirm(f"Delete the calibration {calibration!r}?", yes=yes)
    asked(lambda client: client.remove(_path(calibration)))
    out.say(f"Deleted {calibration}.")


async def _version(client: AsyncSextant, name: str) -> str:
    """Id of a version, given by its id or as the name of a bank, whose latest version it is."""
    if name.startswith("bkv_"):
        return name
    found = await client.request("GET", path_of("banks", name, "versions", "latest"))
    return str(found["id"])


def _report(found: JsonObject, *, fails: bool) -> None:
    if also_json(found):
        _show(found)
    if fails and found["status"] != "completed":
        raise typer.Exit(FAILED)


class _Fitted(Calibration):
    rmsea: float | None = at("result", "fit", "rmsea", default=None)


def _show(document: JsonObject) -> None:
    found = _Fitted.model_validate(document)
    facts = {
        "status": _stands(found),
        "model": found.model,
        "responses": found.response_set_id,
        "examinees": "-" if found.kept_examinees is None else str(found.kept_examinees),
        "items": "-" if found.kept_items is None else str(found.kept_items),
    }
    if found.fit is not None and found.rmsea is not None:
        facts["fit"] = f"{found.fit} (RMSEA {number(found.rmsea, '.3f')})"
    if found.bank_version_id:
        facts["published"] = _published(found.bank_id or "", found.bank_version_id)
    if found.failure:
        facts["failure"] = found.failure.detail
    show_facts(found.id, facts)
    for kind, why in found.set_aside.items():
        out.say(f"Questions that {kind}: {why}")
    for warning in found.warnings:
        err.say(f"Note: {warning}")


def _published(bank: str, version: str) -> str:
    """The version with the numbers of its items by state, unless its bank was deleted."""
    found = asked(lambda client: version_of(client, bank, version))
    return version if found is None else Version.model_validate(found).states_and_id


def _stands(found: Calibration) -> str:
    if found.phase is None or found.finished_at is not None:
        return found.status
    return f"{found.status}: {found.phase.replace('_', ' ')}"

"""`sextant banks from-results`: make a bank of recorded results, ready to be asked."""

from collections.abc import Sequence
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.bank import UNREAD, require_whole_files
from app.cli.servers.connection import FAILED, path_of, reached, run_until_signal
from app.cli.servers.logins import Target
from app.cli.servers.options import also_json, chosen, on_server
from app.cli.terminal import options
from app.cli.terminal.console import JsonObject, err, out
from app.cli.terminal.fields import Fields, option, reading
from app.cli.terminal.replies import Calibration, Version, failure_of
from app.cli.terminal.watch import Phases, follow
from app.errors import CalibrationError
from app.printable import percent
from sextant_client import AsyncSextant

if TYPE_CHECKING:
    from app.exchange.results.recorded import SourceFile

_LISTED = 5
_FIELDS: Fields = {
    "/tasks": option(list[str], "Task to read; `*` is a wildcard; may be repeated.", "--task"),
    **options.READ,
    "/prompts_of": option(
        str,
        "Model whose prompts become the questions; by default the most frequent wording "
        "of each question.",
    ),
    "/target_after": option(
        str,
        "The right answer is the text after this mark in the recorded one; by default "
        "#### if all have it.",
    ),
    "/default_scorer/name": option(
        str,
        "Scorer of live answers; by default one that reproduces the recorded scores.",
        "--default-scorer",
    ),
    "/model": option(str, "Response model to calibrate; by default 2pl."),
    "/report_card": option(
        bool,
        "Cross-validate (default): test held-out models on banks calibrated without them.",
        "--report-card/--no-report-card",
    ),
    "/least_models": option(
        int, "Minimum number of models for a calibration; 3 by default.", min=3
    ),
    "/licence": option(str, "Licence of the questions."),
    "/publish": option(
        bool,
        "Calibrate and make a version (default); otherwise only read the results.",
        "--publish/--no-publish",
    ),
    "/questions_only": option(
        bool,
        "Keep only the questions, for example from lm-eval's `--model dummy`.",
        "--questions-only",
    ),
    "/visibility": option(
        bool,
        "Hide the questions from most keys; see docs/withheld.md.",
        "--withheld",
        callback=reading(lambda _: "withheld"),
    ),
}


@on_server(json="Write the result as JSON; - for stdout.", fields=_FIELDS)
def from_results(
    body: dict[str, Any],
    name: Annotated[str, typer.Argument(help="Name of the bank and of the response set.")],
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Files, folders or patterns with results of several models: samples of lm-eval "
            "(`--log_samples`), details of a leaderboard, logs of inspect, output items of OpenAI "
            "Evals.",
        ),
    ],
) -> None:
    """Create a bank from recorded results: questions, answers, calibration and version.

    Choices that the files leave open are printed, each with the option that
    changes it. The same command with more results continues from there and makes
    the next version. Exit code 1: there is no version, or a file has rows that
    cannot be read; the output says which.
    """
    body["name"] = name
    found = _files(paths)
    named = chosen().target
    make = _here(found, body) if named is None else _there(named, found, body)
    begun, calibration, version = run_until_signal(make)
    if also_json({**begun, "calibration": calibration, "version": version}):
        _show(name, begun, calibration, version)
    wants_version = body.get("publish", True) and "questions_only" not in body
    if version is None and (wants_version or begun["stopped"] is None):
        raise typer.Exit(FAILED)
    require_whole_files(begun["skipped"])


def _files(paths: Sequence[str]) -> "list[SourceFile]":
    from app.exchange.response_files import files_at

    named = []
    for path in paths:
        matching = [] if Path(path).exists() else sorted(glob(path, recursive=True))  # noqa: PTH207
        named += matching or [path]
    return files_at(map(Path, named))


#: Three API documents: the import that began, its calibration, and the bank version.
Made = tuple[JsonObject, JsonObject | None, JsonObject | None]


async def _here(files: "list[SourceFile]", body: JsonObject) -> Made:
    """Run on the configured database: read files from disk, with a worker in this process."""
    from dataclasses import replace

    from app.api.schemas.from_results import FromResultsCreate, FromResultsRead
    from app.cli.bank.local_imports import checked
    from app.cli.servers.server import in_process
    from app.services.visibility import View

    wanted = checked(FromResultsCreate, {**body, "files": [UNREAD]}).to_domain()
    wanted = replace(wanted, results=replace(wanted.results, files=files))
    async with in_process(worker=True) as (client, services):
        begun = await services.result_banks.begin(wanted)
        told = FromResultsRead.of(begun, View(is_whole=True)).model_dump(mode="json")
        return await _ended(client, told)


async def _there(named: Target, files: "list[SourceFile]", body: JsonObject) -> Made:
    """Run on another server, and send the files to it."""
    from app.cli.bank.sent_results import send

    async with reached(named) as client:
        return await _ended(client, await send(client, files, body))


async def _ended(client: AsyncSextant, begun: JsonObject) -> Made:
    """Wait for the calibration that began, if any."""
    for line in _lines(begun):
        err.say(line)
    if begun["calibration"] is None:
        return begun, None, None
    path = path_of("calibrations", begun["calibration"]["id"])
    ended = await follow(client, path, Phases().take)
    if ended["status"] != "completed":
        reason = failure_of(ended) or "It was cancelled."
        raise CalibrationError(f"{reason} The questions and answers are kept.")
    if ended["bank_version_id"] is None:
        return begun, ended, None
    path = f"/v1/banks/{ended['bank_id']}/versions/{ended['bank_version_id']}"
    return begun, ended, await client.request("GET", path)


def _lines(begun: JsonObject) -> list[str]:
    """What was read, before the calibration takes its time."""
    asked, marking, incomplete = begun["asked"], begun["marking"], begun["incomplete_models"]
    known = f", {begun['known_questions']:,} known" if begun["known_questions"] else ""
    lines = [
        f"{begun['questions']:,} questions{known}, {begun['models']:,} models, "
        f"{begun['n_files']:,} files",
        f"asked: {asked['source']}",
    ]
    if (agreement := marking.get("agreement")) is not None:
        reproduces = f"{marking['scorer']} reproduces the recorded scores of {agreement['words']}"
        lines.append(f"scorer: {reproduces}")
        if marking["n_differing"]:
            shown = ", ".join(marking["differing"][:_LISTED])
            lines.append(
                f"scored differently: {marking['n_differing']} of these answers ({shown}); the "
                "calibration uses their recorded scores"
            )
        lines += [
            f"not known: how it scores {name} answers, because none were tried"
            for name in ("right", "wrong")
            if agreement[name] is None
        ]
    elif asked.get("mode") == "loglikelihood" and asked.get("normalise") is not None:
        from app.exchange.results.questions import NORMALISATIONS  # loads numpy: import it late

        by = asked["normalise"]
        lines.append(f"scored by the likeliest option, {NORMALISATIONS.get(by, by)}")
    else:
        lines.append(f"scored by {marking['scorer']}, which was not tried on recorded answers")
    for choice in begun["choices"]:
        option = "" if choice["option"] is None else f" Otherwise: {choice['option']}."
        lines.append(f"chosen: {choice['detail']}{option}")
    if incomplete:
        who = "1 model has" if incomplete == 1 else f"{incomplete:,} models have"
        lines.append(f"{who} not answered every question")
    for left in begun["left_out"]:
        shown = ", ".join(left["keys"][:_LISTED])
        lines.append(f"{left['count']:,} questions left out, {left['reason']}: {shown}")
    lines += [
        f"{one['count']:,} left out ({one['reason']}), first {''.join(one['places'][:1])}"
        for one in begun["skipped"]
        if one["reason"] != "other_filter"
    ]
    if begun["calibration"] and begun["calibration"]["bank_version_id"] is not None:
        lines.append("nothing new: the latest version holds these results")
    return lines


def _show(
    name: str, begun: JsonObject, calibrated: JsonObject | None, made: JsonObject | None
) -> None:
    if calibrated is None or made is None:
        failure = calibrated and calibrated["publication_failure"]
        detail = failure["detail"] if failure else begun["stopped"]
        out.say(f"No version: {detail}" if begun["models"] else str(detail))
        return
    calibration, version = Calibration.model_validate(calibrated), Version.model_validate(made)
    examinees = calibration.kept_examinees or 0
    lines = [
        f"{name} version {version.number}: {version.active:,} questions to ask, "
        f"{version.quarantined:,} set aside, {version.pretest:,} without parameters",
        f"  {version.response_model}, {examinees:,} models, scale {version.scale}",
        f"  {version.id}  sha256 {version.parameters_hash}",
    ]
    for kind, why in calibration.set_aside.items():
        lines.append(f"  Questions that {kind}: {why}")
    if calibration.fit is not None:
        lines.append(f"  Fit of the curves: {calibration.fit}")
    if (card := calibrated["result"].get("report_card")) and card["rows"]:
        row = card["rows"][0]
        lines.append(
            f"  Cross-validation: {row['items_mean']:.0f} questions, error "
            f"{row['theta_mae']:.2f} of theta, coverage {percent(row['coverage95'])} (target 95 %)"
        )
    else:
        lines += [f"  {warning}" for warning in calibration.warnings]
    for line in lines:
        out.say(line)
    texts = {choice["what"] for choice in begun["choices"]} & {"chat_template", "prompt_form"}
    kind = " --kind openai_completions" if texts else ""
    err.print(
        f"Measure a model: sextant run --endpoint URL --model NAME --bank {name}{kind}",
        soft_wrap=True,
    )

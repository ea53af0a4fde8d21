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
from app.cli.terminal import options, replies
from app.cli.terminal.console import JsonObject, err, out
from app.cli.terminal.fields import Fields, option, reading
from app.cli.terminal.replies import Version, at
from app.cli.terminal.watch import Phases, follow
from app.errors import CalibrationError, InvalidInputError
from app.printable import percent
from sextant_client import AsyncSextant
from sextant_client.models import Model

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
    read = _Begun.model_validate(begun)
    if also_json({**begun, "calibration": calibration, "version": version}):
        _show(
            name,
            read,
            None if calibration is None else _Calibration.model_validate(calibration),
            None if version is None else Version.model_validate(version),
        )
    wants_version = body.get("publish", True) and "questions_only" not in body
    if version is None and (wants_version or read.stopped is None):
        raise typer.Exit(FAILED)
    require_whole_files(read.skipped)


def _files(paths: Sequence[str]) -> "list[SourceFile]":
    from app.exchange.response_files import files_at

    named = []
    for path in paths:
        matching = [path] if Path(path).exists() else sorted(glob(path, recursive=True))  # noqa: PTH207
        if not matching:
            raise InvalidInputError(f"{path}: cannot be read: No such file or directory.")
        named += matching
    return files_at(map(Path, named))


#: Three API documents: the import that began, its calibration, and the bank version.
Made = tuple[JsonObject, JsonObject | None, JsonObject | None]


class _Begun(Model):
    """What was read, and the calibration that began."""

    questions: int
    known_questions: int
    models: int
    incomplete_models: int
    n_files: int
    source: str = at("asked", "source")
    mode: str | None = at("asked", "mode", default=None)
    normalise: str | None = at("asked", "normalise", default=None)
    scorer: str = at("marking", "scorer")
    n_differing: int = at("marking", "n_differing")
    differing: list[str] = at("marking", "differing")
    agreement: str | None = at("marking", "agreement", "words", default=None)
    agreement_right: float | None = at("marking", "agreement", "right", default=None)
    agreement_wrong: float | None = at("marking", "agreement", "wrong", default=None)
    choices: list[JsonObject]
    left_out: list[JsonObject]
    skipped: list[JsonObject]
    calibration_id: str | None = at("calibration", "id", default=None)
    known_version: str | None = at("calibration", "bank_version_id", default=None)
    stopped: str | None


class _Calibration(replies.Calibration):
    card: tuple[JsonObject, ...] = at("result", "report_card", "rows", default=())


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
    calibration = _tell(begun).calibration_id
    if calibration is None:
        return begun, None, None
    document = await follow(client, path_of("calibrations", calibration), Phases().take)
    found = _Calibration.model_validate(document)
    if found.status != "completed":
        reason = found.failure.detail if found.failure else "It was cancelled."
        raise CalibrationError(f"{reason} The questions and answers are kept.")
    if found.bank_version_id is None:
        return begun, document, None
    path = f"/v1/banks/{found.bank_id}/versions/{found.bank_version_id}"
    return begun, document, await client.request("GET", path)


def _tell(document: JsonObject) -> _Begun:
    """What was read, before the calibration takes its time."""
    begun = _Begun.model_validate(document)
    known = f", {begun.known_questions:,} known" if begun.known_questions else ""
    lines = [
        f"{begun.questions:,} questions{known}, {begun.models:,} models, {begun.n_files:,} files",
        f"asked: {begun.source}",
    ]
    if begun.agreement is not None:
        lines.append(f"scorer: {begun.scorer} reproduces the recorded scores of {begun.agreement}")
        if begun.n_differing:
            shown = ", ".join(begun.differing[:_LISTED])
            lines.append(
                f"scored differently: {begun.n_differing} of these answers ({shown}); the "
                "calibration uses their recorded scores"
            )
        shares = {"right": begun.agreement_right, "wrong": begun.agreement_wrong}
        lines += [
            f"not known: how it scores {name} answers, because none were tried"
            for name, share in shares.items()
            if share is None
        ]
    elif begun.mode == "loglikelihood" and begun.normalise is not None:
        from app.exchange.results.questions import NORMALISATIONS  # loads numpy: import it late

        lines.append(f"scored by the likeliest option, {NORMALISATIONS[begun.normalise]}")
    else:
        lines.append(f"scored by {begun.scorer}, which was not tried on recorded answers")
    for choice in begun.choices:
        option = "" if choice["option"] is None else f" Otherwise: {choice['option']}."
        lines.append(f"chosen: {choice['detail']}{option}")
    if begun.incomplete_models:
        n = begun.incomplete_models
        who = "1 model has" if n == 1 else f"{n:,} models have"
        lines.append(f"{who} not answered every question")
    for left in begun.left_out:
        shown = ", ".join(left["keys"][:_LISTED])
        lines.append(f"{left['count']:,} questions left out, {left['reason']}: {shown}")
    lines += [
        f"{one['count']:,} left out ({one['reason']}), first {''.join(one['places'][:1])}"
        for one in begun.skipped
        if one["reason"] != "other_filter"
    ]
    if begun.known_version is not None:
        lines.append("nothing new: the latest version holds these results")
    for line in lines:
        err.say(line)
    return begun


def _show(
    name: str, begun: _Begun, calibration: _Calibration | None, version: Version | None
) -> None:
    if calibration is None or version is None:
        failure = None if calibration is None else calibration.publication_failure
        detail = failure.detail if failure else begun.stopped
        out.say(f"No version: {detail}" if begun.models else str(detail))
        return
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
    if calibration.card:
        row = calibration.card[0]
        lines.append(
            f"  Cross-validation: {row['items_mean']:.0f} questions, error "
            f"{row['theta_mae']:.2f} of theta, coverage {percent(row['coverage95'])} (target 95 %)"
        )
    else:
        lines += [f"  {warning}" for warning in calibration.warnings]
    for line in lines:
        out.say(line)
    texts = {choice["what"] for choice in begun.choices} & {"chat_template", "prompt_form"}
    kind = " --kind openai_completions" if texts else ""
    err.print(
        f"Measure a model: sextant run --endpoint URL --model NAME --bank {name}{kind}",
        soft_wrap=True,
    )

"""`sextant banks drift` and `recalibrate`: what new answers say about a bank, and its next version.

Registered by `app.cli.banks`.
"""

import asyncio
from typing import Annotated, Literal

import numpy as np
import typer
from rich.table import Table

from app.api.schemas.drift import DriftRead
from app.api.schemas.joins import JoinRead
from app.calibration.linking.linked import LinkMethod
from app.calibration.pipeline.plan import CalibrationPlan, LinkPlan
from app.cli.console import fail_clearly, out, write_json
from app.cli.inputs import JsonOption
from app.cli.runtime import runtime
from app.cli.signals import run_until_signal
from app.errors import CalibrationError
from app.records.banks import BankVersion
from app.records.calibrations import ENDED, CalibrationRecord
from app.records.provisional import PROVISIONAL, Provisional, provisional_words
from app.reports.joins import join_sentence
from app.services.banks.joins import JoinLook
from app.services.calibrations.drift import DriftLook
from app.services.calibrations.service import Publication
from app.services.container import Services
from app.services.responses.collection import Collection
from app.worker.loop import running_worker

#: Items that are printed; --json has them all.
_SHOWN = 20
_POLL_S = 0.2

Bank = Annotated[str, typer.Argument(help="Name or id of the bank.")]
Responses = Annotated[
    str, typer.Option(help="Response set of the new answers, by name or id; see `collect`.")
]


@fail_clearly
def drift(
    name: Bank,
    responses: Responses,
    version: Annotated[str | None, typer.Option(help="Number; by default the latest.")] = None,
    json: JsonOption = None,
) -> None:
    """Say which items are no longer what they were, by answers that came in since."""

    async def run() -> DriftLook:
        async with runtime() as services:
            return await services.drift.look(name, version, responses)

    look = asyncio.run(run())
    if json != "-":
        _show_drift(look)
    write_json(json, DriftRead.of(look, limit=len(look.order)).model_dump(mode="json"))


@fail_clearly
def check_join(
    name: Bank,
    responses: Annotated[
        str | None,
        typer.Option(
            help="Response set, by name or id, of answers from outside the calibration; by default "
            "those of the version's live sessions."
        ),
    ] = None,
    version: Annotated[str | None, typer.Option(help="Number; by default the latest.")] = None,
    json: JsonOption = None,
) -> None:
    """Say whether a bank's parameters belong to its questions, by answers to them.

    Exit code 1: they do not, or not to all of them.
    """

    async def run() -> JoinLook:
        async with runtime() as services:
            return await services.joins.look(name, version, responses)

    look = asyncio.run(run())
    if json != "-":
        out.print(join_sentence(look.check), markup=False, soft_wrap=True)
        if look.check.rank_correlation is not None:
            out.print(
                f"rank correlation of right answers with difficulty: "
                f"{look.check.rank_correlation:+.2f}",
                markup=False,
            )
    write_json(json, JoinRead.of(look).model_dump(mode="json"))
    if look.check.verdict in ("broken", "doubtful"):
        raise typer.Exit(1)


@fail_clearly
def recalibrate(
    name: Bank,
    responses: Annotated[
        str | None,
        typer.Option(
            help="Response set of the new answers, by name or id; by default those of all sessions "
            "on the bank, which are collected first."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Response model of new items; by default that of the version."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Key of an item not to quarantine; may be given repeatedly."),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="Lint code that does not quarantine, such as drift; repeatable."),
    ] = None,
    unparsed: Annotated[
        Literal["wrong", "missing"] | None,
        typer.Option(
            help="How answers that nobody could read counted; by default as the response set says, "
            "else as before."
        ),
    ] = None,
    notes: Annotated[str, typer.Option(help="Kept with the version.")] = "",
) -> None:
    """Make the next version from new answers, on the scale of the latest one.

    Items in pretest get parameters, the others keep theirs; items that drifted are calibrated anew
    and quarantined. Provisional parameters are revised, all of them, from what was guessed and all
    answers. Runs a worker for as long as it takes.
    """

    async def run() -> tuple[CalibrationRecord, BankVersion]:
        async with runtime() as services, running_worker(services):
            record = await _calibrated(
                services, name, responses or await _live(services, name), model
            )
            publication = Publication(
                bank=name,
                notes=notes,
                keep=keep or (),
                allow=allow or (),
                unparsed_policy=unparsed,
            )
            return record, await services.calibrations.publish(record.id, publication)

    record, version = run_until_signal(run())
    result = record.result or {}
    basis = f"{result['scored_answers']} answers of {result['kept']['examinees']} examinees"
    if moved := result.get("drift"):
        said = (
            f"; {moved['judged']} old items judged, {moved['easier']} became easier and "
            f"{moved['harder']} harder"
        )
    else:
        known = Provisional.of(version.knowledge)
        said = "" if known is None else f". {provisional_words(known)}"
    out.print(f"{basis}{said}", soft_wrap=True, markup=False)
    states = version.lint["items"]
    out.print(
        f"version {version.number} on scale {version.scale}: {states['active']} active, "
        f"{states['quarantined']} quarantined, {states['pretest']} in pretest  {version.id}",
        markup=False,
        soft_wrap=True,
    )


async def _calibrated(
    services: Services, bank: str, responses: str, model: str | None
) -> CalibrationRecord:
    version = await services.versions.get(bank)
    if PROVISIONAL in version.knowledge:
        plan = CalibrationPlan(prior_version_id=version.id)
        return await _ended(services, await services.calibrations.create(responses, plan))
    link = LinkPlan(
        method=LinkMethod.FIXED_ANCHOR.value, bank_version_id=version.id, check_drift=True
    )
    plan = CalibrationPlan(model=model or version.response_model, link=link)
    return await _ended(services, await services.calibrations.create(responses, plan))


async def _live(services: Services, bank: str) -> str:
    """The set of all answers of sessions on a bank, up to date."""
    found = (await services.banks.get_bank(bank)).bank
    wanted = Collection(bank=found.id)
    report = await services.collector.collect(f"live-{found.id}", wanted, make=True)
    return report.response_set.id


async def _ended(services: Services, record: CalibrationRecord) -> CalibrationRecord:
    while record.status not in ENDED:
        await asyncio.sleep(_POLL_S)
        record = await services.calibrations.get(record.id)
    if record.failure is not None:
        raise CalibrationError(record.failure["detail"])
    return record


def _show_drift(look: DriftLook) -> None:
    found = look.drift
    out.print(look.verdict, markup=False, soft_wrap=True)
    table = Table("item", "answers", "old b", "new b", "z", "right", "", box=None)
    for j in look.order[:_SHOWN]:
        if not np.isfinite(found.z[j]):
            continue
        mark = ""
        if found.drifted[j]:
            mark = "easier: leaked?" if found.easier[j] > 0 else "harder"
        table.add_row(
            found.keys[j],
            str(found.n_answers[j]),
            f"{found.old_b[j]:+.2f}",
            f"{found.new_b[j]:+.2f}",
            f"{found.z[j]:+.1f}",
            f"{found.easier[j]:+.0%}",
            mark,
        )
    out.print(table, soft_wrap=True)

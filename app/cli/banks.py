"""`sextant banks`: bring item banks in and look at them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, Protocol, TypeVar

import typer

from app.cli import bank_list, catalog, from_results, preview, recalibration
from app.cli.console import err, fail_clearly, out
from app.cli.files import write_async_blocks
from app.cli.options import DryRunOption, file_option
from app.cli.runtime import runtime
from app.engine.inference.join import JoinCheck
from app.errors import InvalidInputError
from app.exchange.bank_files import BankFormat, formula_like
from app.exchange.items import read_items
from app.exchange.parameters import read_parameters
from app.items import ScorerSpec
from app.records.banks import QUARANTINED, BankVersion, VersionItem
from app.records.provisional import PROVISIONAL
from app.reports.joins import join_sentence
from app.services.banks.asked import ASKED
from app.services.banks.draft import RESPONSE_MODELS
from app.services.banks.imports import BankImport, Tally
from app.services.banks.offers import Offer
from app.services.banks.overviews import BankOverview
from app.services.banks.provisional import Difficulty, told_guesses
from app.services.banks.service import ImportReport
from app.services.banks.spec import BankSpec
from app.services.container import Services
from app.services.responses.confined_reading import SentFile
from app.services.responses.unparsed import UNPARSED_POLICY
from app.storage.paging import Page, PageRequest

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_PAGE = 1000
#: Findings that an import prints; `sextant banks lint` has them all.
_SHOWN = 10

app = typer.Typer(
    no_args_is_help=True,
    help="Install, import, list, show, lint, export and recalibrate item banks.",
)


@app.command("import")
@fail_clearly
def import_bank(
    name: Annotated[str, typer.Argument(help="Name of the bank; it is made if there is none.")],
    items: Annotated[
        Path | None,
        file_option(help="Items, JSONL or CSV."),
    ] = None,
    parameters: Annotated[
        Path | None,
        file_option(
            help="Parameters: mirt's CSV (a1,d,g,u), item,a,b,c,d, Parquet, or py-irt's JSON. "
            "They make a new version."
        ),
    ] = None,
    response_model: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(RESPONSE_MODELS)}; by default the smallest that fits."),
    ] = None,
    scorer: Annotated[
        str | None, typer.Option(help="Marks the items that name none; of a new bank only.")
    ] = None,
    unparsed: Annotated[
        Literal["wrong", "missing"] | None,
        typer.Option(
            help="How answers that nobody could read counted when the parameters were made "
            "(lm-eval: wrong); sessions count them alike."
        ),
    ] = None,
    scale: Annotated[
        str | None, typer.Option(help="Theta scale that the parameters are linked to, if to any.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="Lint code that does not quarantine an item; may be given repeatedly."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Key of an item never to quarantine; may be given repeatedly."),
    ] = None,
    from_version: Annotated[
        str | None,
        typer.Option(
            help="Number of a version, or latest, whose parameters go over to the next one; new "
            "items go to pretest."
        ),
    ] = None,
    provisional: Annotated[
        bool,
        typer.Option(
            "--provisional",
            help="Own questions, no models yet: guess parameters, so that they can be asked at "
            "once. Standard errors include how uncertain the guesses are.",
        ),
    ] = False,
    difficulty: Annotated[
        Difficulty | None,
        typer.Option(
            help="Where --provisional guesses difficulties from: given (the items' field "
            "`difficulty`), tags (easy, level-3, ...), position (from easy to hard), or none."
        ),
    ] = None,
    bundle: Annotated[
        Path | None, file_option(help="A bank as one file, which `export --bundle` wrote.")
    ] = None,
    dry_run: DryRunOption = False,
) -> None:
    """Import items, parameters or both, or a whole bank: all of it or nothing."""
    if bundle is not None:
        given = (items, parameters, response_model, scorer, unparsed, scale, from_version)
        flags = dry_run or provisional
        if any(value is not None for value in (*given, allow, keep, difficulty)) or flags:
            raise InvalidInputError("--bundle brings all of a bank along: leave the rest out.")
        sent = SentFile(bundle.name, bundle.read_bytes())
        _show_report(_with(lambda services: services.bundles.import_file(sent, name)))
        return
    request = BankImport(
        items=_read(items, read_items) or (),
        parameters=_read(parameters, read_parameters),
        response_model=response_model,
        scale=scale,
        allow=allow or (),
        keep=keep or (),
        unparsed_policy=unparsed,
        from_version=from_version,
        provisional=provisional,
        difficulty=difficulty,
    )
    spec = BankSpec(name=name)
    if scorer is not None:
        spec = BankSpec(name=name, default_scorer=ScorerSpec(scorer))
    _show_report(_with(lambda services: services.banks.import_bank(spec, request, dry_run=dry_run)))


@app.command()
@fail_clearly
def show(name: Annotated[str, typer.Argument(help="Name or id of the bank.")]) -> None:
    """Show a bank and its versions."""

    async def read(
        services: Services,
    ) -> tuple[BankOverview, list[BankVersion], list[VersionItem]]:
        versions = await _all(
            lambda request: services.versions.list_page(name, request),
            lambda version: version.id,
        )
        quarantined: list[VersionItem] = []
        if versions:
            first = PageRequest(limit=_SHOWN, descending=False)
            page = await services.versions.items(name, versions[-1].id, first, status=QUARANTINED)
            quarantined = list(page.items)
        return await services.banks.get_bank(name), versions, quarantined

    overview, versions, quarantined = _with(read)
    bank = overview.bank
    if quarantined:
        catalog.show_quarantine(versions[-1].lint["items"][QUARANTINED], quarantined)
    facts = {
        "id": bank.id,
        "description": bank.description or "-",
        "licence": bank.licence or "-",
        "source": bank.source or "-",
        "visibility": bank.visibility,
        "scorer": bank.default_scorer.name,
        "unparsed": bank.unparsed_policy,
        "pretest": f"{bank.pretest_items} items a session",
        "items": str(overview.n_items),
    }
    out.print(bank.name, style="bold", markup=False)
    for label, value in facts.items():
        out.print(f"  {label:<12}{value}", markup=False, soft_wrap=True)
    for version in versions:
        _show_version(version)


@app.command()
@fail_clearly
def lint(name: Annotated[str, typer.Argument(help="Name or id of the bank.")]) -> None:
    """List what is wrong with the items of a bank's latest version."""

    async def read(services: Services) -> tuple[BankVersion, list[VersionItem], JoinCheck, Offer]:
        versions = services.versions
        version = await versions.get(name, await versions.resolve(name))
        flagged = await _all(
            lambda request: versions.items(name, version.id, request, flagged=True),
            lambda item: item.item_id,
        )
        join = (await services.joins.of_sessions(version)).check
        return version, flagged, join, await services.offers.of_version(version, name)

    version, flagged, join, offer = _with(read)
    for item in flagged:
        for flag in item.flags:
            line = f"{flag['severity']:<8}{flag['code']:<20}{item.status:<12}{flag['message']}"
            out.print(line, markup=False, soft_wrap=True)
    _show_version(version)
    said = join_sentence(join) if offer.known is None else offer.words
    err.print(said, markup=False, soft_wrap=True)


@app.command()
@fail_clearly
def export(
    name: Annotated[str, typer.Argument(help="Name or id of the bank.")],
    file_format: Annotated[
        BankFormat,
        typer.Option(
            "--format",
            help="mirt: X,a1,d,g,u; csv: item,a,b,c,d(,k); py-irt; parquet; jsonl: with content.",
        ),
    ] = BankFormat.MIRT,
    target: Annotated[str, typer.Option("--out", help="File to write; - is stdout.")] = "-",
    version: Annotated[
        int | None, typer.Option(min=1, help="Number of the version; by default the latest.")
    ] = None,
    bundle: Annotated[
        bool,
        typer.Option(
            "--bundle",
            help="All of it as one file: questions, parameters, what is known of them, licence, "
            "and a hash over it.",
        ),
    ] = False,
) -> None:
    """Write a version of a bank into a file that imports read back."""

    async def write() -> tuple[BankVersion, list[str]]:
        async with runtime() as services:
            number = None if version is None else str(version)
            if bundle:
                made = await services.bundles.export(name, number)
            else:
                made = await services.bank_exports.export(name, number, file_format, reveal=True)
            await write_async_blocks(target, made.blocks)
            loaded = await services.versions.load(made.version.id)
            return made.version, formula_like(loaded.keys)

    made, formulas = asyncio.run(write())
    if formulas and not bundle and file_format in (BankFormat.MIRT, BankFormat.CSV):
        err.print(
            f"Note: {len(formulas)} names begin like formulas, the first is {formulas[0]!r}; tell "
            "a spreadsheet that this column is text.",
            markup=False,
            soft_wrap=True,
        )
    if target != "-":
        out.print(f"Wrote version {made.number} to {target}.", markup=False, soft_wrap=True)


app.command("list")(bank_list.list_banks)
app.command("catalog")(catalog.catalog)
app.command("install")(catalog.install)
app.command("from-results")(from_results.from_results)
app.command("preview")(preview.preview)
app.command("check-join")(recalibration.check_join)
app.command("drift")(recalibration.drift)
app.command("recalibrate")(recalibration.recalibrate)


class _Reader(Protocol[T_co]):
    def __call__(self, source: BinaryIO, *, name: str) -> T_co: ...


def _read(path: Path | None, reader: _Reader[T]) -> T | None:
    if path is None:
        return None
    with path.open("rb") as file:
        return reader(file, name=path.name)


async def _all(
    page_of: Callable[[PageRequest], Awaitable[Page[T]]], identify: Callable[[T], str]
) -> list[T]:
    found: list[T] = []
    after = None
    while True:
        page = await page_of(PageRequest(limit=_PAGE, after=after, descending=False))
        found += page.items
        if not page.has_more:
            return found
        after = identify(found[-1])


def _with(use: Callable[[Services], Awaitable[T]]) -> T:
    """Run `use` on the configured database."""

    async def run() -> T:
        async with runtime() as services:
            return await use(services)

    return asyncio.run(run())


def _show_report(report: ImportReport) -> None:
    if report.dry_run:
        err.print("Dry run: nothing was written.")
    _show_tally("items", report.items)
    _show_tally("parameters", report.parameters)
    if report.renamed:
        pairs = ", ".join(f"{pair.parameter} = {pair.item}" for pair in report.renamed[:_SHOWN])
        more = ", ..." if len(report.renamed) > _SHOWN else ""
        line = f"{len(report.renamed)} parameter names matched as R spells them: {pairs}{more}"
        out.print(line, markup=False, soft_wrap=True)
    for finding in report.findings[:_SHOWN]:
        line = f"{finding.severity}: {finding.code}: {finding.message}"
        out.print(line, markup=False, soft_wrap=True)
    if len(report.findings) > _SHOWN:
        out.print(f"... and {len(report.findings) - _SHOWN} more findings", markup=False)
    if report.version is not None:
        if PROVISIONAL in report.version.knowledge and report.version.calibration is None:
            out.print(told_guesses(report.version.knowledge), markup=False, soft_wrap=True)
        _show_version(report.version)
    elif report.items.rows_read:
        err.print("No parameters came in, so there is no new version.")


def _show_tally(what: str, tally: Tally) -> None:
    if not tally.rows_read:
        return
    reasons = "".join(f", {s.count} skipped ({s.reason})" for s in tally.skipped)
    line = f"{what}: {tally.rows_read} read, {tally.accepted} accepted{reasons}"
    out.print(line, markup=False, soft_wrap=True)


def _show_version(version: BankVersion) -> None:
    states = ", ".join(f"{count} {state}" for state, count in version.lint["items"].items())
    notes = [
        note
        for note, applies in (
            ("provisional parameters", version.provisional),
            ("no content: for manual sessions and simulation only", not version.has_content),
            (_asked(version.knowledge.get(ASKED, {})), ASKED in version.knowledge),
            (
                f"unreadable answers counted as {version.knowledge.get(UNPARSED_POLICY)}",
                UNPARSED_POLICY in version.knowledge,
            ),
        )
        if applies
    ]
    line = f"version {version.number}: {version.response_model}, scale {version.scale}, {states}"
    out.print("; ".join([line, *notes]), markup=False, soft_wrap=True)
    out.print(f"  {version.id}  sha256 {version.parameters_hash}", markup=False, soft_wrap=True)


def _asked(known: Mapping[str, Any]) -> str:
    """How the answers behind the parameters were obtained."""
    words = {"loglikelihood": "options compared by likelihood", "generate": "answers written"}
    parts = [words.get(str(known.get("mode")), "asked in an unknown way")]
    if "shots" in known:
        parts.append(f"{known['shots']} examples")
    if "source" in known:
        parts.append(str(known["source"]))
    return "calibrated with " + ", ".join(parts)

"""`sextant response-sets`: bring recorded answers in and look at them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer
from rich.table import Column, Table

from app.cli.console import err, fail_clearly, out
from app.cli.files import write_blocks
from app.cli.options import DryRunOption
from app.cli.runtime import runtime
from app.errors import InvalidInputError
from app.exchange.recorded import Choices
from app.exchange.response_files import ResponseFormat, files_at, format_named
from app.records.response_sets import ResponseSet
from app.services.responses.collection import Collection, CollectionReport
from app.services.responses.export import MatrixFormat, export_answers
from app.services.responses.imports import AnswerImport
from app.services.responses.service import AnswerImportReport, ResponseSetService
from app.services.responses.unparsed import policy_of
from app.storage.paging import PageRequest

T = TypeVar("T")

_PAGE = 1000
#: Names and places that are printed before the rest is only counted.
_SHOWN = 5
_REASONS = {
    "taken_before": "taken before",
    "not_ended": "not ended",
    "replay": "replays of others",
    "simulated": "of simulated examinees",
}

app = typer.Typer(
    no_args_is_help=True, help="Import, collect, list, show and export recorded answers."
)


@app.command("import")
@fail_clearly
def import_answers(
    name: Annotated[str, typer.Argument(help="Name of the set; it is made if there is none.")],
    more: Annotated[
        list[Path] | None, typer.Argument(help="Further files and folders.", show_default=False)
    ] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option("--from", help="File or folder; may be given repeatedly."),
    ] = None,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format", help=f"{', '.join(ResponseFormat)}; by default each file's content tells."
        ),
    ] = None,
    filters: Annotated[
        list[str] | None, typer.Option("--filter", help="lm-eval filter to take.")
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metric", help="Metric to take; of several, the first that a row has."),
    ] = None,
    scorers: Annotated[
        list[str] | None,
        typer.Option("--scorer", help="inspect scorer to take, SCORER or SCORER.KEY."),
    ] = None,
    examinee: Annotated[
        str | None, typer.Option(help="Who answered, for files of one examinee.")
    ] = None,
    no_answer: Annotated[
        Literal["wrong", "refused"], typer.Option(help="What inspect's N counts as.")
    ] = "wrong",
    unparsed: Annotated[
        Literal["wrong", "missing"] | None,
        typer.Option(
            help="How whoever marked the answers counted those that could not be read; by default "
            "as the format is known for. Banks calibrated from the set ask alike."
        ),
    ] = None,
    score_range: Annotated[
        tuple[float, float],
        typer.Option(metavar="WORST BEST", help="Scores of the files; they become 0 and 1."),
    ] = (0.0, 1.0),
    dry_run: DryRunOption = False,
) -> None:
    """Import answers from result files of lm-eval, inspect, HELM, py-irt, or from tables."""
    paths = [*(source or ()), *(more or ())]
    if not paths:
        raise InvalidInputError("Name at least one file or folder with --from.")
    request = AnswerImport(
        files=files_at(paths),
        file_format=None if file_format is None else format_named(file_format),
        choices=Choices(
            filters=tuple(filters or ()),
            metrics=tuple(metrics or ()),
            scorers=tuple(scorers or ()),
            examinee=examinee,
            refused_no_answer=no_answer == "refused",
            score_range=score_range,
            unparsed_policy=unparsed,
        ),
    )
    _show_report(_with_sets(lambda sets: sets.import_set(name, request, dry_run=dry_run)))


@app.command()
@fail_clearly
def collect(
    name: Annotated[str, typer.Argument(help="Name of the set; it is made if there is none.")],
    bank: Annotated[str, typer.Option(help="Bank whose sessions are taken over, by name or id.")],
    version: Annotated[
        str | None, typer.Option(help="Number of a version; by default all versions.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(help="Only sessions that ended then or later, UTC."),
    ] = None,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Take those of simulated examinees, too.")
    ] = False,
) -> None:
    """Take over the answers of all ended sessions on a bank, each session once."""
    wanted = Collection(
        bank=bank,
        version=version,
        since=since and since.replace(tzinfo=UTC),
        simulated=simulated,
    )

    async def run() -> CollectionReport:
        async with runtime() as services:
            return await services.collector.collect(name, wanted, make=True)

    report = asyncio.run(run())
    reasons = "".join(f", {count} {_REASONS[why]}" for why, count in report.left_out.items())
    out.print(f"{report.sessions} sessions taken over{reasons}", soft_wrap=True)
    out.print(
        f"{report.accepted} answers ({_counts(report.outcomes)}), {report.pretest_answers} of them "
        f"to items in pretest; {report.new_examinees} new examinees, {report.new_items} new items",
        soft_wrap=True,
    )
    found = report.response_set
    out.print(
        f"{found.name}: {found.n_examinees} examinees, {found.n_items} items  {found.id}",
        markup=False,
        soft_wrap=True,
    )


@app.command("list")
@fail_clearly
def list_sets() -> None:
    """List all response sets."""
    name, identifier = Column("name", no_wrap=True), Column("id", no_wrap=True)
    table = Table(name, "examinees", "items", "answers", identifier, box=None)
    for found in _with_sets(_all):
        table.add_row(
            found.name,
            str(found.n_examinees),
            str(found.n_items),
            str(found.outcomes.get("scored", 0)),
            found.id,
        )
    out.print(table, soft_wrap=True)


@app.command()
@fail_clearly
def show(name: Annotated[str, typer.Argument(help="Name or id of the set.")]) -> None:
    """Show a response set and where its answers come from."""
    found = _with_sets(lambda sets: sets.get(name))
    out.print(found.name, style="bold", markup=False)
    facts = {
        "id": found.id,
        "description": found.description or "-",
        "examinees": str(found.n_examinees),
        "items": str(found.n_items),
        "answers": _counts(found.outcomes),
        "unparsed": policy_of(found.imports) or "unknown",
    }
    for label, value in facts.items():
        out.print(f"  {label:<12}{value}", markup=False, soft_wrap=True)
    for entry in found.imports:
        files = ", ".join(file["name"] for file in entry["files"][:_SHOWN])
        rest = entry["n_files"] - min(_SHOWN, len(entry["files"]))
        more = f" and {rest} more" if rest else ""
        line = f"  {entry['at']}  {entry['accepted']} of {entry['rows_read']} from {files}{more}"
        out.print(line, markup=False, soft_wrap=True)


@app.command()
@fail_clearly
def export(
    name: Annotated[str, typer.Argument(help="Name or id of the set.")],
    file_format: Annotated[
        MatrixFormat,
        typer.Option(
            "--format",
            help="csv and parquet: a row an examinee; long: a row an answer; py-irt: JSON lines.",
        ),
    ] = MatrixFormat.CSV,
    target: Annotated[str, typer.Option("--out", help="File to write; - is stdout.")] = "-",
) -> None:
    """Write all scores of a response set into a file."""
    made = _with_sets(lambda sets: export_answers(sets, name, file_format))
    write_blocks(target, made.blocks)
    if target != "-":
        out.print(f"Wrote {target}.", markup=False, soft_wrap=True)


async def _all(sets: ResponseSetService) -> list[ResponseSet]:
    found: list[ResponseSet] = []
    after = None
    while True:
        page = await sets.list_page(PageRequest(limit=_PAGE, after=after, descending=False))
        found += page.items
        if not page.has_more:
            return found
        after = found[-1].id


def _with_sets(use: Callable[[ResponseSetService], Awaitable[T]]) -> T:
    """Run `use` on the configured database."""

    async def run() -> T:
        async with runtime() as services:
            return await use(services.response_sets)

    return asyncio.run(run())


def _show_report(report: AnswerImportReport) -> None:
    if report.dry_run:
        err.print("Dry run: nothing was written.")
    for file in report.files[:_SHOWN]:
        out.print(
            f"{file.name}: {file.file_format}, {file.rows_read} read", markup=False, soft_wrap=True
        )
    if len(report.files) > _SHOWN:
        out.print(f"... and {len(report.files) - _SHOWN} more files")
    if report.passed_over:
        out.print(f"{len(report.passed_over)} files hold no answers and were passed over")
    out.print(
        f"{report.rows_read} answers read, {report.accepted} accepted "
        f"({_counts(report.outcomes)}); {report.new_examinees} new examinees, "
        f"{report.new_items} new items",
        soft_wrap=True,
    )
    for skipped in report.skipped:
        out.print(f"{skipped.count} skipped ({skipped.reason}):", markup=False)
        for place in skipped.places[:_SHOWN]:
            out.print(f"  {place}", markup=False, soft_wrap=True)
    if report.without_scores:
        names = ", ".join(report.without_scores[:_SHOWN])
        more = ", ..." if len(report.without_scores) > _SHOWN else ""
        line = f"{len(report.without_scores)} examinees without a score: {names}{more}"
        out.print(line, markup=False, soft_wrap=True)
    found = report.response_set
    out.print(
        f"{found.name}: {found.n_examinees} examinees, {found.n_items} items  {found.id}",
        markup=False,
        soft_wrap=True,
    )


def _counts(outcomes: Mapping[str, int]) -> str:
    """Answers by outcome. A scored answer takes the place of an older one without a score."""
    come = [f"{count} {outcome}" for outcome, count in outcomes.items() if count > 0]
    gone = [f"{-count} {outcome}" for outcome, count in outcomes.items() if count < 0]
    replaced = [f"in place of {' and '.join(gone)}"] if gone else []
    return ", ".join(come + replaced) or "none"

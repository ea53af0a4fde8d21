"""Load the files of the offline commands."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from app.calibration.continuous.scores import ScoreScale
from app.cli.terminal.console import JsonObject, err
from app.cli.terminal.options import file_option, output_option
from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.knowledge import curves_of, targets_of
from app.engine.models.base import BoolArray
from app.engine.prediction.correction import correction_in
from app.engine.responses import ResponseTable
from app.errors import FileFormatError, InvalidInputError
from app.exchange.bundles import BEGINNING, read_bundle
from app.exchange.files import SCORE_RANGE, as_text, csv_rows, plain
from app.exchange.parameters import read_parameters

_bank_option = partial(
    typer.Option,
    "--bank",
    dir_okay=False,
    help="Item parameters: X,a1,d,g,u (mirt) or item,a,b,c,d(,k), .csv or .csv.gz; or a bundle.",
)
BankOption = Annotated[Path, _bank_option()]
OptionalBankOption = Annotated[Path | None, _bank_option()]
ResponsesOption = Annotated[
    Path,
    file_option(
        "--responses",
        help="Scores: one row per examinee and one column per item, or examinee,item,score; .csv, "
        ".csv.gz or .parquet.",
    ),
]
JsonOption = Annotated[
    str | None, output_option("--json", help="Write one JSON object to this file; - is stdout.")
]

ScaleOption = Annotated[
    tuple[float, float] | None,
    typer.Option(
        "--scale",
        metavar="LO HI",
        help="Lowest and highest possible score, such as 1 10 of a judge; by default 0 1.",
    ),
]
LowerIsBetterOption = Annotated[
    bool, typer.Option("--lower-is-better", help="The lowest score is the best one.")
]


def score_scale(scale: tuple[float, float] | None, *, lower_is_better: bool) -> ScoreScale:
    """The scale that the options declare."""
    lo, hi = scale or SCORE_RANGE
    return ScoreScale(lo=lo, hi=hi, lower_is_better=lower_is_better)


def load_scores(path: Path, scale: ScoreScale) -> ResponseTable:
    """Load the scores of a response file, mapped to 0 (worst) to 1 (best).

    Raises:
        InvalidInputError: The file cannot be opened or has the wrong form, or a score lies outside
            the scale; the message names its row and column.
    """
    return scaled(load_responses(path, score_range=(scale.lo, scale.hi)), scale)


def scaled(table: ResponseTable, scale: ScoreScale) -> ResponseTable:
    """The table with scores from 0 (worst) to 1 (best); refuses scores outside the scale."""
    unit = scale.unit(table.scores, table.examinees, table.items)
    return ResponseTable(table.examinees, table.items, unit)


def without(table: ResponseTable, names: Iterable[str]) -> ResponseTable:
    """The table without the examinees of these names."""
    return table.select(examinees=~np.isin(table.examinees, list(names)))


def note(text: str) -> None:
    """Print a note on something that a user may not expect."""
    err.print(f"Note: {text}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownBank:
    """A bank, with what its file holds beside the parameters.

    Attributes:
        bank: The item parameters.
        knowledge: Knowledge of the bank version; None for a file of parameters alone.
        active: Mask of the items that may be asked, shape (n_items,); None leaves it to the design.
        reference_abilities: Quantiles of the reference models' thetas; empty if the file has none.
    """

    bank: ItemBank
    knowledge: JsonObject | None = None
    active: BoolArray | None = None
    reference_abilities: Sequence[float] = ()

    @classmethod
    def load(cls, path: Path) -> "KnownBank":
        """Read a bundle or a parameter file.

        Raises:
            InvalidInputError: The file cannot be opened, or has the wrong form.
        """
        try:
            with path.open("rb") as stream:
                if not stream.peek(len(BEGINNING)).startswith(BEGINNING):
                    return cls(bank=read_parameters(stream, name=path.name))
                bundle = read_bundle(stream.read(), path.name)
        except FileNotFoundError as exc:
            raise InvalidInputError(
                f"--bank: {path}: cannot be read: {exc.strerror}. Export a bank of a server "
                f"first: sextant banks export {path.stem} --bundle --out {path.stem}.bundle"
            ) from exc
        except OSError as exc:
            raise InvalidInputError(f"{path}: cannot be read: {exc.strerror}.") from exc
        bank = bundle.parameters(path.name)
        try:
            knowledge = bundle.version["knowledge"]
            thetas = knowledge.get("reference_abilities", {}).get("quantiles", ())
            known = cls(
                bank=bank,
                knowledge=knowledge,
                active=bundle.active(bank),
                reference_abilities=thetas,
            )
            known.test(Design.from_dict({}))
        except (LookupError, TypeError, ValueError, AttributeError) as exc:
            raise FileFormatError(
                f"{path.name}: its facts about the version cannot be read: {exc!r:.200}."
            ) from None
        return known

    def test(self, design: Design) -> AdaptiveTest:
        """Build the test of a design as a session builds it.

        Raises:
            InvalidInputError: The design cannot be built on this bank.
        """
        knowledge = self.knowledge or {}
        return design.build(
            self.bank,
            active=self.active,
            correction=correction_in(knowledge),
            targets=targets_of(self.bank, knowledge, ()),
            curves=curves_of(self.bank, knowledge),
        )


def load_bank(path: Path, *, several: bool = False) -> ItemBank:
    """Load a bank as `KnownBank.load` does; `several` allows several abilities."""
    bank = KnownBank.load(path).bank
    if bank.abilities is not None and not several:
        names = ", ".join(bank.abilities.items.names)
        raise InvalidInputError(
            f"{path.name}: expected a bank of one ability, got one of several ({names}). Import it "
            "into a server to test with it, or use `sextant simulate --selector v-optimal --train`."
        )
    return bank


def load_responses(
    path: Path, *, score_range: tuple[float, float] | None = SCORE_RANGE
) -> ResponseTable:
    """Load the scores of a response file; `score_range` limits them, None allows any number.

    Raises:
        InvalidInputError: The file cannot be opened, or has the wrong form.
    """
    from app.exchange.responses import read_responses

    try:
        with path.open("rb") as stream:
            return read_responses(stream, name=path.name, score_range=score_range)
    except OSError as exc:
        raise InvalidInputError(f"{path}: cannot be read: {exc.strerror}.") from exc


def load_numbers(path: Path, expected: str, column: str, examinees: Sequence[str]) -> FloatArray:
    """Load one number for each examinee from a CSV file whose first column names examinees.

    Args:
        path: The file.
        expected: Text of the error for a path that cannot be read.
        column: The number's column is the one whose name begins with this.
        examinees: Names of the examinees, in the order of the result.

    Raises:
        InvalidInputError: The file cannot be opened.
        FileFormatError: No such column, a cell that is no number, or an examinee without one.
    """
    try:
        text = as_text(path.read_bytes(), path.name)
    except OSError as exc:
        raise InvalidInputError(f"{expected}, got {path}: {exc.strerror}.") from exc
    rows = csv_rows(text, path.name)
    _, header = next(rows, (0, []))
    at = next((i for i, name in enumerate(header) if i and name.startswith(column)), None)
    if at is None:
        raise FileFormatError(
            f"{path.name}: expected a first column of examinees and a column {column}..., found "
            f"{','.join(header)!r:.200}."
        )
    found: dict[str, float] = {}
    for number, row in rows:
        try:
            found[plain(row[0])] = float(row[at])
        except (IndexError, ValueError) as exc:
            raise FileFormatError(
                f"{path.name}:{number}: expected an examinee and a number as {header[at]}, "
                f"got {','.join(row)!r:.200}."
            ) from exc
    for examinee in examinees:
        if not np.isfinite(found.get(examinee, np.nan)):
            raise FileFormatError(
                f"{path.name}: expected a {column} of every examinee, got none of {examinee!r}."
            )
    return np.array([found[examinee] for examinee in examinees])

"""Options that several commands share."""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from app.errors import InvalidInputError
from app.items import Json

#: Makes an option that takes an existing file.
file_option = partial(typer.Option, exists=True, dir_okay=False, readable=True)

AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Lint code that does not quarantine an item, such as misfit; may be given repeatedly."
    ),
]
ConcurrencyOption = Annotated[
    int | None, typer.Option(metavar="K", help="Asked at once; 4 unless the preset is atlas.")
]
#: A smaller number of points is surely meant as a share: no test is so precise.
_LEAST_POINTS = 0.1
_points = partial(typer.Option, min=0.01, max=50.0, metavar="POINTS")
_MARGIN = "Stop when the score is known to so many points either way"
MarginOption = Annotated[float | None, _points(help=f"{_MARGIN}; 4 by default.")]
FurtherMarginOption = Annotated[float | None, _points(help=f"{_MARGIN}.")]
DimensionsOption = Annotated[
    int | None,
    typer.Option(help="Of the models mirt and nested; by default what parallel analysis finds."),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what would happen and write nothing.")
]
EraseOption = Annotated[
    bool,
    typer.Option("--erase", help="For good, with all texts; refused while tests use it."),
]
ExamineeOption = Annotated[
    str | None, typer.Option(help="Who answered, for files of one examinee.")
]
FilterConfidenceOption = Annotated[
    float | None,
    typer.Option(
        "--filter-confidence",
        min=0.5,
        max=0.999,
        help="How sure it must be that an item goes badly with the rest; by default its estimate "
        "is taken for the truth. 0.95 for few models.",
    ),
]
FilteringOption = Annotated[
    bool,
    typer.Option("--filters/--no-filters", help="Leave out items and examinees that say little."),
]
FiltersOption = Annotated[
    list[str] | None, typer.Option("--filter", help="lm-eval filter to take.")
]
HolmOption = Annotated[
    bool, typer.Option("--holm", help="Confidence for all pairs together, not for each.")
]
RankingPresetOption = Annotated[
    Literal["continuous-paper"] | None,
    typer.Option("--preset", help="A published ranking, as it is printed."),
]
ItemCostsOption = Annotated[
    Path | None,
    file_option(help="CSV item,cost or item,tokens_in,tokens_out: choose by gain per cost."),
]
KeepForScoreOption = Annotated[
    bool,
    typer.Option(
        "--keep-for-score/--drop",
        help="Count items in scores that say too little of ability, or drop them.",
    ),
]
KeepOption = Annotated[
    list[str] | None,
    typer.Option(help="Key of an item not to quarantine; may be given repeatedly."),
]
MetricsOption = Annotated[
    list[str] | None,
    typer.Option("--metric", help="Metric to take; of several, the first that a row has."),
]
NegativeSlopesOption = Annotated[
    bool | None,
    typer.Option(
        "--negative-slopes/--positive-slopes",
        help="Let items fall with ability; by default if some do, which no filter has removed.",
    ),
]
NotesOption = Annotated[str, typer.Option(help="Kept with the version.")]
PartitionSizeOption = Annotated[
    int | None,
    typer.Option(help="Calibrate parts of so many items (100 at least) and link them."),
]
PredictionOption = Annotated[
    Literal["combined", "design", "score-model", "p-irt"] | None,
    typer.Option(
        "--prediction",
        help="How the score is predicted; by default combined: by the curves of the reference "
        "models and by sampled questions.",
    ),
]
AllowFewOption = Annotated[
    bool, typer.Option("--allow-few", help="A 4pl even from fewer than 500 models.")
]
PriorsOption = Annotated[
    bool, typer.Option(help="Weak priors, their spread learned; without: maximum likelihood.")
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Only the result: no progress, no hints.")
]
ScorersOption = Annotated[
    list[str] | None,
    typer.Option("--scorer", help="inspect scorer to take, SCORER or SCORER.KEY."),
]
TargetOption = Annotated[
    str, typer.Option(metavar="TAG", help="Score to predict: all, or the items of a tag.")
]
TokensPerDayOption = Annotated[
    int | None, typer.Option(help="Tokens that its calls may take in a day (UTC).")
]
UsdPerDayOption = Annotated[
    float | None, typer.Option(help="US dollars that its calls may take in a day (UTC).")
]


#: Limit of a project or a key -> its option.
LIMITS: Mapping[str, object] = {
    "usd_per_day": UsdPerDayOption,
    "tokens_per_day": TokensPerDayOption,
    "stored_bytes": Annotated[int | None, typer.Option(help="Bytes that it may store.")],
    "requests_per_s": Annotated[float | None, typer.Option(help="Requests a second.")],
    "open_sessions": Annotated[int | None, typer.Option(help="Sessions that have not ended.")],
    "event_streams": Annotated[int | None, typer.Option(help="Event streams at a process.")],
}


def given(**values: Json) -> dict[str, Json]:
    """Keep only the values that were given; defaults apply to the rest."""
    return {name: value for name, value in values.items() if value not in (None, {})}


def require_filters(*, filters: bool, keep_for_score: bool, confidence: float | None) -> None:
    """Refuse options of the filters where the filters are switched off.

    Raises:
        InvalidInputError: Such an option is given.
    """
    if not filters and (not keep_for_score or confidence is not None):
        raise InvalidInputError(
            "--drop and --filter-confidence belong to the filters, which --no-filters switches off."
        )


def limits_of(**told: float | None) -> dict[str, float | None]:
    """Limits that a command names; 0 becomes None, which means no limit.

    Raises:
        InvalidInputError: A limit is negative or not a number.
    """
    named = {name: value for name, value in told.items() if value is not None}
    if refused := [name for name, value in named.items() if not 0 <= value < math.inf]:
        raise InvalidInputError(f"{refused[0]}: expected 0 or more, got {named[refused[0]]}.")
    return {name: value or None for name, value in named.items()}


def share_of(points: float | None, option: str = "--margin") -> float | None:
    """Convert points, the unit of the options, to a share, the unit of designs.

    Raises:
        InvalidInputError: The value looks like a share already.
    """
    if points is None:
        return None
    if 0 < points < _LEAST_POINTS:
        raise InvalidInputError(
            f"{option}: expected points, got {points:g}; for {100 * points:g} points say "
            f"{100 * points:g}."
        )
    return round(points / 100, 12)

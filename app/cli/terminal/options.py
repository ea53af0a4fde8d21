"""Options that several commands share."""

import json
import math
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer

from app.errors import InvalidInputError
from app.items import Json

P = TypeVar("P", str, Path)
#: Makes an option that takes an existing file.
file_option = partial(typer.Option, exists=True, dir_okay=False, readable=True)


def _writable(target: P | None) -> P | None:
    """Refuse a path for output that cannot be written, before the command spends anything."""
    if target is None or target == "-":
        return target
    path = Path(target)
    where = path if path.exists() else path.parent
    if path.is_dir() or not where.exists() or not os.access(where, os.W_OK):
        reason = "no such directory" if not where.exists() else "not a file that you may write"
        raise typer.BadParameter(f"{target}: cannot be written: {reason}.")
    return target


#: Makes an option that takes a file to write.
output_option = partial(typer.Option, callback=_writable)

AllowOption = Annotated[
    list[str] | None,
    typer.Option(help="Lint code, such as misfit, that does not quarantine; may be repeated."),
]
ConcurrencyOption = Annotated[
    int | None,
    typer.Option(metavar="K", help="Asked at once; 4 by default, 1 for atlas."),
]
#: A smaller number of points is surely meant as a share: no test is so precise.
_LEAST_POINTS = 0.1
_points = partial(typer.Option, max=50.0, metavar="POINTS")
_MARGIN = f"Stop when the score is known to ± this many points, at least {_LEAST_POINTS:g}"
MarginOption = Annotated[float | None, _points(help=f"{_MARGIN}; 4 by default.")]
FurtherMarginOption = Annotated[float | None, _points(help=f"{_MARGIN}.")]
DimensionsOption = Annotated[
    int | None,
    typer.Option(
        help="Number of abilities for mirt, or besides the general one for nested; by default "
        "found by parallel analysis."
    ),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Report what would happen, and write nothing.")
]
EraseOption = Annotated[
    bool,
    typer.Option("--erase", help="Delete permanently, with all texts; refused while tests use it."),
]
ExamineeOption = Annotated[
    str | None, typer.Option(help="Name of the examinee, for files of one examinee.")
]
FilterConfidenceOption = Annotated[
    float | None,
    typer.Option(
        "--filter-confidence",
        min=0.5,
        max=0.999,
        help="Confidence with which an item must correlate too little with the rest to be "
        "filtered out; use 0.95 with few models. By default the estimate itself counts "
        "(continuous scores: 0.95).",
    ),
]
FilteringOption = Annotated[
    bool,
    typer.Option(
        "--filters/--no-filters",
        help="Filter out items and examinees that say little about ability.",
    ),
]
FiltersOption = Annotated[
    list[str] | None, typer.Option("--filter", help="lm-eval filter to read; may be repeated.")
]
HolmOption = Annotated[
    bool,
    typer.Option("--holm", help="Confidence for all pairs together, instead of for each pair."),
]
RankingPresetOption = Annotated[
    Literal["continuous-paper"] | None,
    typer.Option("--preset", help="Use a published ranking procedure."),
]
ItemCostsOption = Annotated[
    Path | None,
    file_option(help="CSV item,cost or item,tokens_in,tokens_out: choose items by gain per cost."),
]
KeepForScoreOption = Annotated[
    bool,
    typer.Option(
        "--keep-for-score/--drop",
        help="Keep filtered items in the bank for scores, or drop them.",
    ),
]
KeepOption = Annotated[
    list[str] | None,
    typer.Option(help="Key of an item not to quarantine; may be repeated."),
]
MetricsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        help="Metric to read as the score; may be repeated: the first that a row has counts.",
    ),
]
NegativeSlopesOption = Annotated[
    bool | None,
    typer.Option(
        "--negative-slopes/--positive-slopes",
        help="Whether right answers may become rarer with ability; by default if some item that "
        "passed the filters does.",
    ),
]
NotesOption = Annotated[str, typer.Option(help="Notes to store with the version.")]
PartitionSizeOption = Annotated[
    int | None,
    typer.Option(help="Calibrate parts of this many items (at least 100) and link them."),
]
PredictionOption = Annotated[
    Literal["combined", "design", "score-model", "p-irt"] | None,
    typer.Option(
        "--prediction",
        help="How the score is predicted; by default combined: from the curves of the reference "
        "models and from sampled questions.",
    ),
]
AllowFewOption = Annotated[
    bool, typer.Option("--allow-few", help="Allow a 4pl from fewer than 500 models.")
]
PriorsOption = Annotated[
    bool,
    typer.Option(
        help="Use weak priors, with the spread of guessing estimated; otherwise maximum likelihood."
    ),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Only the result: no progress, no hints.")
]
ScorersOption = Annotated[
    list[str] | None,
    typer.Option("--scorer", help="inspect scorer to read, SCORER or SCORER.KEY; may be repeated."),
]
TargetOption = Annotated[
    str,
    typer.Option(metavar="TAG", help="Score to predict: all, or a tag for the score on its items."),
]
TokensPerDayOption = Annotated[
    int | None, typer.Option(help="Tokens that calls may use in a day (UTC).")
]
UsdPerDayOption = Annotated[
    float | None, typer.Option(help="US dollars that calls may cost in a day (UTC).")
]


#: Limit of a project or a key -> its option.
LIMITS: Mapping[str, object] = {
    "usd_per_day": UsdPerDayOption,
    "tokens_per_day": TokensPerDayOption,
    "stored_bytes": Annotated[int | None, typer.Option(help="Bytes that may be stored.")],
    "requests_per_s": Annotated[float | None, typer.Option(help="Requests per second.")],
    "open_sessions": Annotated[
        int | None, typer.Option(help="Number of sessions that have not ended.")
    ],
    "event_streams": Annotated[
        int | None, typer.Option(help="Number of open event streams at one process.")
    ],
}


def given(**values: Json) -> dict[str, Json]:
    """Keep only the values that were given; defaults apply to the rest."""
    return {name: value for name, value in values.items() if value not in (None, {})}


def object_of(text: str | None, option: str) -> dict[str, Json] | None:
    """Parse the JSON object that is the value of `option`.

    Raises:
        InvalidInputError: It is something else.
    """
    if text is None:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidInputError(
            f"{option}: expected a JSON object, got {text[:60]!r} ({exc})."
        ) from exc
    if not isinstance(value, dict):
        raise InvalidInputError(f"{option}: expected a JSON object, got {text[:60]!r}.")
    return value


def require_filters(*, filters: bool, keep_for_score: bool, confidence: float | None) -> None:
    """Refuse options of the filters where the filters are switched off."""
    if not filters and (not keep_for_score or confidence is not None):
        raise InvalidInputError(
            "--no-filters switches off the filters that --drop and --filter-confidence set: "
            "leave one or the other out."
        )


def limits_of(**told: float | None) -> dict[str, float | None]:
    """Limits that a command names; refuses negative ones, and 0 becomes None: no limit."""
    named = {name: value for name, value in told.items() if value is not None}
    if refused := [name for name, value in named.items() if not 0 <= value < math.inf]:
        raise InvalidInputError(f"{refused[0]}: expected 0 or more, got {named[refused[0]]}.")
    return {name: value or None for name, value in named.items()}


def share_of(points: float | None, option: str = "--margin") -> float | None:
    """Convert points, the unit of the options, to a share; refuses what looks like a share."""
    if points is None:
        return None
    if 0 < points < _LEAST_POINTS:
        raise InvalidInputError(
            f"{option}: expected points, got {points:g}; for {100 * points:g} points say "
            f"{100 * points:g}."
        )
    return round(points / 100, 12)

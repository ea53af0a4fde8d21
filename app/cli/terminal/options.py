"""Options that several commands have."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from app.errors import InvalidInputError

#: An option that takes a file which is there.
file_option = partial(typer.Option, exists=True, dir_okay=False, readable=True)

AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Lint code that does not quarantine an item, such as misfit; may be given repeatedly."
    ),
]
AskServerOption = Annotated[
    str | None,
    typer.Option(
        envvar="SEXTANT_SERVER",
        help="Ask this Sextant server; by default that of `sextant login`, else the database of "
        "this machine, which is also called `local`.",
    ),
]
ConcurrencyOption = Annotated[
    int | None, typer.Option(metavar="K", help="Items in flight; 4 unless the preset is atlas.")
]
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
EndpointKeyOption = Annotated[
    str | None,
    typer.Option(
        envvar="SEXTANT_ENDPOINT_KEY", help="Key of the endpoint; better set by the variable."
    ),
]
EraseOption = Annotated[
    bool,
    typer.Option("--erase", help="For good, with all texts; refused while tests use it."),
]
EventStreamsOption = Annotated[int | None, typer.Option(help="Event streams at a process.")]
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
KindOption = Annotated[
    str, typer.Option(help="openai_chat, openai_completions, hf_endpoint or hf_tgi.")
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
OpenSessionsOption = Annotated[int | None, typer.Option(help="Sessions that have not ended.")]
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
PriceInputOption = Annotated[
    float | None, typer.Option(help="US dollars per million prompt tokens.")
]
PriceOutputOption = Annotated[
    float | None, typer.Option(help="US dollars per million completion tokens.")
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
RequestsPerSOption = Annotated[float | None, typer.Option(help="Requests a second.")]
SameAsJsonOption = Annotated[
    str | None, typer.Option("--json", help="Write the same as JSON; - for stdout.")
]
ScorersOption = Annotated[
    list[str] | None,
    typer.Option("--scorer", help="inspect scorer to take, SCORER or SCORER.KEY."),
]
ServerKeyOption = Annotated[
    str | None, typer.Option(envvar="SEXTANT_API_KEY", help="API key for --server.")
]
ServerOption = Annotated[
    str | None,
    typer.Option(
        envvar="SEXTANT_SERVER",
        help="Use this Sextant server; by default that of `sextant login`, else one of our own, "
        "which is also called `local`.",
    ),
]
SessionAsJsonOption = Annotated[
    str | None, typer.Option("--json", help="Write the session as JSON; - for stdout.")
]
StoredBytesOption = Annotated[int | None, typer.Option(help="Bytes that it may store.")]
TargetOption = Annotated[
    str, typer.Option(metavar="TAG", help="Score to predict: all, or the items of a tag.")
]
TokensPerDayOption = Annotated[
    int | None, typer.Option(help="Tokens that its calls may take in a day (UTC).")
]
UsdPerDayOption = Annotated[
    float | None, typer.Option(help="US dollars that its calls may take in a day (UTC).")
]


def filter_choices(
    *, filters: bool, keep_for_score: bool, confidence: float | None
) -> dict[str, Any]:
    """What is chosen of the filters, by the names of their fields.

    Raises:
        InvalidInputError: Something, where they are switched off.
    """
    chosen: dict[str, Any] = {}
    if not keep_for_score:
        chosen["keep_for_score"] = False
    if confidence is not None:
        chosen["point_biserial_confidence"] = confidence
    if chosen and not filters:
        raise InvalidInputError(
            "--drop and --filter-confidence belong to the filters, which --no-filters switches off."
        )
    return chosen


def share_of(margin: float | None) -> float | None:
    """A margin in points as a share, as designs have it."""
    return None if margin is None else round(margin / 100, 12)

"""Options that several commands share."""

import json
import math
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer

from app.cli.terminal.fields import Fields, option, reading
from app.errors import InvalidInputError, did_you_mean
from app.items import Json

P = TypeVar("P", str, Path)
#: A smaller number of points is surely meant as a share: no test is so precise.
_LEAST_POINTS = 0.1


def share_of(points: float, prefix: str = "") -> float:
    """Convert points, the unit of the options, to a share; refuses what looks like a share."""
    if points < 0 or 100 < points < math.inf:  # the server refuses infinity
        raise InvalidInputError(f"{prefix}expected points from 0 to 100, got {points:g}.")
    if 0 < points < _LEAST_POINTS:
        raise InvalidInputError(
            f"{prefix}expected points, got {points:g}; for {100 * points:g} points say "
            f"{100 * points:g}."
        )
    return round(points / 100, 12)


def object_of(text: str) -> dict[str, Json]:
    """Parse the JSON object that is the value of an option.

    Raises:
        InvalidInputError: It is something else.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidInputError(f"expected a JSON object, got {text[:60]!r} ({exc}).") from exc
    if not isinstance(value, dict):
        raise InvalidInputError(f"expected a JSON object, got {text[:60]!r}.")
    return value


def time_of(time: datetime) -> str:
    """Format a time in UTC for the API."""
    return time.replace(tzinfo=UTC).isoformat()


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

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Report what would happen, and write nothing.")
]
EraseOption = Annotated[
    bool,
    typer.Option("--erase", help="Delete permanently, with all texts; refused while tests use it."),
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
FilteringOption = Annotated[
    bool,
    typer.Option(
        "--filters/--no-filters",
        help="Filter out items and examinees that say little about ability.",
    ),
]
ItemCostsOption = Annotated[
    Path | None,
    file_option(help="CSV item,cost or item,tokens_in,tokens_out: choose items by gain per cost."),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Only the result: no progress, no hints.")
]
TargetOption = Annotated[
    str,
    typer.Option(metavar="TAG", help="Score to predict: all, or a tag for the score on its items."),
]


#: Which answers are read of files of results.
READ: Fields = {
    "/filters": option(list[str], "lm-eval filter to read; may be repeated.", "--filter"),
    "/metrics": option(
        list[str],
        "Metric to read as the score; may be repeated: the first that a row has counts.",
        "--metric",
    ),
    "/scorers": option(
        list[str], "inspect scorer to read, SCORER or SCORER.KEY; may be repeated.", "--scorer"
    ),
    "/examinee": option(str, "Name of the examinee, for files of one examinee."),
}
_MARGIN = f"Stop when the score is known to ± this many points, at least {_LEAST_POINTS:g}"
#: An option of points that ends a test.
margin_option = partial(option, float, max=50.0, metavar="POINTS", callback=reading(share_of))


def _criterion(typed: str) -> str:
    """Name of a criterion; in options it has hyphens."""
    from app.engine.design.selection import CriterionName  # loads numpy

    known = [name.replace("_", "-") for name in CriterionName]
    if (name := typed.replace("_", "-")) not in known:
        expected = f"{', '.join(known[:-1])} or {known[-1]}"
        raise InvalidInputError(f"expected {expected}, got {typed!r}.{did_you_mean(name, known)}")
    return name.replace("-", "_")


SelectorOption = Annotated[
    str | None,
    typer.Option(
        "--selector",
        help="Criterion for choosing questions, such as maximum-information or random.",
        callback=reading(_criterion),
    ),
]
#: The design of a test.
DESIGN: Fields = {
    "/preset": option(str, "What to measure: score or ability; or atlas, a published design."),
    "/selection/criterion": SelectorOption,
    "/prediction/method": option(
        Literal["combined", "design", "score-model", "p-irt"],
        "How the score is predicted; by default combined: from the curves of the reference models "
        "and from sampled questions.",
        "--prediction",
    ),
    "/stopping/score_margin": margin_option(f"{_MARGIN}; 4 by default.", "--margin"),
    "/stopping/se": option(
        float,
        "Stop at this standard error of the ability, logits; alone, it makes a test for ability. "
        "With --margin, the goal that is reached first ends the test.",
        "--se-target",
    ),
    "/stopping/min_items": option(int, "Ask at least this many questions; by default 20."),
    "/stopping/max_items": option(int, "Ask at most this many questions."),
    "/concurrency": option(int, "Asked at once; 4 by default, 1 for atlas.", metavar="K"),
}
#: Further goals of a session that has ended.
GOALS: Fields = {
    "/stopping/score_margin": margin_option(f"{_MARGIN}.", "--margin"),
    "/stopping/max_items": option(
        int, "Ask at most this many questions, including those asked before."
    ),
}
#: When pairs of a ranking are decided.
RULES: Fields = {
    "/confidence": option(float, "Confidence that the upper model of a pair is better; 0.95."),
    "/min_items": option(int, "Scored answers of each model before any decision; 10 by default."),
    "/max_items": option(int, "Most questions for one model; 100 by default."),
    "/tie_width": option(
        float, "Difference that does not matter: a share of the score, or logits."
    ),
}
HolmOption = Annotated[
    bool,
    typer.Option("--holm", help="Confidence for all pairs together, instead of for each pair."),
]
RankingPresetOption = Annotated[
    Literal["continuous-paper"] | None,
    typer.Option("--preset", help="Use a published ranking procedure."),
]
#: How answers are calibrated, after the filters.
CALIBRATION: Fields = {
    "/model": option(
        str, "Response model: 1pl, 2pl, 3pl, 4pl, continuous, mirt or nested; by default 2pl."
    ),
    "/dimensions": option(
        int,
        "Number of abilities for mirt, or besides the general one for nested; by default found by "
        "parallel analysis.",
    ),
    "/partition_size": option(
        int, "Calibrate parts of this many items (at least 100) and link them."
    ),
    "/priors": option(
        bool,
        "Use weak priors (default), with the spread of guessing estimated; otherwise maximum "
        "likelihood.",
        "--priors/--no-priors",
    ),
    "/allow_few": option(bool, "Allow a 4pl from fewer than 500 models.", "--allow-few"),
    "/negative_slopes": option(
        bool,
        "Whether right answers may become rarer with ability; by default if some item that passed "
        "the filters does.",
        "--negative-slopes/--positive-slopes",
    ),
    "/seed": option(int, "Random seed, such as for the parts and the folds of the report card."),
    "/filters/keep_for_score": option(
        bool,
        "Keep filtered items in the bank for scores (default), or drop them.",
        "--keep-for-score/--drop",
    ),
    "/filters/point_biserial_confidence": option(
        float,
        "Confidence with which an item must correlate too little with the rest to be filtered out; "
        "use 0.95 with few models. By default the estimate itself counts (continuous scores: "
        "0.95).",
        "--filter-confidence",
        min=0.5,
        max=0.999,
    ),
}


def unparsed_option(text: str) -> object:
    """An option for the policy on unparseable answers."""
    return option(Literal["wrong", "missing"], text, "--unparsed")


#: How a version is published, and which of its items are quarantined.
PUBLICATION: Fields = {
    "/unparsed_policy": unparsed_option(
        "How unparseable answers counted; by default as in the response set, else as before."
    ),
    "/notes": option(str, "Notes to store with the version."),
    "/keep": option(list[str], "Key of an item not to quarantine; may be repeated."),
    "/allow": option(
        list[str], "Lint code, such as misfit, that does not quarantine; may be repeated."
    ),
}
#: Limits of a project or a key.
LIMITS: Fields = {
    "/limits/usd_per_day": option(float, "US dollars that calls may cost in a day (UTC).", min=0),
    "/limits/tokens_per_day": option(int, "Tokens that calls may use in a day (UTC).", min=0),
    "/limits/stored_bytes": option(int, "Bytes that may be stored.", min=0),
    "/limits/requests_per_s": option(float, "Requests per second.", min=0),
    "/limits/open_sessions": option(int, "Number of sessions that have not ended.", min=0),
    "/limits/event_streams": option(int, "Number of open event streams at one process.", min=0),
}


def given(**values: Json) -> dict[str, Json]:
    """Keep only the values that were given; defaults apply to the rest."""
    return {name: value for name, value in values.items() if value not in (None, {})}


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is deleted for good; the answer no ends the command.

    Raises:
        InvalidInputError: Nobody can answer, for want of a terminal, and `--yes` was not given.
    """
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InvalidInputError(f"{question} There is no terminal to ask on: confirm with --yes.")
    if not typer.confirm(question, err=True):
        raise typer.Exit(1)


def require_filters(body: Mapping[str, Any], *, filters: bool) -> None:
    """Refuse options of the filters where the filters are switched off."""
    own = body.get("filters", {})
    if not filters and (own.get("keep_for_score") is False or "point_biserial_confidence" in own):
        raise InvalidInputError(
            "--no-filters switches off the filters that --drop and --filter-confidence set: "
            "leave one or the other out."
        )

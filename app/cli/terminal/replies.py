"""Parts of the server's replies that several commands read; others are in their own modules."""

import math
from datetime import datetime
from typing import Any, TypeVar

from pydantic import AliasPath, ConfigDict, Field, JsonValue, TypeAdapter

from app.cli.terminal.console import JsonObject, number, ranks
from app.items import Json
from app.reports.figures import Headline
from app.reports.namesakes import Called
from sextant_client import models
from sextant_client.models import EndpointOf, Examinee, Interval, Model

T = TypeVar("T")

#: Reasons why a question tells nothing about ability, in words; others are words already.
_WHY = {
    "constant": "all right or all wrong",
    "low_point_biserial": "unrelated to the rest of the score",
}


def at(*path: str, default: object = ...) -> Any:
    """A field deeper in a reply; `default` where it or an object around it is missing."""
    return Field(default, validation_alias=AliasPath(*path))


def read_all(kind: type[T], entries: Json) -> list[T]:
    """Parse the entries of a list in a reply."""
    # mypy takes `kind` for a value, which cannot be a list's type.
    return TypeAdapter(list[kind]).validate_python(entries)  # type: ignore[valid-type]


class Estimate(Model):
    """Ability in logits, or the reason why there is no estimate."""

    theta: float | None
    se: float | None
    interval: Interval | None
    interval_raw: Interval | None = None
    place: str | None = at("extrapolation", "detail", default=None)
    place_caution: str | None = at("extrapolation", "caution", default=None)
    reason: str | None = None


class Score(Model):
    """The score of a bank, predicted or known."""

    value: float
    interval: Interval | None
    nonresponse: float = 0.0


class Scored(Model):
    """Anything that may have a score."""

    score: Score | None = None

    @property
    def percent(self) -> str:
        """The score in percent."""
        return number(self.score.value if self.score else None, ".1%")


class Steps(Model):
    """Numbers of items that are closed, and that are scored."""

    items: int
    scored: int
    right: int | None = None
    mean: float | None = None


class Usage(models.Usage):
    """What a session took; a ranking has no seconds. A judge's calls are not in the others."""

    seconds: float
    judge: models.Calls | None = None


class BankAsked(Model):
    """The bank version that a session asks from."""

    name: str
    version: int
    version_id: str
    n_items: int
    n_never_asked: int
    n_uncalibrated: int
    provisional: bool
    uncertainty: str | None = None


class Task(Model):
    """The predicted score of the items of a tag."""

    tag: str
    value: float
    interval: Interval
    n_items: int
    n_asked: int


class Ability(Model):
    """One of several abilities."""

    name: str
    value: float
    se: float
    above: float | None


class Profile(Model):
    """Several abilities, and the score of each task."""

    abilities: list[Ability]
    tasks: list[Task]


class Stopping(Model):
    """When a test ends; further rules are kept unparsed."""

    model_config = ConfigDict(extra="allow")

    score_margin: float | None = None
    min_items: int | None = None


class Session(Scored):
    """One test: its status and its results so far."""

    id: str
    mode: str
    status: str
    bank: BankAsked
    endpoint: EndpointOf | None
    examinee: Examinee | None
    headline: Headline | None
    estimate: Estimate
    profile: Profile | None
    progress: Steps
    usage: Usage
    outcomes: dict[str, int]
    pretest_planned: int = at("pretest", "planned", default=0)
    pretest_items: int = at("pretest", "items", default=0)
    pretest_caution: str | None = at("pretest", "caution", default=None)
    misfits: bool = at("person_fit", "flagged", default=False)
    inversions: float | None = at("person_fit", "inversions", "observed", default=None)
    inversions_expected: float | None = at("person_fit", "inversions", "expected", default=None)
    asked_caution: str | None = at("asked", "caution")
    unparsed_policy: str = at("unparsed", "policy")
    unparsed_when_calibrated: str | None = at("unparsed", "when_calibrated")
    unparsed_caution: str | None = at("unparsed", "caution")
    stopping: Stopping = at("design", "stopping")
    stops_when: str
    stop_reason: str | None
    stop_detail: str | None
    precision_reached: bool | None
    nothing_to_ask: str | None


class Version(Model):
    """One version of a bank."""

    id: str
    number: int
    response_model: str
    scale: str
    parameters_hash: str
    provisional: bool
    has_content: bool
    states: dict[str, int] = at("lint", "items")
    active: int = at("lint", "items", "active")
    quarantined: int = at("lint", "items", "quarantined")
    pretest: int = at("lint", "items", "pretest")
    n_unmatched: int = at("lint", "n_unmatched", default=0)
    unmatched: list[str] = at("lint", "unmatched", default=[])

    @property
    def states_and_id(self) -> str:
        """Numbers of items by state, parameters without an item, and the id of the version."""
        states = f"{self.active} active, {self.quarantined} set aside, {self.pretest} in pretest"
        if self.unmatched:
            first = ", ".join(self.unmatched[:3])
            states += f", {self.n_unmatched} left out, since the bank has no such items ({first})"
        return f"{states}  {self.id}"


class Calibration(models.Calibration):
    """A calibration and its results."""

    model: str = at("settings", "model", default="-")
    phase: str | None = at("progress", "phase", default=None)
    result: dict[str, JsonValue] | None
    kept_examinees: int | None = at("result", "kept", "examinees", default=None)
    kept_items: int | None = at("result", "kept", "items", default=None)
    warnings: tuple[str, ...] = at("result", "warnings", default=())
    fit: str | None = at("result", "fit", "verdict", default=None)
    dropped: dict[str, int] = at("result", "dropped_items", "reasons", default={})
    score_only: dict[str, int] = at("result", "score_only_items", "reasons", default={})

    @property
    def set_aside(self) -> dict[str, str]:
        """Why questions do not measure ability, with their numbers, by what becomes of them."""
        of_kind = {
            "are left out": self.dropped,
            "count in the score, tell nothing about ability": self.score_only,
        }
        return {
            kind: ", ".join(
                f"{n:,} {_WHY.get(one, one.replace('_', ' '))}" for one, n in reasons.items()
            )
            for kind, reasons in of_kind.items()
            if reasons
        }


class Ranked(Model):
    """An examinee whose rank may be a range."""

    rank_lo: int
    rank_hi: int

    @property
    def ranks(self) -> str:
        """The range of possible ranks."""
        return ranks(self.rank_lo, self.rank_hi)


class Asked(Model):
    """Whom a session asked, and how; nothing of an examinee that is not called."""

    endpoint: EndpointOf | None
    examinee: Examinee | None = None
    model: str | None = at("provenance", "endpoint", "model", default=None)
    base_url: str | None = at("provenance", "endpoint", "base_url", default=None)
    kind: str | None = at("provenance", "endpoint", "kind", default=None)

    @property
    def called(self) -> Called:
        """Its name, and what distinguishes it from its namesakes; tables have the time anyway."""
        return Called(
            name=who(self.endpoint or self.examinee),
            is_saved=self.endpoint is not None and self.endpoint.name is not None,
            model=self.model,
            base_url=self.base_url,
            kind=self.kind,
        )


class Baseline(Model):
    """A named result that gates compare with, and which tolerances it can decide."""

    name: str
    session_id: str
    examinee: str
    bank: str
    bank_version_id: str
    score: float | None
    score_interval: Interval | None
    n_items: int
    set_at: datetime

    @property
    def passes(self) -> float | None:
        """Tolerance, points, that a release as good passes four times out of five."""
        known = self.score_interval
        if known is None or known.lo is None or known.hi is None:
            return None
        # The difference of two such scores has the standard error 2^0.5 se. Between equal models
        # its interval ends above -2^0.5 (1.96 + 0.84) se with a chance of 0.8: about the width
        # 2 * 1.96 se.
        # In tenths, rounded up: what is told is what tolerances are compared with.
        return math.ceil(1000.0 * (known.hi - known.lo) - 1e-6) / 10.0

    @property
    def certainty(self) -> str | None:
        """Say how exactly the score is known, and which tolerance that allows."""
        if self.passes is None:
            return None
        if self.passes == 0.0:
            return f"known exactly, by all {self.n_items} questions"
        return (
            f"known to ±{self.passes / 2:.1f} points by {self.n_items} questions: a release as "
            f"good passes a tolerance of {self.passes:g} points four times out of five"
        )


def failure_of(document: JsonObject) -> str | None:
    """Why the work failed; None if it did not fail."""
    failure = document["failure"]
    return str(failure["detail"]) if isinstance(failure, dict) else None


def who(endpoint: EndpointOf | Examinee | None) -> str:
    """Name of an endpoint or an examinee; "by hand" where there is neither."""
    return "by hand" if endpoint is None else endpoint.name or endpoint.model or "-"

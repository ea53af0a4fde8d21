"""What several commands read of the server's replies; of what one alone reads, its module tells."""

from typing import Any, TypeVar

from pydantic import AliasPath, ConfigDict, Field, JsonValue, TypeAdapter

from app.cli.terminal.console import JsonObject, out
from app.cli.terminal.tables import number, ranks
from app.items import Json
from app.reports.figures import Headline
from sextant_client import models
from sextant_client.models import EndpointOf, Examinee, Interval, Model

T = TypeVar("T")


def at(*path: str, default: object = ...) -> Any:
    """A field that stands deeper in a reply; the default where it or its holder is not told."""
    return Field(default, validation_alias=AliasPath(*path))


def read_all(kind: type[T], entries: Json) -> list[T]:
    """What a list of a reply holds."""
    # To mypy `kind` is a value, and no type of a list.
    return TypeAdapter(list[kind]).validate_python(entries)  # type: ignore[valid-type]


class Estimate(Model):
    """Ability in logits, or the reason why there is none."""

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
    """What may have a score."""

    score: Score | None = None

    @property
    def percent(self) -> str:
        """The score in percent."""
        return number(self.score.value if self.score else None, ".1%")


class Steps(Model):
    """Items that are closed and scored."""

    items: int
    scored: int
    right: int | None = None
    mean: float | None = None


class Usage(models.Usage):
    """What a session took; a ranking tells no seconds."""

    seconds: float


class BankAsked(Model):
    """The bank version that a session asks from."""

    name: str
    version: int
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
    """One ability of several."""

    name: str
    value: float
    se: float
    above: float


class Profile(Model):
    """Several abilities, and the score of each task."""

    abilities: list[Ability]
    tasks: list[Task]


class Stopping(Model):
    """When a test ends; other rules are kept as they were told."""

    model_config = ConfigDict(extra="allow")

    score_margin: float | None = None
    min_items: int | None = None


class Session(Scored):
    """One test: where it stands and what is known so far."""

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

    @property
    def states_and_id(self) -> str:
        """How many of its items are what, and its id."""
        states = f"{self.active} active, {self.quarantined} set aside, {self.pretest} in pretest"
        return f"{states}  {self.id}"


class Calibration(models.Calibration):
    """A calibration with what came out."""

    model: str = at("settings", "model", default="-")
    phase: str | None = at("progress", "phase", default=None)
    result: dict[str, JsonValue] | None
    kept_examinees: int | None = at("result", "kept", "examinees", default=None)
    kept_items: int | None = at("result", "kept", "items", default=None)
    warnings: tuple[str, ...] = at("result", "warnings", default=())


class Flag(Model):
    """One finding of lint."""

    severity: str = ""
    code: str = ""
    message: str


class FlaggedItem(Model):
    """An item with its findings."""

    key: str
    status: str = ""
    flags: list[Flag]


class Ranked(Model):
    """Who may have several ranks."""

    rank_lo: int
    rank_hi: int

    @property
    def ranks(self) -> str:
        """The ranks that one may have."""
        return ranks(self.rank_lo, self.rank_hi)


def failure_of(document: JsonObject) -> str | None:
    """Why work failed; None where it did not."""
    failure = document["failure"]
    return str(failure["detail"]) if isinstance(failure, dict) else None


def who(endpoint: EndpointOf | Examinee | None) -> str:
    """What people call an endpoint, or who answers by hand."""
    return "by hand" if endpoint is None else endpoint.name or endpoint.model or "-"


class Limited(Model):
    """A project or a key, with what it may use."""

    limits: dict[str, int | float | None]


def show_limits(document: JsonObject) -> None:
    """Print what a project or a key may use, a line each."""
    for name, value in Limited.model_validate(document).limits.items():
        out.say(f"{name}  {'-' if value is None else value}")

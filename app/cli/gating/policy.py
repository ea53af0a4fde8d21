"""What a release must and should hold, as a file says it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from app.cli.terminal.options import share_of
from app.errors import InvalidInputError
from app.items import Json
from app.records.gates import GateSpec

#: Characters of a policy: some rules, and not a bank.
_LONGEST = 100_000


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Rule(_Part):
    """One gate.

    Attributes:
        tier: A release goes by what it must hold; what it should is told.
        tolerance: Points of a score, or logits of theta.
    """

    name: Annotated[str, Field(min_length=1, max_length=200)]
    bank: str
    tier: Literal["must", "should"] = "must"
    metric: Literal["score", "theta"] = "score"
    tag: str | None = None
    threshold: float | None = None
    baseline: str | None = None
    tolerance: float | None = None
    direction: Literal["above", "below"] = "above"
    confidence: float = 0.95

    @model_validator(mode="after")
    def _one_mark(self) -> Self:
        self.require_mark()
        # Before a test is paid for whose result it cannot be held against.
        GateSpec(metric=self.metric, tag=self.tag, threshold=self.threshold or 0.0)
        return self

    def require_mark(self, dashes: str = "") -> None:
        """Refuse a rule without one mark, and a tolerance on the score that is a share.

        Args:
            dashes: Before the names, where they are options.
        """
        threshold, baseline, tolerance = (
            f"{dashes}{name}" for name in ("threshold", "baseline", "tolerance")
        )
        fault = None
        if (self.threshold is None) == (self.baseline is None):
            got = "neither" if self.threshold is None else "both"
            fault = f"Give {threshold}, or {baseline} with {tolerance}: got {got}."
        elif (self.baseline is None) != (self.tolerance is None):
            needs = f"{baseline} needs {tolerance}: how much worse may pass."
            fault = f"{tolerance} belongs to {baseline}." if self.baseline is None else needs
        if fault is not None:
            raise InvalidInputError(fault)
        if self.metric == "score":
            share_of(self.tolerance, tolerance)

    def body(self) -> dict[str, Json]:
        """The gate as the API takes it, but for its session."""
        said: dict[str, Json] = self.model_dump(exclude={"name", "bank", "tier"}, exclude_none=True)
        if self.metric == "score" and self.tolerance is not None:
            said["tolerance"] = share_of(self.tolerance)
        return said


class Budget(_Part):
    """What all tests of a policy may take together; None is without end."""

    usd: Annotated[float, Field(gt=0)] | None = None
    tokens: Annotated[int, Field(gt=0)] | None = None

    def left(self, spent: Mapping[str, float]) -> dict[str, float]:
        """What is left of it, by what was spent; a limit that is used up is 0."""
        limits = self.model_dump(exclude_none=True)
        return {name: max(limit - spent[name], 0) for name, limit in limits.items()}


class Policy(_Part):
    """Which model is held against what; all rules of a bank are decided by one test.

    Attributes:
        endpoint: Base URL of the model's API, or a saved endpoint by name or id.
        model: Of a URL.
        kind: Of API, of a URL.
        session: What else the tests are asked with, as `POST /v1/sessions` takes it.
        extend_to: Questions up to which a test goes on while a rule is open; None ends it as it
            ends.
    """

    endpoint: str
    model: str | None = None
    kind: str = "openai_chat"
    session: dict[str, JsonValue] = Field(default_factory=dict)
    budget: Budget = Budget()
    extend_to: Annotated[int, Field(gt=0)] | None = None
    rules: Annotated[tuple[Rule, ...], Field(min_length=1, max_length=100, strict=False)]

    @model_validator(mode="after")
    def _named_apart(self) -> Self:
        names = [rule.name for rule in self.rules]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two rules are called {twice[0]!r}")
        said_elsewhere = {"bank", "endpoint", "endpoint_id", "mode", "budget", "metadata"}
        if own := sorted(said_elsewhere & set(self.session)):
            raise ValueError(f"session: {own[0]} is said elsewhere")
        return self


def read_policy(path: Path) -> Policy:
    """A policy from a YAML file.

    Raises:
        InvalidInputError: It cannot be read, or says what makes no sense; tells where.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST + 1)
        if len(text) > _LONGEST:
            raise InvalidInputError(f"{path}: expected at most {_LONGEST} characters.")
        return Policy.model_validate(yaml.safe_load(text))
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        (first, *_) = error.errors()
        place = ".".join(map(str, first["loc"])) or "the whole"
        said = first["msg"].removeprefix("Value error, ").removesuffix(".")
        given = first["input"]
        came = f", got {given!r:.80}" if isinstance(given, str | int | float | None) else ""
        raise InvalidInputError(f"{path}, {place}: {said[:1].lower()}{said[1:]}{came}.") from error
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        where = " ".join(str(error).split())
        raise InvalidInputError(f"{path} is no YAML file: {where}.") from error

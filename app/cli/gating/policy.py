"""Policy files: the rules that a release must or should hold."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, JsonValue, ValidationError, model_validator
from typing_extensions import override

from app.cli.terminal.options import share_of
from app.errors import FieldProblem, InvalidInputError
from app.items import Json
from app.records.gates import GateSpec
from app.shapes import Input
from app.validation import problems_of

#: Most characters of a policy file, which holds a few rules and no bank.
_LONGEST = 100_000


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # without types
    """Refuses a name that stands twice in a mapping, of which YAML's own loader takes the last."""

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[object] = set()
        for name, _ in node.value:
            if name.value in seen:
                what = f"the name {name.value!r} stands twice"
                raise yaml.constructor.ConstructorError(None, None, what, name.start_mark)
            seen.add(name.value)
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made


class Rule(Input):
    """One gate.

    Attributes:
        tier: `must` decides the release; `should` is only reported.
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
        # Checked here, before anybody pays for a test that this rule cannot use.
        GateSpec(metric=self.metric, tag=self.tag, threshold=self.threshold or 0.0)
        return self

    def require_mark(self, dashes: str = "") -> None:
        """Refuse a rule unless it has a threshold, or a baseline and a tolerance in points.

        `dashes` are the prefix of the names where they are options.
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
        if self.metric == "score" and self.tolerance is not None:
            share_of(self.tolerance, f"{tolerance}: ")

    def asks(self) -> dict[str, Json]:
        """The part of the gate on which the questions of its test depend."""
        of_test = {"tag"} if self.metric == "score" else {"metric", "threshold", "confidence"}
        return self.model_dump(include={"baseline"} if self.baseline is not None else of_test)

    def body(self) -> dict[str, Json]:
        """The gate as a request body, without its session."""
        said: dict[str, Json] = self.model_dump(exclude={"name", "bank", "tier"}, exclude_none=True)
        if self.metric == "score" and self.tolerance is not None:
            said["tolerance"] = share_of(self.tolerance)
        return said


class Budget(Input):
    """Limits on all tests of a policy together; None means no limit."""

    usd: Annotated[float, Field(gt=0)] | None = None
    tokens: Annotated[int, Field(gt=0)] | None = None

    def left(self, spent: Mapping[str, float]) -> dict[str, float]:
        """Remaining budget after `spent`; a limit that is used up is 0."""
        limits = self.model_dump(exclude_none=True)
        return {name: max(limit - spent[name], 0) for name, limit in limits.items()}


class Policy(Input):
    """Rules for one model; a single test decides all rules of a bank.

    Attributes:
        endpoint: Base URL of the model's API, or a saved endpoint by name or id.
        model: Name of the model, where `endpoint` is a URL.
        kind: Kind of API, where `endpoint` is a URL.
        session: Further settings of the tests, as in the body of `POST /v1/sessions`.
        extend_to: Number of questions up to which an open rule extends the test; None never
            extends it.
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
    """Read a policy from a YAML file.

    Raises:
        InvalidInputError: The file cannot be read, or a field is invalid; names the place.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST + 1)
        if len(text) > _LONGEST:
            raise InvalidInputError(f"expected at most {_LONGEST} characters, got more")
        document = yaml.load(text, Loader=_Loader)  # noqa: S506  builds plain values alone
        if not isinstance(document, dict):
            raise InvalidInputError("expected an object with endpoint and rules")
        return Policy.model_validate(document)
    except OSError as error:
        raise InvalidInputError(f"{path}: cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        problems = _faults(error)
        if len(problems) > 1:
            detail = f"{path}: {len(problems)} faults:"
            raise InvalidInputError(detail, problems=problems) from error
        said = problems[0].detail.rstrip(".")
        place = f"{path}, {problems[0].pointer}"
        end = "" if said.endswith("?") else "."
        raise InvalidInputError(f"{place}: {said[:1].lower()}{said[1:]}{end}") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InvalidInputError(f"{path}{place}: this is no YAML: {error.problem}.") from error
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        where = " ".join(str(error).split())
        raise InvalidInputError(f"{path} is no policy in YAML: {where}.") from error


def _faults(error: ValidationError) -> list[FieldProblem]:
    """The faults by place; misspelt keys come first, as they explain why others are missing."""
    found = [
        FieldProblem(one.pointer[1:].replace("/", ".") or "the whole", one.detail)
        for one in problems_of(
            sorted(error.errors(), key=lambda fault: fault["type"] != "extra_forbidden"), Policy
        )
    ]
    # A list with a faulty entry is also reported as too short.
    return [
        one for one in found if not any(of.pointer.startswith(f"{one.pointer}.") for of in found)
    ]

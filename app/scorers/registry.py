"""Registry of scorer classes by name: this package's, and entry points of installed packages."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from inspect import isabstract
from typing import Any

from pydantic import ValidationError

from app.errors import AlreadyExistsError, FieldProblem, InvalidInputError, UnknownNameError
from app.items import ScorerSpec
from app.scorers.base import Scale, Scorer
from app.validation import problems_of

ENTRY_POINT_GROUP = "sextant.scorers"


class ScorerRegistry:
    """Scorer classes by name. A name that is already taken is refused."""

    def __init__(self, classes: Mapping[str, type[Scorer]]) -> None:
        self._classes: dict[str, type[Scorer]] = {}
        self._names: dict[type, str] = {}
        for name, scorer_class in classes.items():
            self.register(name, scorer_class)

    def register(self, name: str, scorer_class: object) -> None:
        """Add a scorer.

        Raises:
            AlreadyExistsError: The name is taken.
            InvalidInputError: `scorer_class` is no `Scorer` class with all methods.
        """
        if not (
            isinstance(scorer_class, type)
            and issubclass(scorer_class, Scorer)
            and not isabstract(scorer_class)
        ):
            raise InvalidInputError(
                f"Scorer {name!r} must be a subclass of app.scorers.base.Scorer with "
                f"methods 'score' and 'examples', got {scorer_class!r}."
            )
        if name in self._classes:
            taken = self._classes[name]
            raise AlreadyExistsError(
                f"Two scorers are named {name!r}: {_where(taken)} and {_where(scorer_class)}."
            )
        self._classes[name] = scorer_class
        self._names.setdefault(scorer_class, name)

    def load(self, points: tuple[EntryPoint, ...]) -> None:
        """Add the scorers of installed packages.

        Raises:
            AlreadyExistsError: The name of a scorer is taken.
            InvalidInputError: An entry point cannot be imported, or is not a scorer.
        """
        for point in points:
            try:
                loaded = point.load()
            except (ImportError, AttributeError) as exc:
                raise InvalidInputError(
                    f"Scorer {point.name!r} of entry point {point.value!r} cannot be loaded: {exc}."
                ) from exc
            self.register(point.name, loaded)

    def build(self, spec: ScorerSpec) -> Scorer:
        """Build the scorer that `spec` describes.

        Raises:
            UnknownNameError: No scorer has that name.
            InvalidInputError: Parameters are unknown or have wrong values; each is a problem.
        """
        scorer_class = self._classes.get(spec.name)
        if scorer_class is None:
            raise UnknownNameError("scorer", spec.name, self._classes)
        try:
            return scorer_class.model_validate(dict(spec.params))
        except ValidationError as exc:
            found = problems_of(exc.errors(), scorer_class)
            listed = "; ".join(f"{p.pointer[1:] or 'params'}: {p.detail}" for p in found)
            end = "" if listed.endswith("?") else "."
            raise InvalidInputError(
                f"Wrong parameters for scorer {spec.name!r}: {listed}{end}",
                problems=[FieldProblem(f"/params{p.pointer}", p.detail) for p in found],
            ) from exc

    def name_of(self, scorer_class: type) -> str | None:
        """The name under which a class is registered; None if it is not."""
        return self._names.get(scorer_class)

    def describe(self) -> list[dict[str, Any]]:
        """Name, description, schema of the parameters, scales and version of each scorer."""
        return [
            {
                "name": name,
                "description": (scorer_class.__doc__ or "").strip().partition("\n")[0],
                "params": scorer_class.model_json_schema(),
                "scale": asdict(Scale()),  # of every score, whatever is measured
                "measure": asdict(scorer_class.measure),
                "version": scorer_class.version,
            }
            for name, scorer_class in sorted(self._classes.items())
        ]


def _where(scorer_class: type) -> str:
    return f"{scorer_class.__module__}.{scorer_class.__qualname__}"


@cache
def default_registry() -> ScorerRegistry:
    """Scorers of this package and of all installed packages; they are loaded once per process."""
    from app.scorers.shipped import SCORERS

    registry = ScorerRegistry(SCORERS)
    registry.load(tuple(entry_points(group=ENTRY_POINT_GROUP)))
    return registry


def build(spec: ScorerSpec) -> Scorer:
    """Build the scorer that `spec` describes.

    Raises:
        UnknownNameError: No scorer of that name is installed.
        InvalidInputError: A parameter is unknown or has a wrong value.
    """
    return default_registry().build(spec)


def describe() -> list[dict[str, Any]]:
    """Installed scorers: name, description, schema of the parameters, scales and version."""
    return default_registry().describe()

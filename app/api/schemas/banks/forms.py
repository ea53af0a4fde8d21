"""Fixed short forms as JSON."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field

from app.api.schemas.banks.versions import Key
from app.api.schemas.common import Input, Name, Output
from app.api.schemas.sessions.designs import Count, Positive, Share
from app.services.banks.versions import FormSpec, VersionForm

#: Of one request; a bank of more items takes expected tokens.
MAX_COSTS = 200_000


def _all_numbers(value: Any) -> Any:
    # Each faulty value is a fault of its own: of many the first is told.
    entries = value.items() if isinstance(value, dict) else ()
    faulty = (key for key, one in entries if isinstance(one, bool | str | list | dict | None))
    if (first := next(faulty, None)) is not None:
        raise ValueError(f"expected a number for {first[:60]!r}, got {value[first]!r:.40}")
    return value


class FormCreate(Input):
    """The form to build."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"items": 20, "target": {"maths": 0.5, "law": 0.5}}]}
    )

    items: Count = Field(description="Number of items of the form.")
    target: (
        Annotated[dict[Name, Share], Field(min_length=1), BeforeValidator(_all_numbers)] | None
    ) = Field(
        default=None,
        description="Score to predict: shares by tag. Default: `all`, the whole bank.",
    )
    ask: list[Name] = Field(
        default_factory=list,
        max_length=100,
        description="Only items with these tags. Empty: all items.",
    )
    costs: (
        Literal["expected_tokens"]
        | Annotated[
            dict[Key, Positive],
            Field(min_length=1, max_length=MAX_COSTS),
            BeforeValidator(_all_numbers),
        ]
        | None
    ) = Field(
        default=None,
        description="Choose items by gain per cost. The cost is the `expected_tokens` of the "
        "items, where prompt tokens count half, or a given cost for each item key.",
    )

    def to_spec(self) -> FormSpec:
        """The same for the service."""
        return FormSpec(
            items=self.items,
            target=self.target,
            ask=tuple(self.ask),
            by_tokens=self.costs == "expected_tokens",
            costs=self.costs if isinstance(self.costs, dict) else None,
        )


class FormItemRead(Output):
    """One item of a form."""

    item_id: str
    key: str
    weight: float


class FormRead(Output):
    """A fixed form: predicted score = constant + sum of weight times score over its items."""

    object: Literal["form"] = "form"
    bank_version_id: str
    parameters_hash: str
    target: dict[str, float] | None = Field(
        description="Score that the form predicts, as shares by tag; null for the whole bank."
    )
    items: list[FormItemRead] = Field(description="Items, the most informative first.")
    constant: float
    half_width95: float = Field(
        description="Half width of the score's 95 % interval, as wide as held-out examinees need."
    )
    expected_error: float = Field(
        description="Expected absolute error of the score, if errors are normal."
    )
    cost: float | None = Field(description="Cost of the whole form; null if no costs were given.")

    @classmethod
    def of(cls, made: VersionForm) -> Self:
        """The outgoing shape."""
        version, form = made.version, made.form
        return cls(
            bank_version_id=version.id,
            parameters_hash=version.parameters_hash,
            target=None if made.spec.target is None else dict(made.spec.target),
            items=[
                FormItemRead(item_id=version.item_ids[item], key=version.keys[item], weight=weight)
                for item, weight in zip(form.items, form.weights, strict=True)
            ],
            constant=form.constant,
            half_width95=form.half_width,
            expected_error=form.expected_error,
            cost=form.cost,
        )

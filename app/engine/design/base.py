"""What all parts of a design share: Pydantic reads, checks, writes and describes them."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

T = TypeVar("T")

#: What JSON writes as a text or a list: a member of an enumeration, a tuple.
FromJson = Annotated[T, Strict(False)]
#: Whole numbers up to which every reader of JSON agrees.
WholeNumber = Annotated[int, Field(ge=0, le=2**53)]
Count = Annotated[int, Field(ge=1, le=2**53)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
Share = Annotated[float, Field(gt=0, le=1)]
Shares = Annotated[dict[str, Share], Field(min_length=1)]
#: Fields of one object; each unknown one is a fault of its own.
_MAX_FIELDS = 30


def _describe_as_sent(schema: dict[str, Any]) -> None:
    """Describe a part as people send it: optional fields may be null, presets have the defaults."""
    schema["description"] = schema["description"].partition("\n")[0]
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        field.pop("default", None)
        if name not in required and "anyOf" not in field:
            kind = {key: field.pop(key) for key in [*field] if key not in ("title", "description")}
            field["anyOf"] = [kind, {"type": "null"}]


class Part(BaseModel):
    """One object of a design. Null is the same as absent."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        json_schema_extra=_describe_as_sent,
    )

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        if len(value) > _MAX_FIELDS:
            raise ValueError(f"expected at most {_MAX_FIELDS} fields, got {len(value)}")
        known = cls.model_fields
        return {name: one for name, one in value.items() if one is not None or name not in known}

    def to_dict(self) -> dict[str, Any]:
        """As JSON, every field."""
        return self.model_dump(mode="json")


def refuse(faults: Mapping[str, str]) -> None:
    """Refuse fields that are right alone and do not go together.

    Args:
        faults: What is wrong with each field, by its name.

    Raises:
        ValidationError: There are any. A validator passes it on with the pointer of its part.
    """
    if faults:
        errors = [
            InitErrorDetails(
                type=PydanticCustomError("conflict", "{detail}", {"detail": detail}),
                loc=(name,),
                input=None,
            )
            for name, detail in faults.items()
        ]
        raise ValidationError.from_exception_data("Part", errors)

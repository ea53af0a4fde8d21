"""Bases and parts of JSON shapes: what comes in, what goes out, and values that are both."""

import ast
import base64
import inspect
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, Final, Generic, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    AliasChoices,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    StringConstraints,
    TypeAdapter,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core.core_schema import (
    CoreSchema,
    definitions_schema,
    no_info_before_validator_function,
)
from typing_extensions import TypeAliasType, is_typeddict

from app.errors import FieldProblem, InvalidInputError
from app.validation import NAME, SHORT_KEY

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError as exc:
        raise ValueError("expected a time in the years 1 to 9999, UTC") from exc


#: Any text. Postgres can store every character but NUL.
Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
Int32 = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
#: A time with an offset. Only in UTC can times be compared, stored and read back.
Moment = Annotated[AwareDatetime, Field(strict=False), AfterValidator(_in_utc)]
#: What people call something.
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NAME)]
Metadata = Annotated[
    dict[
        Annotated[str, StringConstraints(pattern=SHORT_KEY)],
        Annotated[Text, StringConstraints(max_length=512)],
    ],
    Field(max_length=16, description="Up to 16 string pairs of your own."),
]


SortOrder = TypeAliasType("SortOrder", Literal["asc", "desc"])
#: Of work that a worker does: where it stands.
WorkStatus = TypeAliasType(
    "WorkStatus", Literal["queued", "running", "completed", "failed", "cancelled"]
)


def exactly_one(*names: str) -> Any:
    """A validator of models that take one of several fields."""

    def check(model: M) -> M:
        if sum(getattr(model, name) is not None for name in names) != 1:
            raise ValueError(f"give exactly one of {', '.join(names[:-1])} and {names[-1]}")
        return model

    return model_validator(mode="after")(check)


def examples(*bodies: JsonDict) -> ConfigDict:
    """The configuration of a shape that OpenAPI shows with these examples."""
    return ConfigDict(json_schema_extra={"examples": list(bodies)})


#: Default of the fields of an update: shows no default in OpenAPI, since what is left out stays.
ABSENT: Any = Field(default_factory=lambda: None)


#: Entries that one answer lists; the rest is counted.
MAX_LISTED: Final = 100
#: Members of an object whose fields are known; the API's largest has some thirty.
MAX_FIELDS = 200


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


#: Behind the bounds of an integer, as JSON Schema knows it: 5.0 is one.
WHOLE: Final = BeforeValidator(_whole)
#: Numbers of stored values, which are no texts of digits.
Number = Annotated[float, Strict()]
Whole = Annotated[int, Strict()]


def _few_fields(value: Any) -> Any:
    # Each unknown field is a fault of its own: of a million of them this one is told.
    if isinstance(value, dict) and len(value) > MAX_FIELDS:
        raise ValueError(f"expected at most {MAX_FIELDS} fields, got {len(value)}")
    return value


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """Docstrings below the fields of a module's classes, by class and field."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        for field, said in pairwise(getattr(node, "body", ())):
            match field, said:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found.setdefault(getattr(node, "name", ""), {})[name] = " ".join(text.split())
                case _:
                    pass
    return found


def _docstrings_of(kind: Any) -> dict[str, str | None]:
    """Docstrings below the fields of a class, and of those that it inherits from our classes."""
    is_dict = is_typeddict(kind)
    known: dict[str, str | None] = {}
    for base in reversed(kind.__orig_bases__ if is_dict else kind.__bases__):
        if base.__module__.startswith("app."):
            known |= _docstrings_of(base)
    known |= dict.fromkeys(() if is_dict else vars(kind).get("__annotations__", ()))
    return known | _docstrings(kind.__module__).get(kind.__name__, {})


def describe_fields(kind: Any, shape: JsonSchemaValue) -> None:
    """Add to a JSON Schema the docstrings below the fields of its class."""
    fields = shape.get("properties", {})
    for name, said in _docstrings_of(kind).items():
        if said is not None and name in fields:
            fields[name].setdefault("description", said)


class Described:
    """Base of all shapes: the docstring below a field describes it in OpenAPI.

    Pydantic's `use_attribute_docstrings` reads them at each start, which takes seconds.
    """

    __slots__ = ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Pydantic's way to ask."""
        shape = handler(schema)
        describe_fields(cls, handler.resolve_ref_schema(shape))
        return shape


class Value(Described):
    """Base of dataclasses that REST takes and returns as they are stored: no unknown fields."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Pydantic's way to ask; validators of a base that is no dataclass are not inherited."""
        schema = handler(source)
        # Around the fields alone: around the whole, OpenAPI would not name the shape.
        # Any shape: its type says only that it is one of forty.
        whole: dict[str, Any] = handler.resolve_ref_schema(schema)  # type: ignore[assignment]
        whole["schema"] = no_info_before_validator_function(_few_fields, whole["schema"])
        return schema


class Input(Described, BaseModel):
    """Base of everything that comes in: strict types, no unknown fields, no NaN."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    _few_fields = model_validator(mode="before")(_few_fields)


class OnBank(Input):
    """Base of what uses one version of a bank."""

    bank_version_id: Name | None = None
    """Id of the bank version; or give `bank`."""
    bank: Name | None = None
    """Id or name of a bank, for its newest version; or give `bank_version_id`."""

    _one_bank = exactly_one("bank", "bank_version_id")


class Output(Described, BaseModel):
    """Base of everything that goes out."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def read(cls, value: object) -> Self:
        """The outgoing shape of a value with fields of these names, a mapping or an object."""
        return cls.model_validate(value, strict=False, from_attributes=True)


#: What `created_by` is, wherever it stands.
MADE_BY = "Id of the API key that created it, which may be deleted by now; null: the command line."


class OwnedRead(Output):
    """Base of what belongs to a project."""

    project_id: str
    """Project that it belongs to."""
    created_by: str | None = Field(description=MADE_BY)


class WorkRead(OwnedRead):
    """Base of what takes a while."""

    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class FieldError(Output):
    """One error at one place of the request."""

    pointer: str
    """JSON pointer into the body, or `/query/...` or `/path/...` for a parameter."""
    detail: str


class FailureRead(Output):
    """Why a session or ranking failed."""

    code: str
    detail: str


class Failure(FailureRead):
    """Why there is no result."""

    # Kept failures may lack `errors`; the answer never does.
    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    errors: list[FieldError] = Field(
        default_factory=list, validation_alias=AliasChoices("errors", "problems")
    )


def _finite(value: float | None) -> float | None:
    return value if value is None or math.isfinite(value) else None


def _first(values: Sequence[T]) -> Sequence[T]:
    return values[:MAX_LISTED]


#: A number that may be unknown: NaN and infinity are null.
Known = Annotated[float | None, BeforeValidator(_finite)]
#: The first entries of what may be long; how many there are is told beside it.
First = Annotated[list[T], BeforeValidator(_first)]


@dataclass(frozen=True)
class ShownAs:
    """Says in JSON Schema that a value is of some type; it is kept and checked as it stands."""

    type: Any

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Pydantic's way to ask."""
        return handler(definitions_schema(TypeAdapter(self.type).core_schema, []))


class Listed(Output, Generic[T]):
    """A whole list."""

    object: Literal["list"] = "list"
    data: list[T]


class ListRead(Listed[T], Generic[T]):
    """One page of a list. Go on with `?after=<last_id>` while `has_more` is true."""

    first_id: str | None
    last_id: str | None
    has_more: bool


#: Letters of base64 that are decoded in one go; a multiple of four.
_PIECE: Final = 1 << 18


class SentContent(Input):
    """A file, as text or in base64."""

    content: Text | None = None
    content_base64: str | None = None
    """Content in base64, for files such as Parquet, `.eval` and gzip."""

    @model_validator(mode="after")
    def _has_one_content(self) -> Self:
        if (self.content is None) == (self.content_base64 is None):
            raise ValueError("give content or content_base64, and not both")
        return self

    def in_bytes(self, pointer: str) -> bytes:
        """The bytes of the file; for a thread, where they are many.

        Raises:
            InvalidInputError: Not base64.
        """
        if self.content_base64 is None:
            return (self.content or "").encode()
        try:
            return _decoded(self.content_base64)
        except ValueError as exc:  # a letter beyond ASCII is no binascii.Error
            problem = FieldProblem(f"{pointer}/content_base64", f"expected base64: {exc}")
            raise InvalidInputError(f"{problem.detail}.", problems=[problem]) from exc


def _decoded(text: str) -> bytes:
    """Base64, decoded in pieces: a file of megabytes would hold up all other threads.

    Raises:
        ValueError: It is not base64.
    """
    if "=" in text[:-2]:
        raise ValueError("padding before its end")
    return b"".join(
        base64.b64decode(text[at : at + _PIECE], validate=True)
        for at in range(0, len(text), _PIECE)
    )

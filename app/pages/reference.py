"""The OpenAPI document as values that a page shows: operations by tag, models by name."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_METHODS = ("get", "post", "put", "patch", "delete")
_REFERENCE = "#/components/schemas/"


@dataclass(frozen=True, slots=True)
class Type:
    """Of a field: words, and the models that they name."""

    words: str
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Field:
    """Of a model, or a parameter."""

    name: str
    type: Type
    required: bool
    description: str
    place: str = ""
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path.

    Attributes:
        body: The model that it takes.
        example: Of such a body, as JSON.
        answers: Status, what it means, the model that comes.
    """

    id: str
    method: str
    path: str
    summary: str
    description: str
    parameters: Sequence[Field]
    media_type: str | None
    body: Type | None
    example: str
    answers: Sequence[tuple[str, str, Type]]


def tags_of(document: Mapping[str, Any]) -> dict[str, list[Operation]]:
    """Operations by tag, in the document's order."""
    found: dict[str, list[Operation]] = {}
    for path, methods in document["paths"].items():
        for method in _METHODS:
            if method in methods:
                operation = methods[method]
                tag = (operation.get("tags") or ["other"])[0]
                found.setdefault(tag, []).append(_operation(document, path, method, operation))
    return found


def fields_of(document: Mapping[str, Any], model: str) -> list[Field] | None:
    """Fields of a model; None where there is none of that name."""
    schema = document["components"]["schemas"].get(model)
    if schema is None:
        return None
    required = set(schema.get("required", ()))
    return [
        Field(
            name,
            _type(value),
            name in required,
            value.get("description", ""),
            default=None if value.get("default") is None else json.dumps(value["default"])[:80],
        )
        for name, value in schema.get("properties", {}).items()
    ]


def _operation(
    document: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]
) -> Operation:
    content = operation.get("requestBody", {}).get("content", {})
    media_type = next(iter(content), None)
    schema = content[media_type].get("schema", {}) if media_type else {}
    told = operation.get("description", "")
    summary, _, rest = told.partition("\n\n")
    return Operation(
        id=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=summary or operation.get("summary", ""),
        description=rest,
        parameters=[
            Field(
                one["name"],
                _type(one.get("schema", {})),
                one.get("required", False),
                one.get("description", ""),
                place=one["in"],
            )
            for one in operation.get("parameters", ())
        ],
        media_type=media_type,
        body=_type(schema) if media_type else None,
        example=_example(document, content[media_type], schema) if media_type else "",
        answers=[
            (status, answer.get("description", ""), _type(_schema_of(answer)))
            for status, answer in sorted(operation.get("responses", {}).items())
        ],
    )


def _schema_of(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    content = answer.get("content", {})
    known = content.get("application/json") or content.get("application/problem+json") or {}
    schema: Mapping[str, Any] = known.get("schema", {})
    return schema


def _example(
    document: Mapping[str, Any], content: Mapping[str, Any], schema: Mapping[str, Any]
) -> str:
    if "example" in content:
        example = content["example"]
        return example if isinstance(example, str) else json.dumps(example, indent=2)
    name = schema.get("$ref", "").removeprefix(_REFERENCE)
    model = document["components"]["schemas"].get(name, {})
    examples = model.get("examples") or [{}]
    return json.dumps(examples[0], indent=2)


def _type(schema: Mapping[str, Any]) -> Type:
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REFERENCE)
        return Type("", (name,))
    for kind in ("anyOf", "oneOf", "allOf"):
        if kind in schema:
            parts = [_type(part) for part in schema[kind]]
            words = " or ".join(part.words for part in parts if part.words)
            return Type(words, tuple(name for part in parts for name in part.models))
    if "enum" in schema:
        return Type(" | ".join(map(str, schema["enum"])))
    if "const" in schema:
        return Type(str(schema["const"]))
    if schema.get("type") == "array":
        inner = _type(schema.get("items", {}))
        return Type(f"list of {inner.words}" if inner.words else "list of", inner.models)
    words = str(schema.get("type", ""))
    if "format" in schema:
        words += f" ({schema['format']})"
    return Type(words)

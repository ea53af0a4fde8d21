"""What the API says of itself: FastAPI's OpenAPI, made into what generators of clients like."""

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import WithJsonSchema
from typing_extensions import TypeAliasType

from app.api.errors import CODES
from app.api.schemas.common import FieldError, Output

_Code = Annotated[str, WithJsonSchema({"type": "string", "enum": CODES})]
ProblemCode = TypeAliasType("ProblemCode", _Code)


class Problem(Output):
    """RFC 9457 problem details, with a stable `code` to program against."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: ProblemCode
    request_id: str | None
    errors: list[FieldError]


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI description of `app`, made once."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            openapi_version=app.openapi_version,
            routes=app.routes,
        )
        components = schema.setdefault("components", {})
        reference = "#/components/schemas/{model}"
        problem = Problem.model_json_schema(ref_template=reference, mode="serialization")
        components["schemas"] |= problem.pop("$defs") | {"Problem": problem}
        components["responses"] = dict(_problems(schema))
        for parameter in _parameters(schema):
            _drop_null(parameter)
        _tidy(components["schemas"])
        app.openapi_schema = schema
    return app.openapi_schema


def _operations(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for path in schema["paths"].values():
        yield from path.values()


def _problems(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The problems of all operations, by their codes; operations refer to them henceforth."""
    for operation in _operations(schema):
        for status, response in operation["responses"].items():
            if "x-codes" in response:
                name = "-".join(response["x-codes"])
                operation["responses"][status] = {"$ref": f"#/components/responses/{name}"}
                yield name, response


def _parameters(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for operation in _operations(schema):
        yield from operation.get("parameters", ())


def _tidy(node: Any) -> None:
    """Leave out titles, which only repeat names; close objects whose keys have a pattern.

    Those take no other keys, which Pydantic leaves unsaid.
    """
    if isinstance(node, dict):
        if isinstance(node.get("title"), str):
            del node["title"]
        if "patternProperties" in node:
            node.setdefault("additionalProperties", False)
        node = list(node.values())
    for inner in node if isinstance(node, list) else ():
        _tidy(inner)


def _drop_null(parameter: dict[str, Any]) -> None:
    """A parameter outside the body can be left out but not be null, whatever its Python type."""
    kinds = [kind for kind in parameter["schema"].pop("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        parameter["schema"] |= kinds[0]
    elif kinds:
        parameter["schema"]["anyOf"] = kinds
    for told in ("title", "description"):  # the parameter says it
        parameter["schema"].pop(told, None)

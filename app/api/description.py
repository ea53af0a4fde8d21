"""The OpenAPI description: FastAPI's own, adapted to generators of clients."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import WithJsonSchema
from typing_extensions import is_typeddict

from app.api.errors import CODES, PROBLEM_MEDIA_TYPE
from app.records import banks, figures, rankings
from app.shapes import FieldError, Output, describe_fields

_Code = Annotated[str, WithJsonSchema({"type": "string", "enum": CODES})]

#: Schema names of generic lists, of parts of a design, and of figures as they are stored.
_GIVEN_NAME = re.compile(
    r"\b(?:ListRead|Listed|Positions)_(\w+?)(?:Read)?_\b|\b([A-Z]\w+)Design(?:-\w+put)?\b"
    r"|\b(?!Drift)([A-Z]\w+)Figures\b"  # `DriftFigures` is that name
)


class Problem(Output):
    """RFC 9457 problem details, with a stable `code` to program against."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: _Code
    request_id: str | None
    errors: list[FieldError]


#: A JSON object of the description.
Node = dict[str, Any]


def describe(app: FastAPI) -> Node:
    """Make the OpenAPI description of `app`, once."""
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
        for module in (banks, figures, rankings):
            for name in vars(module).keys() & components["schemas"].keys():
                if is_typeddict(kind := getattr(module, name)):
                    describe_fields(kind, components["schemas"][name])
        operations = [each for path in schema["paths"].values() for each in path.values()]
        components["responses"] = dict(_problems(operations))
        for operation in operations:
            for parameter in operation.get("parameters", ()):
                _drop_null(parameter["schema"])
        components["parameters"] = _shared_parameters(operations)
        described = [components["schemas"], components["parameters"], schema["paths"]]
        _tidy(described, _choices_of_one_use(components["schemas"], described))
        plain = _GIVEN_NAME.sub(_plain_name, json.dumps(schema))
        app.openapi_schema = json.loads(plain)
    return app.openapi_schema


def _plain_name(given: re.Match[str]) -> str:
    """Name that suits a class, such as `BankList` or `ScoreRead`, the same in and out."""
    return given[2] or (f"{given[3]}Read" if given[3] else f"{given[1]}List")


def _problems(operations: list[Node]) -> Iterator[tuple[str, Any]]:
    """Move the problems of all operations to shared responses, which operations then refer to."""
    content = {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for responses in (operation["responses"] for operation in operations):
        for status, response in responses.items():
            if codes := response.get("x-codes"):
                name = "-".join(codes)
                responses[status] = {"$ref": f"#/components/responses/{name}"}
                told = f"{HTTPStatus(int(status)).phrase}: {', '.join(f'`{c}`' for c in codes)}"
                yield name, {"description": told, "content": content, "x-codes": codes}


def _shared_parameters(operations: list[Node]) -> Node:
    """Share the most used parameter of each name; operations with it then refer to it."""
    takers = [operation for operation in operations if "parameters" in operation]
    uses = Counter(_text(each) for operation in takers for each in operation["parameters"])
    shared: Node = {}
    for text, n in uses.most_common():
        if n > 1:
            shared.setdefault(json.loads(text)["name"], json.loads(text))
    for operation in takers:
        operation["parameters"] = [
            {"$ref": f"#/components/parameters/{each['name']}"}
            if each == shared.get(each["name"])
            else each
            for each in operation["parameters"]
        ]
    return shared


def _text(parameter: Node) -> str:
    return json.dumps(parameter, sort_keys=True)


def _choices_of_one_use(schemas: Node, described: list[Node]) -> Node:
    """Take out the choices that one place refers to, by reference; they are listed there."""
    uses = Counter(re.findall(r"#/components/schemas/([\w.-]+)", json.dumps(described)))
    once = [name for name, schema in schemas.items() if "enum" in schema and uses[name] == 1]
    return {f"#/components/schemas/{name}": schemas.pop(name) for name in once}


def _tidy(node: Any, choices: Node) -> None:
    """List these choices where they are referred to, drop titles, and close some objects.

    Titles only repeat names. Objects whose keys have a pattern take no other keys, but Pydantic
    does not say so.
    """
    if isinstance(node, dict):
        if node.get("$ref") in choices:
            # What stands beside the reference, such as a description, goes first.
            listed = choices[node.pop("$ref")]
            node.update({name: value for name, value in listed.items() if name not in node})
        if isinstance(node.get("title"), str):
            del node["title"]
        if "patternProperties" in node:
            node.setdefault("additionalProperties", False)
        node = list(node.values())
    for inner in node if isinstance(node, list) else ():
        _tidy(inner, choices)


def _drop_null(schema: Node) -> None:
    """Drop null from a parameter outside the body: it can be left out, but cannot be null."""
    kinds = [kind for kind in schema.pop("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) == 1:
        schema |= kinds[0]
    elif kinds:
        schema["anyOf"] = kinds
    schema.pop("description", None)  # the parameter has the same text

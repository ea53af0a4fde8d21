"""The OpenAPI description suits generators of clients."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from app import errors
from app.api.errors import HTTP_CODES
from app.validation import sentence
from tests.api.calls import got
from tests.api.conftest import Client

Document = dict[str, Any]
#: Objects with fields that depend on their maker; other free JSON objects refer to the first.
UNTYPED = {"JsonObject", "export_ended_session", "export_version"}
#: Bodies and addresses with this character are refused before they are validated.
NO_NUL = r"^[^\x00]*$"
#: Places where any JSON value is allowed.
MOST_BYTES = 450_000


@pytest.fixture
async def document(client: Client) -> Document:
    described: Document = await got(client, "/openapi.json")
    return described


def parts(document: Document) -> Iterator[tuple[str, Document]]:
    """Yield every schema with its component or operation."""
    for name, schema in document["components"]["schemas"].items():
        yield from ((name, node) for node in nodes(schema))
    for path in document["paths"].values():
        for operation in path.values():
            yield from ((operation["operationId"], node) for node in nodes(operation))


def nodes(value: Any) -> Iterator[Document]:
    if isinstance(value, dict):
        yield value
        value = [inner for name, inner in value.items() if name not in ("examples", "default")]
    for inner in value if isinstance(value, list) else ():
        yield from nodes(inner)


async def test_no_pattern_reaches_a_reader(document: Document) -> None:
    patterns = {
        pattern
        for _, node in parts(document)
        for pattern in (node.get("pattern"), *node.get("patternProperties", ()))
        if isinstance(pattern, str)
    }
    told = {
        pattern: sentence(
            {
                "type": "string_pattern_mismatch",
                "loc": (),
                "input": "",
                "msg": "String should match pattern",
                "ctx": {"pattern": pattern},
            }
        )
        for pattern in patterns - {NO_NUL}
    }
    assert [pattern for pattern, words in told.items() if "pattern" in words] == []


async def test_it_is_small(document: Document) -> None:
    assert len(json.dumps(document)) <= MOST_BYTES


#: How the docstring below a field begins.
DESCRIBED = {
    "AnsweredRead.precision_reached": "Whether the result is as",  # inherited
    "EndpointCreate.name": "Name of the endpoint, un",
    "NamedEndpointCreate.name": "None",  # declared again, without a docstring
    "ProgressRead.right": "Number of right answers;",  # inherited by a typed dict
    "RankedRead.usd": "Cost in US dollars; null",
    "Limits.open_sessions": "Sessions that have not e",  # of a dataclass, in each module
    "CallLimits.rpm": "Requests per minute.",
    "RetryPolicy.base_s": "The first wait is random",
    "PromptStyle.system": "System prompt; an empty ",
    "Examinee.scaffold": "Program that drives the ",
    "ManualAnswer.item_id": "If given, it must be the",
    "Collection.version": "Number or id of a versio",
    "AuditEntry.path": "Path of the request.",
    "ApiKeyCreated.prefix": "First characters of the ",  # inherited by a dataclass
    "ExamineeAbility.theta": "Weighted likelihood esti",
}


async def test_fields_are_described_by_the_docstrings_below_them(document: Document) -> None:
    for name, begins in DESCRIBED.items():
        component, field = name.split(".")
        shown = document["components"]["schemas"][component]["properties"][field]
        assert str(shown.get("description")).startswith(begins), name


async def test_objects_declare_their_fields(document: Document) -> None:
    untyped = {
        where
        for where, node in parts(document)
        if node.get("type") == "object"
        and not any(node.get(said) for said in ("properties", "patternProperties"))
        and node.get("additionalProperties", True) is True
    }
    assert untyped == UNTYPED


async def test_only_schemas_of_several_places_have_a_name(document: Document) -> None:
    named = document["components"]["schemas"].values()
    choices = Counter(
        json.dumps(sorted(map(str, node["enum"])))
        for _, node in parts(document)
        if "enum" in node and not any(node is each for each in named)
    )
    assert [choice for choice, times in choices.items() if times > 1] == []
    used = Counter(node["$ref"].rpartition("/")[2] for _, node in parts(document) if "$ref" in node)
    described = document["components"]["schemas"].items()
    assert [name for name, one in described if "enum" in one and used[name] < 2] == []
    inside = [
        where
        for where, node in parts(document)
        if "properties" in node and not any(node is each for each in named)
    ]
    assert inside == []


async def test_no_schema_has_separate_input_and_output_forms(document: Document) -> None:
    assert [name for name in document["components"]["schemas"] if not name.isalnum()] == []


async def test_a_problem_names_one_of_all_codes(document: Document) -> None:
    codes = document["components"]["schemas"]["Problem"]["properties"]["code"]["enum"]
    raised = {
        kind.code
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.SextantError)
    }
    assert raised | {*HTTP_CODES.values(), "http_error"} == set(codes)


async def test_events_are_told_apart_by_type(document: Document) -> None:
    union = document["components"]["schemas"]["Event"]
    assert union["discriminator"]["propertyName"] == "type"
    assert {"session.completed", "ranking.joined"} <= set(union["discriminator"]["mapping"])


def test_scores_and_intervals_have_one_name_and_one_shape(document: Document) -> None:
    fields = {
        (component, name)
        for component, schema in document["components"]["schemas"].items()
        for name in schema.get("properties", {})
        if name in ("accuracy", "ci", "ci_raw", "lo", "hi")
    }
    # The range of lengths of simulated tests is not an interval of an estimate.
    of_intervals = {(part, end) for part in ("Interval", "Range") for end in ("lo", "hi")}
    assert fields == of_intervals

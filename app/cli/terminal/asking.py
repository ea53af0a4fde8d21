"""Options of commands that put questions to an endpoint."""

import json
from typing import Annotated, Any, Literal

import typer

from app.cli.servers.connection import given

Shots = Annotated[
    int | None, typer.Option("--shots", help="The first so many of the bank's examples.")
]
System = Annotated[
    str | None, typer.Option("--system", help="System prompt instead of the bank's; '' for none.")
]
ModeOption = Annotated[
    Literal["generate", "loglikelihood"] | None,
    typer.Option(
        "--mode",
        help="How multiple choice is asked; by default as the bank says, where the endpoint can.",
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option("--stop", help="Where answers end; may be given repeatedly. \\n is a line break."),
]
ExtraBody = Annotated[
    str | None,
    typer.Option(
        "--extra-body", help="JSON object whose fields go into the body of each call; no secrets."
    ),
]


def prompt_of(shots: int | None, system: str | None, mode: str | None) -> dict[str, Any]:
    """`prompt` of a session: what is to be otherwise than the bank has it."""
    return {
        name: value
        for name, value in (("shots", shots), ("system", system), ("mode", mode))
        if value is not None
    }


def stops_of(stop: list[str] | None) -> list[str] | None:
    """`sampling.stop` of an endpoint."""
    return stop and [mark.replace("\\n", "\n") for mark in stop]


def options_of(extra_body: str | None) -> dict[str, Any]:
    """`options` of an endpoint.

    Raises:
        BadParameter: Not a JSON object.
    """
    if extra_body is None:
        return {}
    try:
        body = json.loads(extra_body)
    except (ValueError, RecursionError) as exc:
        raise typer.BadParameter(
            f"expected a JSON object, got {extra_body[:60]!r} ({exc})"
        ) from exc
    if not isinstance(body, dict):
        raise typer.BadParameter(f"expected a JSON object, got {extra_body[:60]!r}")
    return given(extra_body=body)

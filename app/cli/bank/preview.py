"""`sextant banks preview`: put one item to an endpoint before paying for a test."""

import json as json_text
from typing import Annotated, Any

import typer

from app.cli.servers.connection import connected, path_of, run_to_the_end
from app.cli.servers.options import also_json, on_server
from app.cli.terminal.console import JsonObject, out
from app.cli.terminal.examinees import ENDPOINT, PROMPT, SETTINGS, examinee, require_fitting
from app.cli.terminal.fields import below


@on_server(
    json="Write the preview as JSON; - for stdout.",
    runs=True,
    fields={
        **below("/endpoint", SETTINGS, "/kind", "/api_key", "/sampling", "/options"),
        **PROMPT,
    },
    names=ENDPOINT,
)
def preview(
    body: dict[str, Any],
    bank: Annotated[str, typer.Argument(help="Name or id of the bank.")],
    item: Annotated[str, typer.Option(help="Key or id of the item.")],
    endpoint: Annotated[
        str,
        typer.Option(
            help="Base URL of the model's API, such as .../v1, or a saved endpoint by name or id."
        ),
    ],
    model: Annotated[str | None, typer.Option(help="Model name; required with a URL.")] = None,
    no_call: Annotated[
        bool, typer.Option("--no-call", help="Show the request and send nothing.")
    ] = False,
) -> None:
    """Ask an endpoint one item: show the exact request, the answer, and how it is scored.

    Nothing is stored. Without --no-call the endpoint is really called, once or
    once per option.
    """
    body["send"] = not no_call
    settings = body.pop("endpoint", {})
    require_fitting(endpoint, model, settings)

    async def ask() -> JsonObject:
        async with connected(bank=bank) as client:
            path = f"{path_of('banks', bank, 'items', item)}:preview"
            asked = await examinee(client, endpoint, model, settings)
            return await client.request("POST", path, json=body | asked)

    found = run_to_the_end(ask)
    if also_json(found):
        _show(found)


def _show(found: JsonObject) -> None:
    shots, answer = f", {found['shots']} examples" if found["shots"] else "", found["answer"]
    _line("item", f"{found['item_id']} ({found['mode']}{shots}, scored by {found['scorer']})")
    for request in found["requests"]:
        _line("sent to" if answer else "would go to", request["url"])
        _text(json_text.dumps(request["body"], ensure_ascii=False, indent=2))
    if answer is None:
        return
    if answer["reasoning"]:
        _line("reasoning", "")
        _text(answer["reasoning"])
    _line("answer", "" if answer["answer"] else "(none)")
    _text(answer["answer"] or "")
    for option in (answer.get("method") or {}).get("options", ()):
        per_byte = option["logprob"] / option["bytes"]
        _text(f"{option['option']}  {option['logprob']:.4f}  ({per_byte:.4f} a byte)")
    _line("expected", " or ".join(found["target"]))
    _line("outcome", answer["outcome"] + (f": {answer['reason']}" if answer["reason"] else ""))
    if answer["score"] is not None:
        read = f" (read: {answer['extracted']}, by {answer['extractor']})"
        _line("score", f"{answer['score']:g}{read if answer['extracted'] else ''}")
    if answer["tokens_in"] is not None and answer["tokens_out"] is not None:
        calls = f"{answer['attempts']} calls"
        _line("tokens", f"{answer['tokens_in']} in, {answer['tokens_out']} out, {calls}")


def _line(label: str, value: str) -> None:
    out.print(f"{label:<12}{value}", soft_wrap=True)


def _text(text: str) -> None:
    for line in text.splitlines():
        out.print(f"  {line}", soft_wrap=True)

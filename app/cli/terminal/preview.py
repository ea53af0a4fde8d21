"""`sextant banks preview`: one item put to an endpoint before a test is paid."""

import json as json_text
from typing import Annotated

import typer

from app.cli.commands.run import OPTIONS
from app.cli.servers.connection import connected, path_of, run_to_the_end
from app.cli.servers.options import also_json, chosen, on_server
from app.cli.terminal.console import Json, out, require_writable
from app.cli.terminal.examinees import (
    EndpointKeyOption,
    ExtraBody,
    KindOption,
    ModeOption,
    Shots,
    Stop,
    System,
    examinee,
    options_of,
    require_fitting,
    stops_of,
)
from app.cli.terminal.options import given


@on_server(json="Write the preview as JSON; - for stdout.", runs=True)
def preview(
    bank: Annotated[str, typer.Argument(help="Name or id of the bank.")],
    item: Annotated[str, typer.Option(help="Key or id of the item.")],
    endpoint: Annotated[
        str,
        typer.Option(
            help="Base URL of the model's API, such as .../v1, or a saved endpoint by name or id."
        ),
    ],
    model: Annotated[str | None, typer.Option(help="Model's name; needed with a URL.")] = None,
    kind: KindOption = "openai_chat",
    api_key: EndpointKeyOption = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest answer, tokens.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature.")] = None,
    shots: Shots = None,
    system: System = None,
    mode: ModeOption = None,
    stop: Stop = None,
    extra_body: ExtraBody = None,
    no_call: Annotated[
        bool, typer.Option("--no-call", help="Show the request and send nothing.")
    ] = False,
) -> None:
    """Put one item to an endpoint: the exact request, its answer, and how it is scored.

    Nothing is stored; without --no-call the endpoint is really called, once or for each option.
    """
    require_writable(chosen().json)
    asked_model = given(
        kind=kind,
        api_key=api_key,
        sampling=given(max_tokens=max_tokens, temperature=temperature, stop=stops_of(stop)),
        options=options_of(extra_body),
    )
    require_fitting(endpoint, model, asked_model)
    body: Json = {
        "prompt": given(shots=shots, system=system, mode=mode),
        "send": not no_call,
    }

    async def ask() -> Json:
        async with connected(OPTIONS, bank=bank) as client:
            path = f"{path_of('banks', bank, 'items', item)}:preview"
            body.update(await examinee(client, endpoint, model, asked_model))
            return await client.request("POST", path, json=body)

    found = run_to_the_end(ask)
    if also_json(found):
        _show(found)


def _show(found: Json) -> None:
    shots = f", {found['shots']} examples" if found["shots"] else ""
    _line("item", f"{found['item_id']} ({found['mode']}{shots}, scored by {found['scorer']})")
    for request in found["requests"]:
        _line("sent to" if found["answer"] else "would go to", request["url"])
        _text(json_text.dumps(request["body"], ensure_ascii=False, indent=2))
    answer = found["answer"]
    if answer is None:
        return
    if answer["reasoning"]:
        _line("reasoning", "")
        _text(answer["reasoning"])
    _line("answer", "" if answer["answer"] else "(none)")
    _text(answer["answer"] or "")
    for option in (answer["method"] or {}).get("options", []):
        per_byte = option["logprob"] / option["bytes"]
        _text(f"{option['option']}  {option['logprob']:.4f}  ({per_byte:.4f} a byte)")
    _line("expected", " or ".join(found["target"]))
    _line("outcome", answer["outcome"] + (f": {answer['reason']}" if answer["reason"] else ""))
    if answer["score"] is not None:
        read = f" (read: {answer['extracted']}, by {answer['extractor']})"
        _line("score", f"{answer['score']:g}{read if answer['extracted'] else ''}")
    tokens = [answer["tokens_in"], answer["tokens_out"]]
    if None not in tokens:
        _line("tokens", f"{tokens[0]} in, {tokens[1]} out, {answer['attempts']} calls")


def _line(label: str, value: str) -> None:
    out.print(f"{label:<12}{value}", soft_wrap=True)


def _text(text: str) -> None:
    for line in text.splitlines():
        out.print(f"  {line}", soft_wrap=True)

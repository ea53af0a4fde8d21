"""`sextant demo-model`: a simulated model behind an OpenAI-compatible API, to try things on."""

from typing import Any

import typer
from typer.core import TyperCommand
from typing_extensions import override


class Command(TyperCommand):
    """Passes its arguments, with `--help`, on to the model server's own parser."""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.args = args
        return []


def command(context: typer.Context) -> None:
    """Serve a simulated model until stopped."""
    from app.demo.model_server import main

    raise typer.Exit(main(context.args))

"""Help in two steps: the options that people use first, and with `--help-all` every option."""

from collections.abc import Mapping
from copy import copy
from typing import Any, ClassVar

from typer.core import TyperCommand
from typing_extensions import override

_ALL = "--help-all"


class BriefCommand(TyperCommand):
    """A command whose `--help` shows the options that are in no panel.

    Attributes:
        panels: Options by panel, under the names of the function's arguments.
        example: A call that works, shown below the options.
    """

    panels: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    example: ClassVar[str] = ""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if _ALL in args:
            ctx.meta[_ALL] = True
            args = ["--help"]
        return super().parse_args(ctx, args)

    @override
    def format_help(self, ctx: Any, formatter: Any) -> None:
        panel_of = {name: panel for panel, names in self.panels.items() for name in names}
        shown = copy(self)
        shown.params = []
        for param in self.params:
            panel = panel_of.get(param.name or "")
            if panel is None or _ALL in ctx.meta:
                shown.params.append(copy(param))
                shown.params[-1].rich_help_panel = panel  # type: ignore[attr-defined]  # an option
        rest = f"{len(panel_of)} more options ({', '.join(self.panels)}): {_ALL}."
        shown.epilog = f"Example: {self.example}" + ("" if _ALL in ctx.meta else f"\n\n{rest}")
        TyperCommand.format_help(shown, ctx, formatter)

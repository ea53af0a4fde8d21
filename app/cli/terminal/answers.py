"""`sextant sessions answers`: what a test asked, what came back, and how it was marked."""

from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import quote

import typer

from app.cli.servers.connection import asked
from app.cli.terminal.console import err, fail_clearly, out, write_json
from app.cli.terminal.options import AskServerOption, SameAsJsonOption, ServerKeyOption
from app.printable import percent
from app.reports.figures import is_surprising

#: Of an answer without a score, what became of it.
_UNPARSED = ("unparsed", "truncated")


@fail_clearly
def answers(
    session: Annotated[str, typer.Argument(help="Id of a test.")],
    wrong: Annotated[bool, typer.Option("--wrong", help="Only those scored wrong.")] = False,
    unparsed: Annotated[
        bool, typer.Option("--unparsed", help="Only those that could not be read, or were cut off.")
    ] = False,
    surprising: Annotated[
        bool,
        typer.Option(
            "--surprising",
            help="Only misses where a hit was expected, and hits where a miss was.",
        ),
    ] = False,
    search: Annotated[
        str | None, typer.Option(help="Only those whose question, answer or id holds this.")
    ] = None,
    server: AskServerOption = None,
    server_key: ServerKeyOption = None,
    json: SameAsJsonOption = None,
) -> None:
    """Show the questions of a test with what was answered, in order of asking.

    Several options together: those to which all of them apply.

    sextant sessions answers ses_01jd... --wrong
    """
    path = f"/v1/sessions/{quote(session, safe='')}/report"
    report = asked(server, server_key, lambda client: client.request("GET", path))
    wanted = [
        named
        for named, is_wanted in (
            (lambda one: one["score"] == 0.0, wrong),
            (lambda one: one["outcome"] in _UNPARSED, unparsed),
            (lambda one: is_surprising(one["score"], one["expected"]), surprising),
        )
        if is_wanted
    ]
    found = [
        one
        for one in report["items"]
        if all(named(one) for named in wanted) and _holds(one, search)
    ]
    write_json(json, {"data": found})
    if json == "-":
        return
    for one in found:
        for line in _lines(one):
            out.say(line)
    shown = f"{len(found)} of {report['n_asked']} questions"
    if report["n_asked"] > len(report["items"]):
        shown += f", looked for among the first {len(report['items'])}"
    err.print(shown, markup=False)


def _holds(one: dict[str, Any], search: str | None) -> bool:
    texts = (one["item_id"], one["question"], one["answer"])
    return search is None or any(search.lower() in text.lower() for text in texts if text)


def _lines(one: dict[str, Any]) -> Iterator[str]:
    mark = {None: one["outcome"] or "pending", 0.0: "wrong", 1.0: "right"}.get(
        one["score"], f"score {one['score']}"
    )
    expected = "" if one["expected"] is None else f", expected {percent(one['expected'])}"
    tried = ", trial question" if one["pretest"] else ""
    yield f"{one['step']:>4}. {one['item_id']}  {mark}{expected}{tried}"
    for name in ("question", "answer", "reason"):
        if one[name]:
            yield f"      {name:9}{' '.join(one[name].split())}"

"""`sextant compare`: which of two is better, and how sure that is."""

from typing import Annotated

import typer

from app.cli.servers.connection import path_of, request
from app.cli.servers.options import SAME, also_json, on_server
from app.cli.terminal.console import Json, out
from app.cli.terminal.tables import interval, number
from app.printable import percent
from app.reports.figures import dollars, took
from app.reports.formats import short_digests

_VERDICTS = {"above": "the first is better", "below": "the second is better"}
#: Questions that are named; the page of a comparison shows them all.
_NAMED = 10
_OPTIONS = {
    "/session_ids/0": "FIRST",
    "/session_ids/1": "SECOND",
    "/examinees/0": "FIRST",
    "/examinees/1": "SECOND",
    "/response_set": "--responses",
    "/confidence": "--confidence",
}


@on_server(json=SAME)
def command(
    first: Annotated[str, typer.Argument(help="Id of an ended session, or an examinee's name.")],
    second: Annotated[str, typer.Argument(help="The other one.")],
    responses: Annotated[
        str | None,
        typer.Option(help="Response set in which both are examinees; else they are sessions."),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of intervals and verdicts.")] = 0.95,
) -> None:
    """Compare two ended tests, or two examinees of a response set."""
    both = [first, second]
    what = (
        {"session_ids": both}
        if responses is None
        else {"response_set": responses, "examinees": both}
    )
    for session in both if responses is None else ():
        request("GET", path_of("sessions", session))  # one that is missing is told by its name
    found = request("POST", "/v1/comparisons", {"confidence": confidence, **what}, _OPTIONS)
    if not also_json(found):
        return
    _show(found)
    if responses is None:
        _show_changes(*map(_scores, both))


def _scores(session: str) -> dict[str, float | None]:
    report = request("GET", path_of("sessions", session, "report"))
    return {one["item_id"]: one["score"] for one in report["items"]}


def _show_changes(first: dict[str, float | None], second: dict[str, float | None]) -> None:
    """Questions of both that one answered better."""
    gains = {
        name: score - other
        for name, score in first.items()
        if score is not None and (other := second.get(name)) is not None
    }
    for which, sign in (("first", 1), ("second", -1)):
        better = [name for name, gain in gains.items() if sign * gain > 0]
        if better:
            more = ", ..." if len(better) > _NAMED else ""
            named = short_digests(", ".join(better[:_NAMED]))
            out.print(f"the {which} is better on {len(better)}: {named}{more}", soft_wrap=True)


def _took(side: Json) -> str:
    """What a question of a session took, as far as it is known."""
    usd, latency = side["usd_per_item"], side["latency_ms"]
    told = [f"{dollars(usd)} a question"] if usd is not None else []
    if latency:
        told.append(f"answers in {took(latency['p50'])}, 95 % within {took(latency['p95'])}")
    return "; ".join(told)


def _show(found: Json) -> None:
    for side in ("first", "second"):
        out.say(f"{side:8}{found[side]['label']}")
    sure = percent(found["confidence"])
    if found["reason"]:
        out.say(found["reason"])
    for what, name in (
        ("score", "in score"),
        ("common", f"on {found['n_common']} common items"),
        ("theta", f"in ability, scale {found['scale']}"),
    ):
        difference = found[what]
        if difference is None or (what == "score" and found["scale"] is None):
            continue
        pattern, scale, unit = ("+.2f", 1, "") if what == "theta" else ("+.1f", 100, " points")
        more = difference["items_to_decide"]
        verdict = _VERDICTS.get(
            difference["verdict"],
            "undecided" + (f"; {more} more items each would tell" if more else ""),
        )
        out.print(
            f"{number(scale * difference['delta'], pattern)}{unit} {name} ({sure} interval "
            f"{interval(difference['interval'], pattern, scale)}, p = "
            f"{difference['p_value']:.3g}): {verdict}",
            soft_wrap=True,
        )
    for side in ("first", "second"):
        stands = found[side].get("extrapolation")
        if stands and stands["caution"]:
            out.say(f"Caution, {side}: {stands['caution']}")
    if found["caution"]:
        out.say(f"Caution: {found['caution']}")
    for side in ("first", "second"):
        if told := _took(found[side]):
            out.say(f"{side:8}{told}")

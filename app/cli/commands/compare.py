"""`sextant compare`: which of two sessions or models is better, and how certain that is."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from app.cli.servers.connection import path_of, request
from app.cli.servers.options import SAME, also_json, on_server
from app.cli.terminal.console import JsonObject, interval, number, out
from app.cli.terminal.replies import Asked, at
from app.printable import percent
from app.reports.figures import dollars, took
from app.reports.formats import count, short_digests
from app.reports.namesakes import namesakes
from sextant_client import models

_VERDICTS = {"above": "the first is better", "below": "the second is better"}
_BOTH = ("first", "second")
#: Questions that are listed; the page of a comparison lists them all.
_NAMED = 10
_NAMES = {
    "/session_ids/0": "FIRST",
    "/session_ids/1": "SECOND",
    "/examinees/0": "FIRST",
    "/examinees/1": "SECOND",
    "/response_set": "--responses",
}


@on_server(json=SAME, names=_NAMES)
def command(
    first: Annotated[str, typer.Argument(help="Id of an ended session, or name of a model.")],
    second: Annotated[str, typer.Argument(help="Id or name of the other one.")],
    responses: Annotated[
        str | None,
        typer.Option(help="Response set of both models; by default both are sessions."),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Confidence of intervals and verdicts.")] = 0.95,
) -> None:
    """Compare two ended sessions, or two models of a response set."""
    both = [first, second]
    what = (
        {"session_ids": both}
        if responses is None
        else {"response_set": responses, "examinees": both}
    )
    # Read first, as it reports a missing session by its id.
    read = both if responses is None else []
    sessions = [_Session.model_validate(request("GET", path_of("sessions", one))) for one in read]
    found = request("POST", "/v1/comparisons", {"confidence": confidence, **what})
    if not also_json(found):
        return
    _show(found, _labels(found, sessions))
    for name, one in zip(_BOTH, sessions, strict=False):
        if one.trust is not None and one.trust.level != "good":
            out.say(f"Trust, {name}: {one.trust.level}. {one.trust.reason}")
    if responses is None:
        _show_changes(*map(_scores, both))


class _Session(Asked):
    id: str
    trust: models.Trust | None = at("headline", "trust", default=None)


def _scores(session: str) -> dict[str, float | None]:
    report = request("GET", path_of("sessions", session, "report"))
    return {one["item_id"]: one["score"] for one in report["items"]}


def _show_changes(first: dict[str, float | None], second: dict[str, float | None]) -> None:
    """Print the questions of both sessions that one model answered better than the other."""
    gains = {
        name: score - other
        for name, score in first.items()
        if score is not None and (other := second.get(name)) is not None
    }
    for which, sign in zip(_BOTH, (1, -1), strict=True):
        better = [name for name, gain in gains.items() if sign * gain > 0]
        if better:
            more = ", ..." if len(better) > _NAMED else ""
            named = short_digests(", ".join(better[:_NAMED]))
            out.say(f"the {which} is better on {len(better)}: {named}{more}")


def _labels(found: JsonObject, sessions: Sequence[_Session]) -> tuple[str, str]:
    """Names of both sides, with what distinguishes sessions of one name."""
    apart = namesakes({one.id: replace(one.called, ended=one.id) for one in sessions})

    def label(side: JsonObject) -> str:
        own = apart.get(side["id"])
        return f"{side['label']} ({', '.join(own)})" if own else str(side["label"])

    return label(found["first"]), label(found["second"])


def _took(side: JsonObject) -> str:
    """Cost and time of a question in a session, where they are known."""
    usd, latency = side["usd_per_item"], side.get("latency_ms")
    told = [] if usd is None else [f"{dollars(usd)} a question"]
    if latency is not None:
        told.append(f"answers in {took(latency['p50'])}, 95 % within {took(latency['p95'])}")
    return "; ".join(told)


def _show(reply: JsonObject, labels: tuple[str, str]) -> None:
    found, sides = models.Comparison.model_validate(reply), (reply["first"], reply["second"])
    for name, label in zip(_BOTH, labels, strict=True):
        out.say(f"{name:8}{label}")
    sure, common = percent(found.confidence), count(found.n_common, "common question")
    if found.reason:
        out.say(found.reason)
    left = [side["unasked"] for side in sides]
    open_to = [f"for {label}" for label, n in zip(labels, left, strict=True) if n != 0]
    whom = open_to[0] if len(open_to) == 1 else "each"
    for difference, name, pattern, scale, unit in (
        (found.score != found.common and found.score, "in score", "+z.1f", 100, " points"),
        (found.common, f"on {common}", "+z.1f", 100, " points"),
        (found.theta, f"in ability, scale {reply['scale']}", "+z.2f", 1, ""),
    ):
        if not difference:
            continue
        more, known = difference.items_to_decide, difference.interval
        wanted = f"{more} more questions {whom}"
        if more and whom == "each" and any(more > (n or more) for n in left):
            wanted += ", or as many as are left,"
        delta = number(scale * difference.delta, pattern)
        is_open = "undecided" if float(delta) else "no difference so far, undecided"
        verdict = _VERDICTS.get(
            difference.verdict, is_open + (f"; {wanted} would tell them apart" if more else "")
        )
        ends = f"{sure} interval {interval(known, pattern, scale)}"
        out.say(
            f"{delta}{unit} {name} "
            f"({ends if known else 'too few for an interval'}, p = "
            f"{difference.p_value:.3g}): {verdict}"
        )
    if found.common is None and not found.reason:
        out.say(f"{common}: too few to compare the answers")
    for name, side in zip(_BOTH, sides, strict=True):
        if (place := side.get("extrapolation")) and place["caution"]:
            out.say(f"Caution, {name}: {place['caution']}")
    if found.caution:
        out.say(f"Caution: {found.caution}")
    for name, side in zip(_BOTH, sides, strict=True):
        if told := _took(side):
            out.say(f"{name:8}{told}")

"""Renders templates to HTML, with filters that format numbers, times and names."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import Any
from urllib.parse import urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment
from markupsafe import Markup, escape

from app import DISTRIBUTION
from app.pages.access import visitor
from app.pages.forms import labelled
from app.pages.static import address
from app.records.fields import ends
from app.reports.charts import interval_bar
from app.reports.figures import answers_right, headline_lines, uncounted, whole_bank
from app.reports.formats import short, short_digests
from app.reports.rendering import environment
from app.reports.session.words import scored_on

STATUS_WORDS: Mapping[str, str] = {
    "queued": "waits for a worker",
    "running": "running",
    "waiting": "waits for the endpoint",
    "paused": "paused",
    "awaiting_response": "waits for your answer",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
}


async def page(
    request: Request, template: str, part: str | None = None, /, *, status: int = 200, **values: Any
) -> HTMLResponse:
    """A page, rendered in a thread so that it does not block the event loop.

    A script that asks for no more gets the template `part`. Templates get `values` beside `visit`,
    `path`, `query` and `status`.
    """
    who = await visitor(request)
    if part is not None and "hx-request" in request.headers:
        template = part
    shown = {
        "visit": who,
        "path": request.url.path,
        "query": dict(request.query_params),
        "status": status,
        **values,
    }
    return HTMLResponse(await asyncio.to_thread(fragment, template, shown), status_code=status)


def fragment(template: str, values: Mapping[str, Any]) -> str:
    """HTML of a template with these values."""
    return templates().get_template(template).render(values)


@cache
def templates() -> Environment:
    """The templates of the pages."""
    made = environment("app.pages")
    made.filters |= {
        "time": time_tag,
        "short": short,
        "name": _name,
        "examinee": who,
        "labelled": labelled,
        "status": lambda word: STATUS_WORDS.get(word, word.replace("_", " ")),
        "p_value": lambda p: f"{p:.3f}" if p >= 0.001 else "< 0.001",
    }
    made.globals |= {
        "address": address,
        "interval_bar": interval_bar,
        "ends": ends,
        "link": link,
        "scored_on": scored_on,
        "uncounted": uncounted,
        "answers_right": lambda one: answers_right(one["scored"], one["right"], one["mean"]),
        "headline_lines": headline_lines,
        "whole_bank": whole_bank,
        "changed": lambda query, **new: {**query, **new},
        "without": lambda query, name: {key: query[key] for key in query if key != name},
        "sextant_version": version(DISTRIBUTION),
        "now": lambda: datetime.now(UTC),
    }
    return made


def link(path: str, /, **parameters: Any) -> str:
    """A path with a query; empty parameters are left out."""
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def who(session: Any) -> str:
    """Name of the examinee of a session."""
    if session.endpoint is not None:
        return str(session.endpoint.name or session.endpoint.model)
    return "by hand" if session.examinee is None else str(session.examinee.name)


def _name(text: object) -> Markup:
    """A user's name for something, shortened, and isolated in its direction of writing."""
    line = short_digests(short(text))
    title = Markup("") if line == text else Markup(' title="{}"').format(short(text, 400))
    return Markup("<bdi{}>{}</bdi>").format(title, escape(line))


def time_tag(moment: datetime | str | None) -> Markup:
    """A time in UTC, which a script converts to the reader's zone."""
    if moment is None:
        return Markup("-")
    if isinstance(moment, str):
        moment = datetime.fromisoformat(moment)
    at = moment.astimezone(UTC)
    return Markup('<time datetime="{}">{} UTC</time>').format(
        at.isoformat(timespec="seconds"), at.strftime("%Y-%m-%d %H:%M")
    )

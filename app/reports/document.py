"""A page that needs nothing else: no script, no font, no image from outside.

All text is escaped by `app.reports.markup`; the page forbids itself every other source.
"""

from app.reports.markup import Markup, Node, el
from app.reports.style import STYLE

#: What a page may load: its own style sheet and nothing else.
CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def document(heading: str, title: str, kicker: str, *sections: Node) -> str:
    """The whole page.

    Args:
        heading: What it is about.
        title: The same for the browser.
        kicker: Above the heading: what kind of page it is.
        sections: Its content; None is left out.
    """
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=CONTENT_SECURITY_POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", title),
        el("style", Markup(STYLE)),
    )
    body = el("body", el("main", el("p", kicker, class_="kicker"), el("h1", heading), *sections))
    return "<!doctype html>\n" + el("html", head, body, lang="en") + "\n"

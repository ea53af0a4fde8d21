"""The templates of reports, and the number formats in them.

A report needs nothing from outside: no script, no font, no image. Templates escape everything but
markup, and the page's policy forbids every source but its own style.
"""

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from app.reports.figures import dollars, took
from app.reports.formats import count, duration, item_name, number, percent, signed
from app.reports.session.words import OUTCOME_NAMES, STOP_WORDS, cost

#: What a page may load: its own style sheet and nothing else.
CONTENT_SECURITY_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = files("app.reports").joinpath("templates/style.css").read_text()


def document(heading: str, title: str, kicker: str, sections: Markup) -> str:
    """Render the whole page; `kicker` is a line above the heading that names the kind of page."""
    said = {"heading": heading, "title": title, "kicker": kicker, "sections": sections}
    return fragment("document.html", policy=CONTENT_SECURITY_POLICY, **said)


def fragment(template: str, **values: Any) -> Markup:
    """Render a template of the reports as HTML."""
    made = environment().get_template(template).render(values)
    return Markup(made)  # noqa: S704  escaped by its environment


@cache
def environment(*packages: str) -> Environment:
    """Make an environment with templates of packages and reports; an unknown name is an error."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in (*packages, "app.reports")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "cost": cost,
        "dollars": dollars,
        "duration": duration,
        "item_name": item_name,
        "mark": lambda score: {0.0: "wrong", 1.0: "right"}.get(score, f"score {score:.2f}"),
        "number": number,
        "outcome": lambda word: OUTCOME_NAMES.get(word, word),
        "percent": percent,
        "signed": signed,
        "stop": lambda word: STOP_WORDS.get(word, word.replace("_", " ")),
        "took": took,
        "words": lambda name: str(name).replace("_", " "),
    }
    made.globals |= {"count": count}
    return made

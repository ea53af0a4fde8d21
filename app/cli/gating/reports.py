"""A release's verdicts for people and for pipelines: Markdown and JUnit's XML."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from app.cli.gating.judging import Verdict, outcome_of
from app.cli.terminal.tables import money
from app.printable import printable

#: By it the comment of an earlier run is found.
COMMENT = "<!-- sextant gate -->"
_SIGNS = {"go": "✅ go", "no_go": "❌ no go", "inconclusive": "❔ inconclusive", "error": "⚠️ error"}


def markdown(verdicts: Sequence[Verdict], server: str | None) -> str:
    """One comment; what is empty begins with the release's outcome.

    Args:
        verdicts: At least one.
        server: Address that sessions are linked at; None where they have none.
    """
    lines = [
        COMMENT,
        f"### {_SIGNS[outcome_of(verdicts)]}",
        "",
        "| rule | outcome | result | questions | cost | test |",
        "|---|---|---|---|---|---|",
    ]
    for one in verdicts:
        session = one.session
        name = f"{one.rule.name} ({one.rule.tier})"
        link = session.id if server is None else f"[test]({server}/sessions/{session.id})"
        if one.reused:
            link += " of an earlier run"
        cells = [
            _cell(name),
            _SIGNS[one.outcome],
            _cell(one.gate.detail),
            str(session.progress.items),
            money(session.usage.usd),
            link,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def junit(verdicts: Sequence[Verdict]) -> bytes:
    """A suite of one test a rule: no go is a failure, an open one an error, a should is skipped.

    One without a result is an error of the type `error`.
    """
    kinds = {"no_go": "failure", "inconclusive": "error", "error": "error"}
    must = [one.outcome for one in verdicts if one.rule.tier == "must"]
    suite = ET.Element(
        "testsuite",
        name="sextant gate",
        tests=str(len(verdicts)),
        failures=str(must.count("no_go")),
        errors=str(must.count("inconclusive") + must.count("error")),
        skipped=str(sum(one.rule.tier != "must" and one.outcome != "go" for one in verdicts)),
    )
    for one in verdicts:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=printable(f"sextant.{one.session.bank.name}"),
            name=printable(one.rule.name),
            time=f"{one.session.usage.seconds:.3f}",
        )
        if one.outcome in kinds:
            kind = kinds[one.outcome] if one.rule.tier == "must" else "skipped"
            ET.SubElement(case, kind, message=printable(one.gate.detail), type=one.outcome)
        told = ET.SubElement(case, "system-out")
        told.text = printable(f"{one.gate.detail} {one.session.id}")
    root = ET.Element("testsuites")
    root.append(suite)
    written: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return written


def _cell(text: str) -> str:
    """In a row of a table, and as text: a name may hold anything."""
    safe = printable(text).replace("\n", " ")
    for sign in "\\`*_{}[]<>|@":
        safe = safe.replace(sign, f"\\{sign}")
    return safe

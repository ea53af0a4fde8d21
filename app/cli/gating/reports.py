"""Reports of a release's verdicts: Markdown for people, JUnit XML for pipelines."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence

from app.cli.gating.judging import Verdict, outcome_of
from app.cli.terminal.tables import money
from app.printable import printable

#: Marker by which a pipeline finds the comment of an earlier run.
COMMENT = "<!-- sextant gate -->"
_SIGNS = {"go": "✅ go", "no_go": "❌ no go", "inconclusive": "❔ inconclusive", "error": "⚠️ error"}


def markdown(verdicts: Sequence[Verdict], server: str | None) -> str:
    """A Markdown comment that begins with the outcome of the release.

    Args:
        verdicts: At least one.
        server: Address that links to sessions begin with; None writes no links.
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
    """A test suite with one test a rule; the type of a failure or error is the rule's outcome.

    No go is a failure, an open rule or one without a result an error, a missed `should` skipped.
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
    """Escape text for a cell of a table; a name may hold any character."""
    safe = printable(text).replace("\n", " ")
    for sign in "\\`*_{}[]<>|@":
        safe = safe.replace(sign, f"\\{sign}")
    return safe

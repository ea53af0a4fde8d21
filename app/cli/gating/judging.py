"""Tests that decide a policy's rules, the outcome of a release, and reports for pipelines."""

import hashlib
import json
import xml.etree.ElementTree as ET
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from app.cli.gating.policy import Policy, Rule
from app.cli.servers.connection import path_of
from app.cli.servers.options import is_missing
from app.cli.terminal.console import JsonObject, faults_of, money, show_warning
from app.cli.terminal.replies import Baseline, Session
from app.cli.terminal.watch import LONGER, asks_more, further
from app.errors import InvalidInputError, SextantError
from app.printable import printable
from app.records.gates import BASELINE_LIMITS
from sextant_client import AsyncSextant, ProblemError, models

#: Waits until a test ends, shows its progress, and returns the ended session.
Watch = Callable[[JsonObject], Awaitable[JsonObject]]
_ENDED = frozenset({"completed", "failed", "cancelled"})
_OPEN = "inconclusive"


class Gate(models.Gate):
    """A session compared with a threshold or a baseline."""

    tag: str | None
    created_at: datetime

    @property
    def result(self) -> str:
        """`go`, `no_go`, `inconclusive`, `pending`, or `error`: no result could decide."""
        if self.outcome is None:
            return self.status
        return "error" if self.value is None else self.outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A rule and its outcome.

    Attributes:
        told: The gate as a reply of the API.
        gate: The same gate, parsed.
        session: Session of the gate.
        reused: Whether an earlier run began the session for the same commit.
        steps: What may decide an open rule, by what it is for.
    """

    rule: Rule
    told: JsonObject
    gate: Gate
    session: Session
    reused: bool = False
    steps: Mapping[str, str] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """Outcome of the gate; never `pending`, since the test has ended."""
        return self.gate.result


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Decides a policy on one server.

    Attributes:
        asked: `endpoint` or `endpoint_id`, as in the body of a session.
        file: File of the policy; None for a single gate.
        commit: The tested commit; tests of a policy run once a commit. None always tests again.
        watch: Called to wait for the end of a test.
    """

    client: AsyncSextant
    policy: Policy
    asked: JsonObject
    file: Path | None
    commit: str | None
    watch: Watch

    async def decide(self) -> list[Verdict]:
        """Verdicts on all rules, in the order of the policy."""
        found: dict[str, Verdict] = {}
        spent: dict[str, float] = {"usd": 0.0, "tokens": 0}
        for bank in dict.fromkeys(rule.bank for rule in self.policy.rules):
            rules = [rule for rule in self.policy.rules if rule.bank == bank]
            verdicts = await self._of_bank(bank, rules, spent)
            found |= {one.rule.name: one for one in verdicts}
            usage = verdicts[0].session.usage
            counted = usage.at_most or usage
            spent["usd"] += counted.usd or 0.0
            spent["tokens"] += counted.tokens or 0
        return [found[rule.name] for rule in self.policy.rules]

    async def _of_bank(
        self, bank: str, rules: Sequence[Rule], spent: Mapping[str, float]
    ) -> list[Verdict]:
        metadata, first = self._metadata(rules), _asking(rules)
        if self.commit and (known := await self._known(bank, metadata)) is not None:
            gate = await self._post("/v1/gates", {**first.body(), "session_id": known["id"]})
            # Whoever may run tests can give one these metadata, and answer it by hand.
            if gate["created_by"] == known["created_by"]:
                verdicts = await self.by(known, rules, {first.name: str(gate["id"])})
                return [replace(one, reused=True) for one in verdicts]
        left = self.policy.budget.left(spent)
        if not all(left.values()):
            raise InvalidInputError(f"The policy's budget is used up: bank {bank!r} was not asked.")
        for rule in rules:
            await self._warn_of_baseline(rule)
        body = {
            **self.policy.session,
            **self.asked,
            "bank": bank,
            "budget": left,
            "metadata": metadata,
        }
        made = await self._post("/v1/gates", {**first.body(), "session": body})
        session = await self._read(f"/v1/sessions/{made['session_id']}")
        return await self.by(session, rules, {first.name: str(made["id"])})

    async def by(
        self,
        session: JsonObject,
        rules: Sequence[Rule],
        made: Mapping[str, str] = MappingProxyType({}),
    ) -> list[Verdict]:
        """Verdicts on the rules of its bank by a session, which is extended while one is open.

        `made` has the ids of gates on the session that exist already, by name of the rule.
        """
        while True:
            if session["status"] not in _ENDED:
                session = await self.watch(session)
            read = Session.model_validate(session)
            gates = [
                await self._read(f"/v1/gates/{made[rule.name]}")
                if rule.name in made
                else await self._post("/v1/gates", {**rule.body(), "session_id": read.id})
                for rule in rules
            ]
            verdicts = [
                Verdict(rule=rule, told=gate, gate=Gate.model_validate(gate), session=read)
                for rule, gate in zip(rules, gates, strict=True)
            ]
            if not self._goes_on(verdicts, read):
                return verdicts
            n_items = min(LONGER * read.progress.items, self.policy.extend_to or 0)
            longer = dict.fromkeys(("min_items", "max_items"), n_items)
            stopping: JsonObject = {"score_margin": None, "se": None, **longer}
            more = {"stopping": stopping, "metadata": self._metadata(rules)}
            session = await self._post(f"/v1/sessions/{read.id}:extend", more)
            made = {}

    def _goes_on(self, verdicts: Sequence[Verdict], session: Session) -> bool:
        return (
            session.status == "completed"
            and asks_more(session)
            and session.progress.items < (self.policy.extend_to or 0)
            and any(one.gate.outcome == _OPEN for one in verdicts)
        )

    async def steps(self, verdict: Verdict) -> dict[str, str]:
        """What may decide an open rule: more questions, also of a baseline that was asked fewer."""
        if verdict.outcome != _OPEN:
            return {}
        steps, session = {}, verdict.session
        own = None if BASELINE_LIMITS in verdict.gate.detail else further(session)
        if own is not None:
            most = min(LONGER * session.progress.items, session.bank.n_items)
            alone = f"{own}, then gate the new session"
            steps["next"] = f"set extend_to: {most} in {self.file}" if self.file else alone
        named, asked = await self._baseline(verdict.rule), session.progress.scored
        if (
            named is not None
            and (own is None or named.n_items < asked)
            and (longer := await self._longer(named)) is not None
        ):
            steps["baseline"] = f"{longer}, then set {named.name} to the new session"
        return steps

    async def _warn_of_baseline(self, rule: Rule) -> None:
        """Warn before a test that the baseline is known too roughly for the rule's tolerance."""
        named = await self._baseline(rule)
        if named is None or rule.metric != "score" or rule.tag is not None:
            return
        if named.passes is not None and (rule.tolerance or 0.0) < named.passes:
            longer = await self._longer(named)
            advice = f" Extend its session first ({longer}), and set it again." if longer else ""
            show_warning(
                f"{rule.name}: the baseline {named.name} is {named.certainty}; one of "
                f"{rule.tolerance:g} points, less often.{advice}"
            )

    async def _baseline(self, rule: Rule) -> Baseline | None:
        """The rule's baseline; None where it has none, or names a session instead."""
        found = [] if rule.baseline is None else await self.client.list_all("/v1/baselines")
        return next(
            (Baseline.model_validate(one) for one in found if one["name"] == rule.baseline), None
        )

    async def _longer(self, baseline: Baseline) -> str | None:
        """Command that extends a baseline's session; None where it cannot be extended."""
        try:
            found = await self._read(path_of("sessions", baseline.session_id))
        except ProblemError as problem:
            if is_missing(problem):  # a baseline outlasts its session
                return None
            raise
        return further(Session.model_validate(found))

    async def _known(self, bank: str, metadata: dict[str, str]) -> JsonObject | None:
        """The newest test of this commit asked like this; None where there is none to reuse."""
        found = await self._read(path_of("banks", bank))
        said = {f"metadata.{name}": value for name, value in metadata.items()}
        params = {"bank_id": str(found["id"]), **said}
        tests = await self.client.list_all("/v1/sessions", limit=1, params=params)
        return tests[0] if tests and tests[0]["status"] not in ("failed", "cancelled") else None

    def _metadata(self, rules: Sequence[Rule]) -> dict[str, str]:
        """Metadata by which a later run finds the test of this commit for the rules of a bank.

        A rule that changes finds it, too, unless other questions would be asked for it.
        """
        if self.commit is None:
            return {}
        asked = self.policy.model_dump(mode="json", exclude={"rules", "extend_to"})
        said = json.dumps({**asked, "rule": _asking(rules).asks()}, sort_keys=True)
        return {"commit": self.commit, "policy": hashlib.sha256(said.encode()).hexdigest()[:16]}

    async def _read(self, path: str) -> JsonObject:
        return await self.client.request("GET", path)

    async def _post(self, path: str, body: JsonObject) -> JsonObject:
        return await self.client.request("POST", path, json=body)


def _asking(rules: Sequence[Rule]) -> Rule:
    """The rule that the test of a bank is made for.

    A test for a baseline asks as the baseline's session did, which suits the other rules. A test
    for a threshold on theta would end as soon as this one rule is decided.
    """
    return min(rules, key=lambda rule: (rule.baseline is None, rule.metric == "theta"))


def outcome_of(verdicts: Sequence[Verdict]) -> str:
    """Outcome of the release, which depends only on the rules that it must hold."""
    must = {one.outcome for one in verdicts if one.rule.tier == "must"}
    return next((outcome for outcome in ("no_go", "error", _OPEN) if outcome in must), "go")


#: Marker by which a pipeline finds the comment of an earlier run.
COMMENT = "<!-- sextant gate -->"
_SUITE = "sextant gate"
_SIGNS = {"go": "✅ go", "no_go": "❌ no go", "inconclusive": "❔ inconclusive", "error": "⚠️ error"}


def markdown(verdicts: Sequence[Verdict], server: str | None) -> str:
    """A Markdown comment that begins with the outcome; None as server writes no links."""
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
        name=_SUITE,
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
    return _xml(suite)


def reports_of(error: SextantError) -> tuple[bytes, str]:
    """JUnit's XML and the Markdown comment of a gate that could not be asked."""
    text = printable("\n".join([error.detail, *faults_of(error)]))
    suite = ET.Element("testsuite", name=_SUITE, tests="1", failures="0", errors="1", skipped="0")
    case = ET.SubElement(suite, "testcase", classname="sextant", name="gate", time="0")
    ET.SubElement(case, "error", message=text, type="error")
    lines = [COMMENT, f"### {_SIGNS['error']}", "", *map(_cell, text.split("\n")), ""]
    return _xml(suite), "\n".join(lines)


def _xml(suite: ET.Element) -> bytes:
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

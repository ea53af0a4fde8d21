"""Checks the result of a chaos run by plain SQL and the model's log, without code of Sextant.

Each answer of the model carries the number of its call, so a stored answer identifies one line of
the log.
"""

import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, LiteralString

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from tests.chaos.model_server import GOOD, KEY_OF, SLOW, UNMARKED

_SESSIONS: Final = """
    SELECT s.*, e.model, s.metadata ->> 'chaos' AS name, r.lease_epoch AS ranking_epoch
    FROM sessions s LEFT JOIN endpoints e ON e.id = s.endpoint_id
    LEFT JOIN rankings r ON r.id = s.ranking_id ORDER BY s.id
"""
_ROWS: Final = """
    SELECT a.*, coalesce(a.raw_text, a.answer_text, '') AS said, i.key FROM administrations a
    JOIN sessions s ON s.id = a.session_id
    JOIN version_items v ON v.version_id = s.bank_version_id AND v.position = a.position
    JOIN items i ON i.id = v.item_id ORDER BY a.session_id, a.step
"""
_EVENTS: Final = """
    SELECT session_id, count(*) AS n, min(seq) AS least, max(seq) AS most,
        array_agg((data ->> 'step')::int) FILTER (WHERE type = 'response.received') AS steps
    FROM session_events GROUP BY session_id
"""
_ITEMS: Final = """
    SELECT v.version_id, v.a, v.intercept, v.c, v.d, i.key FROM version_items v
    JOIN items i ON i.id = v.item_id ORDER BY v.version_id, v.position
"""
_NEW: Final = """
    SELECT a.session_id, step, arrival, outcome, score, raw_text, answer_text, theta
    FROM administrations a LEFT JOIN jsonb_each_text(%s) AS known ON known.key = a.session_id
    WHERE a.arrival > coalesce(known.value::int, 0) ORDER BY a.session_id, a.arrival
"""
#: Theta and SE after each answer of each session, and the final reported ones.
Thetas = Sequence[Sequence[tuple[float, float]]]
#: Thetas must agree exactly; this tolerance covers their conversion to JSON.
_TOLERANCE: Final = 1e-9
#: The run does not wait minutes for calls whose server died.
_AGE: Final = """
    UPDATE idempotency_keys SET created_at = created_at - interval '5 minutes'
    WHERE response_status IS NULL AND created_at < now() - interval '15 seconds'
"""
#: With fewer scored answers a session has no theta.
_MIN_MARKED: Final = 5


@dataclass
class Watch:
    """Rows seen in the database during the run: what was stored once must stay."""

    conninfo: str
    seen: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    _known: dict[str, int] = field(default_factory=dict)

    def look(self) -> None:
        """Read new rows; do nothing while the database is away."""
        try:
            with psycopg.connect(self.conninfo, row_factory=dict_row) as connection:
                connection.execute(_AGE)
                for row in connection.execute(_NEW, [Jsonb(self._known)]).fetchall():
                    self._known[row["session_id"]] = row["arrival"]
                    self.seen.setdefault((row["session_id"], row["step"]), row)
        except psycopg.Error:
            pass


@dataclass(frozen=True)
class Facts:
    """All data that is checked, read at one time."""

    sessions: list[dict[str, Any]]
    rows: dict[str, list[dict[str, Any]]]
    events: dict[str, dict[str, Any]]
    rankings: list[dict[str, Any]]
    calibrations: list[dict[str, Any]]
    items: dict[str, list[dict[str, Any]]]
    calls: dict[str, dict[str, Any]]
    replies: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, connection: psycopg.Connection, model_log: Path) -> "Facts":
        """Read the facts from the database and the log."""
        with connection.cursor(row_factory=dict_row) as cursor:

            def found(query: LiteralString) -> list[dict[str, Any]]:
                return cursor.execute(query).fetchall()

            rows, items = defaultdict(list), defaultdict(list)
            for row in found(_ROWS):
                rows[row["session_id"]].append(row)
            for item in found(_ITEMS):
                items[item["version_id"]].append(item)
            lines = [json.loads(line) for line in model_log.read_text().splitlines()]
            return cls(
                sessions=found(_SESSIONS),
                rows=rows,
                events={one["session_id"]: one for one in found(_EVENTS)},
                rankings=found("SELECT * FROM rankings"),
                calibrations=found("SELECT * FROM calibrations"),
                items=items,
                calls={line["call"]: line for line in lines if "call" in line},
                replies={line["reply"]: line for line in lines if "reply" in line},
            )

    def good(self) -> dict[tuple[str, str], list[str]]:
        """Return the good replies by model and item."""
        found = defaultdict(list)
        for number, reply in self.replies.items():
            if reply["kind"] in {GOOD, *UNMARKED}:
                call = self.calls[number]
                found[call["model"], call["item"]].append(number)
        return found


@dataclass(frozen=True)
class Verdict:
    """Result of the check.

    Attributes:
        faults: One sentence per fault; empty in a good run.
        figures: Counts of what was checked.
    """

    faults: list[str]
    figures: dict[str, Any]


def check(
    facts: Facts,
    *,
    wanted: Mapping[str, int],
    disturbed_model: int,
    seen: Mapping[tuple[str, int], Mapping[str, Any]] | None = None,
    acknowledged: Sequence[tuple[str, int, float]] = (),
    again: Callable[[dict[str, Any]], Thetas] | None = None,
) -> Verdict:
    """Check a finished run.

    Args:
        facts: Data left by the run.
        wanted: Number of `sessions`, `rankings` and `calibrations` requested.
        disturbed_model: How often the model lost a reply.
        seen: Closed rows as they were read during the run.
        acknowledged: Manual answers that the API accepted.
        again: Replays; by default they are computed in a separate process.
    """
    repeats, wasted = _repeats(facts, disturbed_model)
    faults = [
        *_ends(facts, wanted),
        *_once(facts),
        *_marks(facts),
        *_kept(facts, seen or {}, acknowledged),
        *wasted,
        *_thetas(facts, again or replayed_apart),
        *_others(facts),
    ]
    outcomes = Counter(row["outcome"] for rows in facts.rows.values() for row in rows)
    figures = {
        "sessions": len(facts.sessions),
        "answers": dict(outcomes),
        "calls": len(facts.calls),
        "replies": dict(Counter(reply["kind"] for reply in facts.replies.values())),
        "repeated": repeats,
        "leases": sum(one["lease_epoch"] for one in (*facts.sessions, *facts.rankings)),
        "seen": len(seen or {}),
        "acknowledged": len(acknowledged),
    }
    return Verdict(faults, figures)


def _ends(facts: Facts, wanted: Mapping[str, int]) -> Iterator[str]:
    """Everything requested exists once and has ended."""
    tops = [one for one in facts.sessions if one["ranking_id"] is None]
    parts = {"sessions": tops, "rankings": facts.rankings, "calibrations": facts.calibrations}
    for kind, made in parts.items():
        found = [one for one in made if not (kind == "calibrations" and _was_killed(one))]
        if len(found) != wanted[kind]:
            yield f"{wanted[kind]} {kind} were asked for and {len(found)} are there"
        for one in found:
            if one["status"] != "completed":
                yield f"{one['id']} is {one['status']}: {one['failure']}"
    for name, n in Counter(one["name"] for one in tops).items():
        if n > 1:
            yield f"session {name} was made {n} times"


def _was_killed(calibration: Mapping[str, Any]) -> bool:
    """Return whether its process was killed; its failure says so, and a client starts it again."""
    return "(exit -9)" in (calibration["failure"] or {}).get("detail", "")


def _once(facts: Facts) -> Iterator[str]:
    """Each answer is counted once in every place where answers are counted."""
    for session in facts.sessions:
        name, rows = session["id"], facts.rows[session["id"]]
        closed = [row for row in rows if row["arrival"] is not None]
        if [row["step"] for row in rows] != list(range(1, len(rows) + 1)):
            yield f"{name}: steps are {[row['step'] for row in rows]}"
        if len({row["position"] for row in rows}) != len(rows):
            yield f"{name}: an item was asked twice"
        if sorted(row["arrival"] for row in closed) != list(range(1, len(closed) + 1)):
            yield f"{name}: arrivals are {sorted(row['arrival'] for row in closed)}"
        if session["arrivals"] != len(closed):
            yield f"{name}: counts {session['arrivals']} answers of {len(closed)}"
        if session["status"] == "completed" and len(closed) != len(rows):
            yield f"{name}: completed with {len(rows) - len(closed)} answers missing"
        summary = session["summary"]
        if summary["progress"]["items"] != len(closed):
            yield f"{name}: tells {summary['progress']['items']} items of {len(closed)}"
        outcomes = Counter(row["outcome"] for row in closed)
        if {k: n for k, n in summary["outcomes"].items() if n} != dict(outcomes):
            yield f"{name}: tells {summary['outcomes']} and stores {dict(outcomes)}"
        tokens = sum((row["tokens_in"] or 0) + (row["tokens_out"] or 0) for row in closed)
        usage = summary["usage"]
        if (usage.get("tokens_in") or 0) + (usage.get("tokens_out") or 0) != tokens:
            yield f"{name}: tells usage {usage} of {tokens} tokens"
        events = facts.events[name]
        last = session["event_seq"]
        if (events["least"], events["most"], events["n"]) != (1, last, last):
            yield f"{name}: events {events['least']} to {events['most']} are {events['n']}"
        if sorted(events["steps"] or []) != [row["step"] for row in closed]:
            yield f"{name}: events tell answers to {sorted(events['steps'] or [])}"


def _marks(facts: Facts) -> Iterator[str]:
    """Each score belongs to one answer of the model and is correct; faults have no score."""
    used: dict[str, str] = {}
    for session in facts.sessions:
        for row in facts.rows[session["id"]]:
            where = f"{session['id']} step {row['step']}"
            if (row["score"] is not None) != (row["outcome"] == "scored"):
                yield f"{where}: score {row['score']} for outcome {row['outcome']}"
            if session["model"] is None or row["arrival"] is None:
                continue
            text = row["said"]
            number = text.partition("]")[0].removeprefix("[")
            reply, call = facts.replies.get(number), facts.calls.get(number, {})
            if row["outcome"] == "refused" and not text:
                continue
            if row["outcome"] in {"scored", "unparsed"} or text:
                said_to = (call.get("model"), call.get("item"))
                readable = {GOOD, SLOW} | ({UNMARKED[0]} if row["outcome"] != "scored" else set())
                if reply is None or reply["text"] != text or reply["kind"] not in readable:
                    yield f"{where}: {row['outcome']} by {text!r}, which was no answer: {reply}"
                elif said_to != (session["model"], row["key"]):
                    yield f"{where}: stores what {said_to} was for"
                elif number in used:
                    yield f"{where}: stores the answer of {used[number]}"
                used[number] = where
            if row["outcome"] == "scored":
                right = text.endswith(f" {KEY_OF[row['key']]}.")
                if row["score"] != float(right):
                    yield f"{where}: {text!r} is marked {row['score']}"


def _kept(
    facts: Facts,
    seen: Mapping[tuple[str, int], Mapping[str, Any]],
    acknowledged: Sequence[tuple[str, int, float]],
) -> Iterator[str]:
    """Everything stored once, or accepted by the API, still exists unchanged."""
    now = {(name, row["step"]): row for name, rows in facts.rows.items() for row in rows}
    for place, before in seen.items():
        row = now.get(place)
        if row is None or any(row[column] != value for column, value in before.items()):
            yield f"{place}: was {before} and is {row}"
    for name, step, score in acknowledged:
        row = now.get((name, step))
        if row is None or row["score"] != score:
            yield f"{name} step {step}: the API took {score}, stored is {row and row['score']}"


def _repeats(facts: Facts, disturbed_model: int) -> tuple[int, list[str]]:
    """Count good answers thrown away, and report where more were lost than were in flight."""
    good, faults, all_wasted = facts.good(), [], 0
    for session in facts.sessions:
        if session["model"] is None:
            continue
        wasted = 0
        for row in facts.rows[session["id"]]:
            n_good = len(good.get((session["model"], row["key"]), ()))
            wasted += max(0, n_good - (row["outcome"] in {"scored", "unparsed", "refused"}))
        all_wasted += wasted
        leases = session["lease_epoch"] or session["ranking_epoch"]
        in_flight = session["design"]["concurrency"]
        allowed = in_flight * (leases - 1 + disturbed_model)
        if wasted > allowed:
            faults.append(
                f"{session['id']}: {wasted} answers were not taken, with {in_flight} in flight, "
                f"{leases} leases and {disturbed_model} faults of the model"
            )
    known = {one["model"] for one in facts.sessions}
    asked = {(one["model"], row["key"]) for one in facts.sessions for row in facts.rows[one["id"]]}
    for model, item in good:
        if model in known and (model, item) not in asked:
            faults.append(f"{model} answered {item}, of which nothing is stored")
    return all_wasted, faults


def replayed_apart(given: dict[str, Any]) -> Thetas:
    """Replay in a new process without any state."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.replay"],
        input=json.dumps(given),
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
        text=True,
    )
    thetas: Thetas = json.loads(done.stdout)
    return thetas


def _thetas(facts: Facts, again: Callable[[dict[str, Any]], Thetas]) -> Iterator[str]:
    """Theta and SE equal those of a replay."""
    by_version: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for session in facts.sessions:
        by_version[session["bank_version_id"]].append(session)
    for version, sessions in by_version.items():
        items = facts.items[version]
        bank = {name: [item[name] for item in items] for name in ("a", "intercept", "c", "d")}
        orders = []
        for session in sessions:
            rows = facts.rows[session["id"]]
            closed = sorted((r for r in rows if r["arrival"]), key=lambda r: int(r["arrival"]))
            orders.append((rows, closed))
        given = {
            "bank": {**bank, "item_ids": [item["key"] for item in items]},
            "sessions": [
                {
                    "design": session["design"],
                    "asked": [(row["position"], row["probability"]) for row in rows],
                    "closed": [(row["position"], row["score"]) for row in closed],
                }
                for session, (rows, closed) in zip(sessions, orders, strict=True)
            ],
        }
        replayed = zip(sessions, orders, again(given), strict=True)
        for session, (_, closed), (*after, end) in replayed:
            for row, (theta, se) in zip(closed, after, strict=True):
                if not _same(row["theta"], theta) or not _same(row["se"], se):
                    yield (
                        f"{session['id']} step {row['step']}: theta {row['theta']} +- {row['se']}"
                        f", by a replay {theta} +- {se}"
                    )
            told = session["summary"]["estimate"]
            n_marked = sum(row["score"] is not None for row in closed)
            if n_marked >= _MIN_MARKED and not (
                _same(told["theta"], end[0]) and _same(told["se"], end[1])
            ):
                yield f"{session['id']}: tells {told}, by a replay {end}"


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= _TOLERANCE


def _others(facts: Facts) -> Iterator[str]:
    """Rankings match their sessions, and equal calibrations have equal results."""
    by_id = {session["id"]: session for session in facts.sessions}
    for ranking in facts.rankings:
        for place in ranking["summary"].get("order", ()):
            session = by_id[place["session_id"]]
            told = session["summary"]
            if place["items"] != told["progress"]["items"]:
                yield f"{ranking['id']}: {place['items']} items of {session['id']}"
            if not _same(place["theta"], told["estimate"]["theta"]):
                yield f"{ranking['id']}: theta {place['theta']} of {session['id']}"
    completed = [one for one in facts.calibrations if one["status"] == "completed"]
    values = {bytes(one["item_values"]) for one in completed}
    if len(values) > 1:
        yield f"{len(completed)} equal calibrations have {len(values)} results"

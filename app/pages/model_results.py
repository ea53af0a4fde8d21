"""Results of models: the last ones, their place among reference models, and equal names."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from app.api.schemas.sessions import SessionRead
from app.pages.rendering import time_tag, who
from app.pages.shown import ShownSession
from app.records.sessions import REPEATING, SessionRecord
from app.reports.namesakes import Called
from app.reports.namesakes import namesakes as distinguished
from app.reports.reference_strip import strip, strip_position
from app.services.banks.loaded import LoadedVersion
from app.services.visibility import View

#: Most ended sessions that are searched for results.
LOOKED_AT = 60
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class BankResults:
    """The last results on a bank: those shown, by score, and the number of models with one."""

    shown: list[ShownSession]
    n_models: int


def last_results(ended: Sequence[SessionRecord], view: View) -> dict[str, BankResults]:
    """The last result of each model by bank: banks by their newest result.

    The ended sessions are the newest first.
    """
    found: dict[str, dict[tuple[str, ...], SessionRecord]] = {}
    for record in ended:
        if record.summary.get("score") is None or record.relation in REPEATING:
            continue
        of_bank = found.setdefault(record.bank_id, {})
        named = record.examinee.name if record.examinee else record.endpoint_name
        asked = record.provenance["endpoint"] or {"model": record.id, "base_url": ""}
        key = (record.mode, named) if named else (record.mode, asked["model"], asked["base_url"])
        of_bank.setdefault(key, record)
    return {
        bank: BankResults(
            sorted(
                (ShownSession.of(record, view) for record in list(models.values())[:_SHOWN]),
                key=lambda one: -one.score["value"] if one.score else 0.0,
            ),
            len(models),
        )
        for bank, models in list(found.items())[:_SHOWN]
    }


def strip_of(version: LoadedVersion, sessions: Sequence[SessionRead]) -> Markup | None:
    """Chart of a version's reference models and the sessions; None where none can be placed."""
    reference = version.reference
    placed = [
        (who(one), strip_position(one.estimate, reference))
        for one in sessions
        if one.headline is not None and one.bank.scale == version.bank.scale
    ]
    return strip(reference, placed)


def namesakes(sessions: Iterable[SessionRecord]) -> dict[str, Markup]:
    """Session id -> text that distinguishes it from other sessions of the same name, if any."""
    told = distinguished({session.id: _called(session) for session in sessions})
    return {session_id: Markup(", ").join(traits) for session_id, traits in told.items()}


def _called(session: SessionRecord) -> Called:
    name, ended = session.endpoint_name or session.endpoint_model, time_tag(session.finished_at)
    asked = session.provenance["endpoint"]
    if session.examinee is not None or not asked:  # the page says that it is self-reported
        return Called(name=name or "", ended=ended)
    return Called(
        name=name or "",
        ended=ended,
        is_saved=session.endpoint_name is not None,
        model=asked["model"],
        base_url=asked["base_url"],
        kind=asked["kind"],
    )

"""Results of models: the last ones, their place among reference models, and equal names."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from markupsafe import Markup

from app.api.schemas.sessions import SessionRead
from app.pages.rendering import time_tag, who
from app.records.sessions import SessionRecord
from app.reports.formats import short
from app.reports.reference_strip import strip, strip_position
from app.services.banks.loaded import LoadedVersion
from app.services.sessions.derived import EXTEND
from app.services.visibility import View

#: Most ended sessions that are searched for results.
LOOKED_AT = 60
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class BankResults:
    """The last results on a bank: those shown, by score, and the number of models with one."""

    shown: list[SessionRead]
    n_models: int


def last_results(ended: Sequence[SessionRecord], view: View) -> dict[str, BankResults]:
    """The last result of each model by bank: banks by their newest result.

    Replays and rescores are no results of their own.

    Args:
        ended: Ended sessions, the newest first.
        view: What the visitor may see.
    """
    found: dict[str, dict[tuple[str, ...], SessionRecord]] = {}
    for record in ended:
        if record.summary.get("score") is None or record.relation not in (None, EXTEND):
            continue
        of_bank = found.setdefault(record.bank_id, {})
        named = record.examinee.name if record.examinee else record.endpoint_name
        asked = record.provenance["endpoint"] or {"model": record.id, "base_url": ""}
        key = (record.mode, named) if named else (record.mode, asked["model"], asked["base_url"])
        of_bank.setdefault(key, record)
    return {
        bank: BankResults(
            sorted(
                (SessionRead.of(record, view) for record in list(models.values())[:_SHOWN]),
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
    """Session id -> text that distinguishes it from other sessions of the same name, if any.

    The text has as few traits as are needed, of: the model, the host, whether the endpoint was
    saved, its kind, and the time when the session ended.
    """
    of_name: dict[str, list[SessionRecord]] = defaultdict(list)
    for session in sessions:
        of_name[_name(session)].append(session)
    return {
        session.id: told
        for alike in of_name.values()
        if len(alike) > 1
        for session, told in zip(alike, _distinguished([*map(_traits, alike)]), strict=True)
        if told
    }


def _name(session: SessionRecord) -> str:
    return session.endpoint_name or session.endpoint_model or ""


def _traits(session: SessionRecord) -> tuple[str, ...]:
    ended, asked = time_tag(session.finished_at), session.provenance["endpoint"]
    if session.examinee is not None or not asked:
        return "", "", "", "", ended  # the page says already that the result is self-reported
    model = "" if asked["model"] == _name(session) else f"model {short(asked['model'])}"
    host = short(urlsplit(asked["base_url"]).netloc)
    saved = "saved endpoint" if session.endpoint_name else ""
    return model, host, saved, asked["kind"].replace("_", " "), ended


def _distinguished(rows: list[tuple[str, ...]]) -> list[Markup]:
    """The first traits of each row that are needed to distinguish it from the others."""
    chosen: list[tuple[str, ...]] = [()] * len(rows)
    for trait in zip(*rows, strict=True):
        longer = [(*row, one) for row, one in zip(chosen, trait, strict=True)]
        if len(set(longer)) > len(set(chosen)):
            chosen = longer
    return [Markup(", ").join(filter(None, row)) for row in chosen]

"""Distinguishes results whose models have the same name."""

from collections import defaultdict
from collections.abc import Iterable
from urllib.parse import urlsplit

from markupsafe import Markup

from app.pages.rendering import short, time_tag
from app.records.sessions import SessionRecord


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

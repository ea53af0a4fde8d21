"""Equal names of models, distinguished by as few traits as are needed."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from app.reports.formats import short


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """How a session's examinee is called, and what distinguishes it from its namesakes.

    Attributes:
        model: Name of the called model, as also the base URL and the kind of the API; None for an
            examinee that Sextant did not call.
        is_saved: Whether the endpoint was saved under a name.
        ended: When the session ended, as text for people, where they do not see it anyway.
    """

    name: str
    ended: str = ""
    is_saved: bool = False
    model: str | None = None
    base_url: str | None = None
    kind: str | None = None

    @property
    def traits(self) -> tuple[str, ...]:
        """What may distinguish it, in the order in which it is tried."""
        model = "" if self.model in (None, self.name) else f"model {short(self.model)}"
        host = short(urlsplit(self.base_url or "").netloc)
        saved = "saved endpoint" if self.is_saved else ""
        return model, host, saved, (self.kind or "").replace("_", " "), self.ended


def namesakes(sessions: Mapping[str, Called]) -> dict[str, list[str]]:
    """Session id -> traits that distinguish it from other sessions of the same name, if any."""
    of_name: dict[str, list[str]] = defaultdict(list)
    for session_id, called in sessions.items():
        of_name[called.name].append(session_id)
    return {
        session_id: told
        for alike in of_name.values()
        if len(alike) > 1
        for session_id, told in zip(
            alike, _distinguished([sessions[one].traits for one in alike]), strict=True
        )
        if told
    }


def distinct_names(names: Mapping[str, str]) -> dict[str, str]:
    """Id -> name, with the id where another has the name, as a bank may after a deletion."""
    n_of = Counter(names.values())
    return {one: name if n_of[name] == 1 else f"{name} ({one})" for one, name in names.items()}


def _distinguished(rows: list[tuple[str, ...]]) -> list[list[str]]:
    """The first traits of each row that are needed to distinguish it from the others."""
    chosen: list[tuple[str, ...]] = [()] * len(rows)
    for trait in zip(*rows, strict=True):
        longer = [(*row, one) for row, one in zip(chosen, trait, strict=True)]
        if len(set(longer)) > len(set(chosen)):
            chosen = longer
    return [[*filter(None, row)] for row in chosen]

"""Who answers a session by hand, by name: a model elsewhere, an agent, a person.

A named examinee is stored as an endpoint that nobody calls, so that boards, comparisons and
collected answers treat both alike. Its kind keeps it apart from endpoints of that name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from app.records.endpoints import SELF_REPORTED, EndpointSettings


class ExamineeKind(StrEnum):
    """What a named examinee is."""

    MODEL = "model"
    AGENT = "agent"
    PERSON = "person"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examinee:
    """A named examinee, as its client describes it.

    Attributes:
        name: Of a project's examinees each has another.
        kind: What it is.
        model: The model that answers, or that an agent drives.
        scaffold: What drives the model; together they are the agent.
        settings: Whatever else tells it apart.
    """

    name: str
    kind: ExamineeKind = ExamineeKind.MODEL
    model: str | None = None
    scaffold: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def as_endpoint(self) -> EndpointSettings:
        """As it is stored."""
        told = {"kind": self.kind.value, "scaffold": self.scaffold, "settings": dict(self.settings)}
        return EndpointSettings(
            kind=SELF_REPORTED, name=self.name, model=self.model or "", options=told
        )

    def described(self) -> str:
        """In words, without its name."""
        told = {"model": self.model, "scaffold": self.scaffold, **self.settings}
        parts = [f"{name} {value}" for name, value in told.items() if value is not None]
        article = "an" if self.kind is ExamineeKind.AGENT else "a"
        return f"{article} {self.kind.value}" + (f" ({', '.join(parts)})" if parts else "")


def examinee_in(provenance: Mapping[str, Any]) -> Examinee | None:
    """The named examinee of a session; None where an endpoint was asked, or nobody was named."""
    origin = provenance.get("endpoint") or {}
    if origin.get("kind") != SELF_REPORTED:
        return None
    return _of(origin["name"], origin["model"], origin["options"])


def examinee_of_endpoint(settings: EndpointSettings) -> Examinee:
    """What `Examinee.as_endpoint` was made of."""
    return _of(settings.name or "", settings.model, settings.options)


def _of(name: str, model: str, options: Mapping[str, Any]) -> Examinee:
    return Examinee(
        name=name,
        kind=ExamineeKind(options["kind"]),
        model=model or None,
        scaffold=options["scaffold"],
        settings=options["settings"],
    )

"""Decides, in one place, who sees which part of a withheld bank. docs/withheld.md has the table.

A caller who may write banks sees everything. All others see the names of a withheld bank's items
(keys, tags, groups), their parameters, and the figures of sessions: outcomes, scores, abilities,
costs. They do not see an item's text, its right answers, its prompt and scorer, or any text that
came back: an endpoint may repeat its prompt, and a scripted one knows the answers.

Reports, exports and response shapes all take their values through a `View`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from app import scorers
from app.acting import maker
from app.engine import StopReason
from app.errors import InvalidInputError, MissingScopeError
from app.items import BY_KIND, ItemContent, ScorerSpec
from app.records.banks import OPEN, Bank, Item
from app.records.figures import Method
from app.records.leased import StoredEvent
from app.records.rankings import RankingFigures, RankingRecord
from app.records.sessions import Closing, Provenance, SessionRecord
from app.scorers.calling import CallingScorer
from app.storage.database import Database

if TYPE_CHECKING:  # shapes of services that import this module
    from app.services.results.gates import Gate
    from app.services.sessions.manual import NextItem
    from app.services.sessions.rescoring import Change
    from app.services.sessions.service import AskedAnswer

T = TypeVar("T")

#: Replaces a text that may quote a withheld bank, such as the last answer of a failed session.
UNTOLD = (
    "Hidden: the bank is withheld, and this text may quote it. A key with the scope "
    "'banks:write' sees it."
)

#: Fields of a provenance that everybody may see; all others may hold the bank's texts.
_TOLD_PROVENANCE = frozenset(
    {
        "code_version",
        "bank",
        "bank_version_id",
        "bank_version",
        "parameters_hash",
        "scale",
        "response_model",
        "provisional",
        "uncertainty",
        "n_items",
        "n_never_asked",
        "n_uncalibrated",
        "reachable_se",
        "unparsed_when_calibrated",
        "prompt_template_hash",
        "endpoint",
        "private_endpoints",
        "seed",
        "left_out",
    }
)
_TOLD_ASKING = frozenset({"bank_revision", "unparsed_policy"})
#: Fields of a call that say nothing about its answer.
_OF_CALL = frozenset({"endpoint_revision", "usage"})
#: Fields of figures and events, at any depth: texts of answers, and sentences that quote them.
_QUOTES = frozenset({"extracted", "reason"})
_SENTENCES = frozenset({"detail", "stop_detail", "left_behind"})
#: Fields that are made of numbers alone, including their sentences.
_NUMBERS = frozenset({"estimate", "extrapolation"})
#: Reasons to stop whose sentence quotes an answer, an endpoint or a scorer.
_QUOTING_REASONS = frozenset(
    {StopReason.TOO_MANY_FAILURES, StopReason.BUDGET_EXHAUSTED, StopReason.CUSTOM}
)


@dataclass(frozen=True, slots=True)
class View:
    """What one caller may see.

    Attributes:
        is_whole: Whether withheld banks are shown: the caller may write banks.
        is_admin: Whether the caller may change what other keys made.
    """

    is_whole: bool
    is_admin: bool = False

    def shows(self, *, withheld: bool) -> bool:
        """Whether the content of a bank or session is shown."""
        return self.is_whole or not withheld

    def content_of(self, bank: Bank, value: T) -> T | None:
        """A value of a bank's content (scorer, prompt); `None` where it is withheld."""
        return value if self.shows(withheld=is_withheld(bank)) else None

    def item(self, item: Item, bank: Bank) -> Item:
        """An item; a withheld one without content, scorer and hash.

        With the hash, a caller who knows the question could try every answer.
        """
        if self.shows(withheld=is_withheld(bank)):
            return item
        return replace(item, content=ItemContent(), scorer=None, content_hash="")

    def session(self, record: SessionRecord) -> SessionRecord:
        """A session; of a withheld bank, its figures and the provenance without texts."""
        if self.is_whole or not record.withheld:
            return record
        return replace(
            record,
            provenance=_redacted_provenance(record.provenance),
            stop_detail=_sentence(record.stop_detail, record.stop_reason),
            failure=_redacted(record.failure),
            waiting_reason=record.waiting_reason and UNTOLD,
        )

    def answer(self, asked: "AskedAnswer") -> "AskedAnswer":
        """An answer; of a withheld bank, its outcome, score and cost."""
        if self.shows(withheld=asked.withheld) or asked.closing is None:
            return asked
        return replace(asked, closing=_redacted_closing(asked.closing))

    def change(self, change: "Change") -> "Change":
        """The scores of an answer before and after it was scored again."""
        if self.shows(withheld=change.withheld):
            return change
        after = change.after
        return replace(
            change,
            before=_redacted_closing(change.before),
            after=None if after is None else _redacted_closing(after),
        )

    def next_item(self, awaited: "NextItem") -> "NextItem":
        """The item that a manual session awaits; of a withheld bank, its key alone."""
        if self.shows(withheld=awaited.record.withheld):
            return awaited
        return replace(awaited, item=replace(awaited.item, content=ItemContent()))

    def event(self, event: StoredEvent) -> StoredEvent:
        """An event of a session or a ranking; of a withheld bank, without texts."""
        if self.shows(withheld=event.withheld):
            return event
        return replace(event, data=_redacted(event.data))

    def ranking(self, record: RankingRecord) -> RankingRecord:
        """A ranking; of a withheld bank, its figures."""
        if self.shows(withheld=record.withheld):
            return record
        return replace(
            record,
            summary=_redacted_summary(record.summary),
            stop_detail=_sentence(record.stop_detail, record.stop_reason),
            failure=_redacted(record.failure),
        )

    def gate(self, gate: "Gate") -> "Gate":
        """A gate, without the reason of a failed session, which may quote a withheld answer."""
        if self.shows(withheld=gate.session.withheld) or gate.session.status != "failed":
            return gate
        return replace(gate, detail=f"The session failed. {UNTOLD}")

    def require_own_scorer(self, record: SessionRecord, *, named: bool) -> None:
        """Refuse to score answers to a withheld bank again with a scorer that is not its own.

        A scorer gets the accepted answers, or a scripted examinee's, which are the same. One that
        calls endpoints would send them away, and the scores of any other reveal, one question at
        a time, how they are written.

        `named` says whether the caller names the scorer; otherwise the bank's scorers are used.

        Raises:
            MissingScopeError: The answers are withheld, and the caller may not write banks.
        """
        if self.shows(withheld=record.withheld):
            return
        if named:
            raise MissingScopeError(
                f"The answers of session {record.id} are withheld: naming a scorer for them "
                "needs a key with the scope 'banks:write'. Leave the scorer out to use each "
                "item's present one."
            )
        if record.bank_visibility == OPEN:
            raise MissingScopeError(
                f"The answers of session {record.id} are withheld, but its bank is open: "
                "scoring them by an open bank's scorers needs a key with the scope "
                "'banks:write'."
            )


def is_withheld(bank: Bank) -> bool:
    """Whether a bank's content is withheld."""
    return bank.visibility != OPEN


def _redacted_provenance(provenance: Provenance) -> Provenance:
    known: Mapping[str, Any] = provenance
    told = {name: known[name] for name in known if name in _TOLD_PROVENANCE}
    asking = known.get("asking", {})
    ways = {
        name: {key: value for key, value in known[name].items() if key != "scorer"}
        for name in ("asked", "asked_when_calibrated")
        if name in known
    }
    told_asking = {name: asking[name] for name in asking if name in _TOLD_ASKING}
    return cast(Provenance, {**told, **ways, "asking": told_asking})


def _redacted_closing(closing: Closing) -> Closing:
    """The closing of an item without the reply and the way it was scored.

    The scorer's hash is left out, too: its few parameters could be guessed and tried.
    """
    told = {name: known for name, known in (closing.method or {}).items() if name in _OF_CALL}
    return replace(
        closing,
        extracted=None,
        extractor=None,
        reason=None,
        answer_text=None,
        raw_text=None,
        reasoning=None,
        scorer_hash=None,
        marking=None,
        method=cast(Method, told) or None,
    )


def _sentence(text: str | None, stop_reason: object) -> str | None:
    if text is None or (stop_reason is not None and stop_reason not in _QUOTING_REASONS):
        return text
    return UNTOLD


def _redacted_summary(summary: RankingFigures) -> RankingFigures:
    """Figures of a ranking, without the reason of a wait, which may quote a member's endpoint."""
    told: RankingFigures = _redacted(summary)
    return {**told, "waiting_reason": UNTOLD} if told.get("waiting_reason") else told


def _redacted(value: Any) -> Any:
    """Figures or an event as everybody may see them, with texts removed at any depth."""
    match value:
        case dict():
            return {name: _redacted_field(value, name) for name in value}
        case list():
            return [_redacted(entry) for entry in value]
        case _:
            return value


def _redacted_field(owner: Mapping[str, Any], name: str) -> Any:
    value = owner[name]
    if name in _NUMBERS:
        return value
    if name in _QUOTES and "rank_lo" in owner:  # why a member has no rank: a count of answers
        return value
    if name in _QUOTES:
        return UNTOLD if "until" in owner else None  # a wait always has a reason
    if name in _SENTENCES and isinstance(value, str):
        return _sentence(value, owner.get("stop_reason"))
    return _redacted(value)


@dataclass(frozen=True, eq=False)
class ScorerGuard:
    """Keeps keys that may not write banks from replacing or changing such an endpoint.

    Otherwise such a key could change a judge's address to its owner's, or take its name, and the
    next answer would send the withheld texts there.
    """

    database: Database

    async def require_free(
        self, view: View, *names: str | None, endpoint_id: str | None = None
    ) -> None:
        """Refuse a name or an endpoint by which answers to a withheld bank are scored.

        Raises:
            NotFoundError: There is no such endpoint.
            MissingScopeError: Another key made the endpoint, and the caller is no admin; or it
                scores answers to a withheld bank, and the caller may not write banks.
        """
        wanted = {name for name in names if name is not None}
        if view.is_admin or not (wanted or endpoint_id):
            return
        async with self.database.reading() as uow:
            if endpoint_id is not None:
                endpoint = await uow.endpoints.get(endpoint_id)
                if endpoint.created_by != maker():  # its users did not agree to a change
                    raise MissingScopeError(
                        f"Endpoint {endpoint_id} was made by another key: changing or deleting it "
                        "needs that key, or one with the scope 'admin'."
                    )
                wanted |= {endpoint_id, endpoint.settings.name or endpoint_id}
            if view.is_whole:
                return
            specs = await uow.banks.withheld_scorers()
            taken = any(wanted.intersection(_called_by(spec)) for spec in specs)
            if endpoint_id is not None and not taken:
                taken = await uow.sessions.scores_withheld(endpoint_id)
        if taken:
            raise MissingScopeError(
                "This endpoint scores answers of a withheld bank and is told the right answers: "
                "changing it, or taking its name, needs a key with the scope 'banks:write'."
            )


def _called_by(spec: ScorerSpec) -> tuple[str, ...]:
    """Endpoints that a scorer calls, as it names them; none where it is no longer installed."""
    if spec.name == BY_KIND:
        return ()
    try:
        scorer = scorers.build(spec)
    except InvalidInputError:
        return ()
    return scorer.endpoints() if isinstance(scorer, CallingScorer) else ()

"""Previews one item before a test is paid for: what is sent, the reply, and its score."""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from app.adapters.base import ExactRequest
from app.adapters.prompting import PromptStyle
from app.adapters.transport import Transport
from app.errors import InvalidInputError, MissingScopeError, faults_within
from app.items import ItemContent
from app.records.endpoints import SIMULATED
from app.records.sessions import Closing, PromptChanges
from app.services.banks.loaded import BankItem
from app.services.endpoints.calls import RateLimited
from app.services.endpoints.service import EndpointService
from app.services.endpoints.specs import EndpointSpec
from app.services.scoring import AnswerScorer
from app.services.sessions.asking import Asker, chosen_style, hints_of
from app.services.sessions.drafts import require_answers
from app.services.visibility import View, is_withheld
from app.storage.database import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A preview of one item.

    Attributes:
        requests: The calls; one for each option if likelihoods are compared, none for simulated
            examinees.
        closing: The answer and its score; None if nothing was sent.
    """

    item: BankItem
    requests: list[ExactRequest]
    style: PromptStyle
    closing: Closing | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Previews:
    """Previews of items; nothing is stored."""

    database: Database
    endpoints: EndpointService
    transport: Transport

    async def preview(
        self,
        bank: str,
        item: str,
        endpoint: str | EndpointSpec,
        view: View,
        *,
        prompt: PromptChanges,
        send: bool,
    ) -> Preview:
        """Preview one item with one endpoint; `send` false sends nothing.

        Raises:
            NotFoundError: The bank, item or endpoint does not exist.
            MissingScopeError: The bank is withheld, and the caller may not write banks.
            InvalidInputError: The item cannot be asked in this way, or not to this endpoint.
        """
        async with self.database.reading() as uow:
            found = await uow.banks.find(bank)
            if not view.shows(withheld=is_withheld(found)):
                raise MissingScopeError(
                    f"Bank {found.name!r} is withheld: a preview shows an item's text and how its "
                    "answer is scored, which needs a key with the scope 'banks:write'."
                )
            stored = await uow.items.find(found.id, item)
        if stored.content == ItemContent():
            raise InvalidInputError(
                f"Item {stored.key!r} has parameters but no content: there is nothing to ask."
            )
        with faults_within("/endpoint"):
            ready = await self.endpoints.open(endpoint)
        kind = ready.config.kind
        require_answers(kind)
        style = chosen_style(
            PromptStyle.from_dict(found.prompt), prompt, ready.endpoint.settings, self.endpoints
        )
        shown = BankItem.of(stored, 0, found.default_scorer, style)
        asker = Asker(
            examinee=RateLimited(ready, self.endpoints, self.transport),
            endpoint=ready,
            marker=await AnswerScorer.of_trial(
                shown.scorer,
                self.database,
                self.endpoints,
                self.transport,
                unparsed_is_wrong=found.unparsed_policy == "wrong",
            ),
            style=style,
        )
        is_simulated, closing = kind == SIMULATED, None
        requests = [] if is_simulated else asker.exact(shown)
        if send:
            # For an item of average difficulty.
            hints = await hints_of(shown, expit, [0]) if is_simulated else None
            asked = await asker.ask(shown, rng=np.random.default_rng(), hints=hints)
            closing = asked.reported
        return Preview(item=shown, requests=requests, style=style, closing=closing)

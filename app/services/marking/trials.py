"""One answer marked for a trial, outside any session."""

from app import scorers
from app.adapters.transport import Transport
from app.fair_semaphore import FairSemaphore
from app.items import Answer, ItemContent, ScorerSpec
from app.services.banks.loaded import BankItem
from app.services.endpoints.of_scorers import described, scorer_endpoints
from app.services.endpoints.service import EndpointService
from app.services.marking.answer_scorer import AnswerScorer, Marked
from app.services.marking.calling_out import ScorerCalls
from app.storage.database import Database

#: Trials that may wait.
_WAITING = 4


class ScorerTrials:
    """Trials of scorers."""

    def __init__(
        self, database: Database, endpoints: EndpointService, transport: Transport
    ) -> None:
        self._database = database
        self._endpoints = endpoints
        self._transport = transport
        # Somebody waits for each: who comes late is told soon.
        self._turns = FairSemaphore(2, _WAITING, spare=2)

    async def mark(self, spec: ScorerSpec, content: ItemContent, answer: Answer) -> Marked:
        """Mark one answer; scorers that call out do so.

        Raises:
            InvalidInputError: The scorer cannot be used, or its endpoint could not serve.
            BusyError: Too many trials are under way.
        """
        async with self._turns.turn():
            return await self._mark(spec, content, answer)

    async def _mark(self, spec: ScorerSpec, content: ItemContent, answer: Answer) -> Marked:
        await scorers.check(spec)
        async with self._database.reading() as uow:
            found = await scorer_endpoints(uow, [spec])
        calls = ScorerCalls(
            endpoints=self._endpoints,
            transport=self._transport,
            resolved=described(found),
        )
        item = BankItem(position=0, id="", key="", content=content, scorer=spec)
        return await AnswerScorer(calls).mark(item, answer)

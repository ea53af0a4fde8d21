"""Ask and tell as a loop: which items to begin next, for any kind of concurrency."""

from collections.abc import Generator, Iterable
from typing import Any

from sextant_client.errors import ProblemError
from sextant_client.models import Answer, Item, Session
from sextant_client.operations import answer_item, get_next_items, get_session
from sextant_client.requests import Step

#: The step is closed or the test has ended: the answer counts no more, or has counted already.
_LATE = frozenset({"stale_step", "invalid_state", "idempotency_answer_lost"})
Begun = Generator[Step, Any, list[Item]]


class Loop:
    """One client's part in a manual test.

    Attributes:
        session: The session, as in the last reply.
    """

    def __init__(self, session_id: str) -> None:
        self._id = session_id
        self._begun: set[str] = set()
        self.session: Session | None = None

    def awaited(self) -> Begun:
        """Items that the test waits for and that were not begun here."""
        self.session = yield from get_session(self._id)
        if self.session.mode != "manual":
            raise ValueError(f"{self._id} is not a manual session: its endpoint answers it.")
        if not self.session.awaits_answers:
            return []
        try:
            items = yield from get_next_items(self._id)
        except ProblemError as problem:
            if problem.code != "invalid_state":
                raise
            self.session = yield from get_session(self._id)
            if not self.session.ended:
                raise
            return []  # another program has ended it meanwhile
        return self._new(items)

    def tell(self, item: Item, answer: Answer) -> Begun:
        """Send an answer; returns the items to begin next.

        An answer that comes too late changes nothing.
        """
        try:
            answered = yield from answer_item(item.session_id, item.step_token, answer)
        except ProblemError as problem:
            if problem.code == "idempotency_in_flight":
                # Its server may be gone. Said anew it still counts once: a step is closed once.
                return (yield from self.tell(item, answer))
            if problem.code not in _LATE:
                raise
            return (yield from self.awaited())
        self.session = answered
        return self._new(answered.next_items)

    def _new(self, items: Iterable[Item]) -> list[Item]:
        new = [item for item in items if item.step_token not in self._begun]
        self._begun |= {item.step_token for item in new}
        return new

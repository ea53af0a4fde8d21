"""Position of a reader of events, for both clients."""

import json
from typing import Any, Final

import httpx2

from sextant_client.models import Event
from sextant_client.requests import Request, Server

#: Collections by what the ids of their resources begin with.
_COLLECTIONS: Final = {"ses": "sessions", "rnk": "rankings", "cal": "calibrations"}
#: Seconds between two streams that tell nothing: the server cannot read them for now.
_QUIET_S: Final = 1.0


class Feed:
    """Events of one resource; after a lost connection it continues after the last one.

    Args:
        server: Server of the events.
        resource_id: Id of a session, a ranking or a calibration.
        after: Number of the event to start after.

    Raises:
        ValueError: It is not such an id.
    """

    def __init__(self, server: Server, resource_id: str, after: int) -> None:
        collection = _COLLECTIONS.get(resource_id.partition("_")[0])
        if collection is None:
            raise ValueError(
                f"resource_id: expected the id of a session, a ranking or a calibration, got "
                f"{resource_id!r}."
            )
        self._path = f"/v1/{collection}/{resource_id}/events"
        self._server, self._seen = server, after
        self._failures, self._heard = 0, False

    def request(self) -> Request[Any]:
        """Request for the next stream."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(self._seen)}
        return Request("GET", self._path, lambda answer: answer, headers=headers)

    def take(self, sent: httpx2.ServerSentEvent) -> Event:
        """Take one event of the stream."""
        self._seen, self._failures, self._heard = int(sent.id), 0, True
        return Event(seq=self._seen, type=sent.event, data=json.loads(sent.data))

    def pause_after(self, outcome: httpx2.Response | httpx2.HTTPError) -> float:
        """Seconds to wait before the next stream; longer after one without events.

        Raises:
            SextantError: There will be no further stream.
        """
        heard, self._heard = self._heard, False
        if isinstance(outcome, httpx2.Response) and outcome.is_success:
            return 0.0 if heard else _QUIET_S
        self._failures += 1
        return self._server.pause_after(outcome, "GET", self._failures - 1)

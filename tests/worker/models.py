"""Models over real HTTP, and the bank of sums that they are asked."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.engine.bank import ItemBank
from app.records.banks import BankSpec
from app.services.container import Services
from app.services.endpoints.specs import EndpointSpec
from tests.servers.fault_server import FaultServer
from tests.services.banks import make_bank, question
from tests.worker.sessions import model_at

N_ITEMS = 12
USAGE = {"prompt_tokens": 10, "completion_tokens": 1}


class Model:
    """Answers what `says` returns, records its calls, and calls a hook after some of them."""

    def __init__(
        self, says: Callable[[str], str] = lambda _: "4", usage: dict[str, int] | None = USAGE
    ) -> None:
        self.says, self.usage = says, usage
        #: Header with the key, and body.
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.after: dict[int, Callable[[], Awaitable[object]]] = {}
        self.app = Starlette(
            routes=[Route("/{at}/chat/completions", self._answer, methods=["POST"])]
        )

    async def _answer(self, request: Request) -> Response:
        body = await request.json()
        self.calls.append((request.headers.get("authorization", ""), body))
        if (change := self.after.pop(len(self.calls), None)) is not None:
            await change()
        text = self.says(body["messages"][-1]["content"].partition("?")[0])
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return JSONResponse({"choices": [choice], **({"usage": self.usage} if self.usage else {})})


@dataclass(slots=True, kw_only=True)
class Faults(FaultServer):
    """A fault server that is up at `url`."""

    url: str

    def at(self, behaviour: str) -> str:
        """Return the base URL of a model that behaves so."""
        return f"{self.url}/{behaviour}/v1"

    def model(self, behaviour: str, /, **settings: Any) -> EndpointSpec:
        """Return an endpoint of a model that behaves so."""
        return model_at(self.at(behaviour), **settings)


def chance(key: str) -> float:
    """Return the probability of a right answer: 0.1 to 0.9, by item."""
    return 0.1 + 0.8 * hashlib.sha256(key.encode()).digest()[0] / 255


def sampling(seed: int = 0) -> Model:
    """Return a model that is right with the probability of each item, drawn anew at each call."""
    rng = np.random.default_rng(seed)
    return Model(lambda key: "4" if rng.random() < chance(key) else "5")


async def sums(services: Services, name: str = "sums", n: int = N_ITEMS, **more: Any) -> None:
    """Create a bank of open questions, which all have the answer 4."""
    keys = [f"item {number}" for number in range(n)]
    bank = ItemBank.from_intercepts(a=np.ones(n), intercept=np.linspace(-1, 1, n), item_ids=keys)
    spec = BankSpec(name=name, prompt={"free_instruction": ""}, **more)
    await make_bank(services, spec, bank, [question(key, "4") for key in keys])

"""Helpers of the tests of scorers that call models: open questions, and the model that scores."""

from typing import Any

from app.calling import RetryPolicy
from app.items import ScorerSpec
from app.records.banks import BankSpec, BankVersion
from app.records.endpoints import Endpoint, EndpointSettings, Price
from app.services.container import Services
from app.services.endpoints.specs import EndpointSpec
from tests.services.banks import make_bank, question, spread

N_ITEMS = 30


async def marker(services: Services, url: str, **settings: Any) -> Endpoint:
    """Save an endpoint of a model server that judges and embeds."""
    given: dict[str, Any] = {
        "name": "judge",
        "kind": "openai_chat",
        "model": "sextant-judge",
        "base_url": url,
        "retry": RetryPolicy(max_attempts=2, base_s=0.01, cap_s=0.02),
        "price": Price(input_per_1m=10.0, output_per_1m=20.0),
        "timeout_s": 5.0,
    }
    key = settings.pop("api_key", None)
    return await services.endpoints.create(
        EndpointSpec(settings=EndpointSettings(**{**given, **settings}), api_key=key)
    )


async def judged_bank(
    services: Services, scorer: str, *, name: str = "judged", **params: Any
) -> BankVersion:
    """Create open questions of graded difficulty, all scored by one scorer."""
    keys = [f"q{number}" for number in range(N_ITEMS)]
    bank = BankSpec(name=name, default_scorer=ScorerSpec(scorer, params))
    items = [question(key, f"It is {key}.") for key in keys]
    return await make_bank(services, bank, spread(*keys, a=1.5), items)

"""Simulated rankings on recorded or drawn answers, before any model is called."""

from collections.abc import Sequence

import numpy as np

from app.engine.bank import FloatArray
from app.engine.inference.orders import kendall
from app.engine.ranking.ranking import Ranking, RankingAsk, RankingState
from app.engine.state import Response, Usage
from app.engine.stopping import Stop


def simulate_ranking(
    ranking: Ranking,
    rows: Sequence[FloatArray],
    *,
    seed: int,
    concurrency: int = 1,
    state: RankingState | None = None,
) -> tuple[RankingState, Stop]:
    """A whole ranking, answered from a row of scores for each member, shape (n_items,).

    A row has NaN where there is no answer, and the member's test may not ask these items. Each
    answer costs what the ranking expects. Of the items in flight, as many as `concurrency` over all
    members, the first asked is answered first.
    """
    state = ranking.start() if state is None else state
    in_flight: list[RankingAsk] = []
    while True:
        step = None
        if len(in_flight) < concurrency:
            step = ranking.ask(state, seed)
        if isinstance(step, RankingAsk):
            state = ranking.administer(state, step.member, step.item, step.probability)
            in_flight.append(step)
        elif in_flight:
            first = in_flight.pop(0)
            score = float(rows[first.member][first.item])
            paid = Usage(usd=ranking.costs[first.member] if ranking.costs else 0.0, calls=1)
            state = ranking.tell(state, first.member, Response(first.item, score, paid))
        elif isinstance(step, Stop):
            return state, step


def kendall_tau(order: Sequence[int], measure: FloatArray) -> float:
    """Kendall's tau-b between an order without ties, best first, and a measure that may have ties.

    It is 0 if the measure, of which larger is better, is the same for all.
    """
    place = np.empty(len(order))
    place[list(order)] = -np.arange(len(order))
    return kendall(place, measure) or 0.0

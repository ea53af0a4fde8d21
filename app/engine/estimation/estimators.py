"""Estimators of theta: EAP, MAP, MLE and WLE, updated answer by answer.

| estimator | theta | standard error by default |
|---|---|---|
| EAP | posterior mean | posterior standard deviation |
| MAP | posterior mode | 1 / sqrt(I + 1 / prior_sd^2), I the expected (Fisher) information |
| MLE | likelihood mode | 1 / sqrt(I) |
| WLE | root of l' + J / (2 I), the one with the highest weighted likelihood | 1 / sqrt(I) |

EAP and MAP exist for all answers; without answers they are those of the prior. MLE has no finite
solution if the likelihood keeps rising towards an end of its range: all answers right, all wrong,
no answers, and some mixed patterns under guessing or negative slopes. WLE has none without
information. Both then give the MAP of the same prior, with `method="map"` and `at_bound=True`: a
finite theta that can choose the next item, and that is marked.

Likelihoods with guessing or negative slopes may have several modes. Each search starts at the best
node of a grid and refines theta between its neighbours, so that it finds the global mode.

Sources: Bock & Mislevy (1982), Applied Psychological Measurement 6; Warm (1989), Psychometrika 54.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from app.engine.bank import FloatArray, IntArray, ItemBank, ItemIndex
from app.engine.estimation.maxima import (
    Answers,
    SlopeFunction,
    find_maximum,
    find_mode,
    likelihood_slope,
    posterior_slope,
    weighted_slope,
)
from app.engine.estimation.posterior import (
    STANDARD_NORMAL,
    FixedGrid,
    NormalPrior,
    Posterior,
    evidence_of,
)
from app.engine.state import Z_95, Estimate, Response, answered

SEARCH_REACH = 10.0  # logits on either side of the prior's mean that MLE and WLE search
_SEARCH_SPACING = 0.05
#: Prior for the variance between items asked several times: that of five answers with p = 0.5.
_DOUBT = 5 * 0.25


class SeKind(StrEnum):
    """Kinds of standard errors."""

    POSTERIOR = "posterior"
    INFORMATION = "information"
    INFORMATION_WITH_PRIOR = "information-with-prior"


class EstimatorName(StrEnum):
    """Estimators of theta."""

    EAP = "eap"
    MAP = "map"
    MLE = "mle"
    WLE = "wle"


class InformationForm(StrEnum):
    """Forms of an item's information."""

    MODEL = "model"
    PRINTED = "printed"

    def of(
        self, bank: ItemBank, theta: float, items: IntArray | Sequence[int] | None = None
    ) -> FloatArray:
        """Information of some or all items of a bank at theta, shape (n_items,)."""
        if self is InformationForm.PRINTED:
            return bank.printed_information(theta, items)
        return bank.information(theta, items)


DEFAULT_SE = {
    EstimatorName.EAP: SeKind.POSTERIOR,
    EstimatorName.MAP: SeKind.INFORMATION_WITH_PRIOR,
    EstimatorName.MLE: SeKind.INFORMATION,
    EstimatorName.WLE: SeKind.INFORMATION,
}


class Point(NamedTuple):
    """A theta with its method; the fields are those of `Estimate`."""

    theta: float
    method: EstimatorName
    at_bound: bool


class Search(NamedTuple):
    """Sums over the answers at the nodes where MLE and WLE search for their highest mode.

    Attributes:
        nodes: Equally spaced, shape (n_nodes,).
        sums: Log-likelihood; for WLE also information and Warm's J. Shape (1 or 3, n_nodes).
    """

    nodes: FloatArray
    sums: FloatArray

    def mode(self) -> int | None:
        """Position of the highest mode; None if it is at an end or the objective is flat."""
        return find_mode(self.nodes, self.sums[:, None, :])[0]


@dataclass(frozen=True, slots=True, eq=False)
class GridBelief:
    """The belief of any estimator in this module: a posterior on nodes and a theta.

    Attributes:
        theta: Ability, logits.
        se: Standard error of theta; infinite if the answers carry no information.
        method: The estimator that gave theta.
        at_bound: Whether theta is a fallback or cut off, as in `Estimate`.
        posterior: Posterior under the estimator's prior, whatever the method.
        responses: The answers, in order; empty for a row of a table, which holds them itself.
        search: Sums with which MLE and WLE find their global mode; None for EAP and MAP.
    """

    theta: float
    se: float
    method: EstimatorName
    at_bound: bool
    se_kind: SeKind
    posterior: Posterior
    responses: tuple[Response, ...]
    search: Search | None = None

    @property
    def nodes(self) -> FloatArray:
        """Theta values that carry the posterior, shape (n_nodes,)."""
        return self.posterior.grid.nodes

    @property
    def weights(self) -> FloatArray:
        """Posterior mass at `nodes`; sums to 1."""
        return self.posterior.weights

    def estimate(self) -> Estimate:
        """Theta with its 95 % interval.

        The interval of an EAP with its posterior SE is the central 95 % of the posterior, which
        need not be symmetric; any other is theta +- 1.96 se.
        """
        if self.method is EstimatorName.EAP and self.se_kind is SeKind.POSTERIOR:
            lo, hi = self.posterior.quantile(0.025), self.posterior.quantile(0.975)
        else:
            lo, hi = self.theta - Z_95 * self.se, self.theta + Z_95 * self.se
        return Estimate(
            theta=self.theta,
            se=self.se,
            lo=lo,
            hi=hi,
            method=self.method.value,
            at_bound=self.at_bound,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GridEstimator:
    """EAP, MAP, MLE or WLE, as the module describes them.

    Attributes:
        method: One of the four estimators.
        prior: Prior of theta. MLE and WLE use it as fallback and for the posterior of selection.
        grid: A fixed grid; None lets the grid follow the posterior. Its range bounds theta, and an
            EAP or MAP that it cuts off has `at_bound=True`.
        se: Kind of standard error; None takes the method's default.
        form: Form of the information that standard errors use.
    """

    method: EstimatorName = EstimatorName.EAP
    prior: NormalPrior = STANDARD_NORMAL
    grid: FixedGrid | None = None
    se: SeKind | None = None
    form: InformationForm = InformationForm.MODEL

    def start(self, bank: ItemBank) -> GridBelief:
        """The belief before any answer."""
        posterior = Posterior.start(self.prior, self.grid)
        return self._belief(bank, posterior, (), self._start_search())

    def update(self, bank: ItemBank, belief: GridBelief, *responses: Response) -> GridBelief:
        """The belief after one or more further answers; the given belief does not change."""
        answers, search = (*belief.responses, *responses), belief.search
        grid = belief.posterior.grid
        gain = np.zeros(len(grid.nodes))
        for response in responses:
            gain += bank.model.item_log_likelihood(
                bank.parameters, response.item, grid.nodes, response.score
            )
            search = search and self._extend(search, bank, response)
        posterior = Posterior.on(grid, belief.posterior.log_likelihood + gain).on_fitting_grid(
            lambda nodes: evidence_of(bank, *answered(answers), nodes), self.prior
        )
        return self._belief(bank, posterior, answers, search)

    def expected_scores(
        self, bank: ItemBank, belief: GridBelief, items: Sequence[ItemIndex]
    ) -> FloatArray:
        """Expected scores at theta, shape (n,)."""
        return bank.expected_score(belief.theta, items)

    def weighted(self, bank: ItemBank, belief: GridBelief, answers: float) -> GridBelief:
        """The belief if each score counted as `answers` answers; MLE and WLE keep their theta."""
        items, scores = answered(belief.responses)

        def evidence(nodes: FloatArray) -> FloatArray:
            return answers * evidence_of(bank, items, scores, nodes)

        posterior = Posterior.on(belief.posterior.grid, evidence(belief.nodes))
        posterior = posterior.on_fitting_grid(evidence, self.prior)
        point = Point(belief.theta, belief.method, belief.at_bound)
        if belief.method is EstimatorName.EAP:
            point = point._replace(theta=posterior.mean)
        elif belief.method is EstimatorName.MAP:
            # n l + log prior has the mode of l + log prior / n, a prior with sd times sqrt(n).
            vague = replace(self.prior, sd=self.prior.sd * math.sqrt(answers))
            mode = replace(self, prior=vague).mode(bank, posterior, belief.responses, None)
            point = point._replace(theta=mode.theta)
        information = answers * float(self.form.of(bank, point.theta, items).sum())
        return self.conclude(point, information, posterior, belief.responses)

    def prior_in(self, bank: ItemBank) -> tuple[float, float] | None:  # noqa: ARG002  # the interface of all estimators
        """Mean and standard deviation of the prior; None if theta or its error does not use it."""
        of_answers = self.method in (EstimatorName.MLE, EstimatorName.WLE)
        if of_answers or self.se_kind(self.method) is SeKind.INFORMATION:
            return None
        return self.prior.mean, self.prior.sd

    def search_nodes(self) -> FloatArray:
        """Nodes that MLE and WLE search: the fixed grid's range, or 10 logits on either side."""
        if self.grid is None:
            lo, hi = self.prior.mean - SEARCH_REACH, self.prior.mean + SEARCH_REACH
        else:
            lo, hi = self.grid.lo, self.grid.hi
        return np.linspace(lo, hi, max(math.ceil((hi - lo) / _SEARCH_SPACING) + 1, 3))

    def _start_search(self) -> Search | None:
        if self.method not in (EstimatorName.MLE, EstimatorName.WLE):
            return None
        nodes = self.search_nodes()
        return Search(nodes, np.zeros((3 if self.method is EstimatorName.WLE else 1, len(nodes))))

    def _extend(self, search: Search, bank: ItemBank, response: Response) -> Search:
        nodes, sums = search.nodes, search.sums.copy()
        sums[0] += bank.model.item_log_likelihood(
            bank.parameters, response.item, nodes, response.score
        )
        if self.method is EstimatorName.WLE:
            parameters = bank.parameters.take(response.item)
            terms = bank.model.warm_terms(parameters, nodes)
            sums[1] += terms.information
            sums[2] += terms.j
        return Search(nodes, sums)

    def _belief(
        self,
        bank: ItemBank,
        posterior: Posterior,
        responses: tuple[Response, ...],
        search: Search | None,
    ) -> GridBelief:
        if self.method is EstimatorName.EAP:
            point = Point(posterior.mean, EstimatorName.EAP, posterior.is_cut_off)
        else:
            point = self.mode(bank, posterior, responses, search)
        information = 0.0
        if self.se_kind(point.method) is not SeKind.POSTERIOR:
            items, _ = answered(responses)
            information = float(self.form.of(bank, point.theta, items).sum())
        return self.conclude(point, information, posterior, responses, search)

    def mode(
        self,
        bank: ItemBank,
        posterior: Posterior,
        responses: tuple[Response, ...],
        search: Search | None,
    ) -> Point:
        """Theta by MLE or WLE; for MAP, and if these have no solution, the posterior mode."""
        method, nodes, k = EstimatorName.MAP, posterior.grid.nodes, posterior.mode_node
        if search is not None and (mode := search.mode()) is not None:
            method, nodes, k = self.method, search.nodes, mode
        elif posterior.is_cut_off:
            return Point(float(nodes[k]), method, at_bound=True)
        items, scores = answered(responses)
        answers = Answers(bank.model, bank.parameters.take(items), scores[None, :])
        theta = find_maximum(
            self.slope(method, answers),
            nodes[k - 1 : k],
            nodes[k : k + 1],
            nodes[k + 1 : k + 2],
        )
        return Point(float(theta[0]), method, at_bound=method is not self.method)

    def slope(self, method: EstimatorName, answers: Answers) -> SlopeFunction:
        """Derivatives of the objective that `method` maximises; EAP has none."""
        if method is EstimatorName.MLE:
            return likelihood_slope(answers)
        if method is EstimatorName.WLE:
            return weighted_slope(answers)
        return posterior_slope(answers, self.prior)

    def se_kind(self, method: EstimatorName) -> SeKind:
        """Kind of the standard error that is reported with a theta of that method."""
        return self.se or DEFAULT_SE[method]

    def conclude(
        self,
        point: Point,
        information: float,
        posterior: Posterior,
        responses: tuple[Response, ...] = (),
        search: Search | None = None,
    ) -> GridBelief:
        """A belief from its parts; `information` is the sum over the answered items at theta."""
        kind = self.se_kind(point.method)
        if kind is SeKind.POSTERIOR:
            se = posterior.sd
        else:
            precision = self.prior.sd**-2 if kind is SeKind.INFORMATION_WITH_PRIOR else 0.0
            information += precision
            se = 1 / math.sqrt(information) if information > 0 else math.inf
        return GridBelief(
            point.theta, se, point.method, point.at_bound, kind, posterior, responses, search
        )


def effective_answers(bank: ItemBank, theta: float, scores: Mapping[int, Sequence[float]]) -> float:
    """How many single answers the mean of several answers to an item counts as, 1 or more.

    n answers to one item are less informative than answers to n items, because the examinee's
    knowledge of this item stays the same. Let P be the item's curve at theta. The probability p of
    a right answer varies between items with variance rho P Q around P. Answers to one item vary
    with p (1 - p), which is (1 - rho) P Q on average; the answers show this variance within items.
    The mean of n answers then has the variance P Q (rho + (1 - rho) / n), and one answer has P Q.
    The mean counts as n / (1 + (n - 1) rho) answers: 1 if repeated answers never differ, n if they
    are independent given theta.

    Args:
        bank: The items.
        theta: Ability, logits.
        scores: Scores of the answers to each item, by position of the item.

    Source: Kish (1965), Survey Sampling, on the design effect of clusters.
    """
    repeated = {item: given for item, given in scores.items() if len(given) > 1}
    if not repeated:
        return 1.0
    items = np.array(list(repeated), dtype=np.intp)
    total = float(bank.model.score_moments(bank.parameters.take(items), theta)[1].sum())
    within = sum(float(np.var(given, ddof=1)) for given in repeated.values())
    rho = 1 - min(within / (total + _DOUBT), 1.0)
    # The mean of 1 / n over items: an item with fewer answers counts as fewer, one with 1 as 1.
    mean = sum(1 / len(given) for given in scores.values()) / len(scores)
    return 1 / (rho + (1 - rho) * mean)

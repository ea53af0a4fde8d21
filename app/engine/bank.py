"""Calibrated item banks: item parameters by position, item ids, and the theta scale."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import chain, islice
from typing import NewType

import numpy as np
from numpy.typing import ArrayLike

from app.engine.models.base import BoolArray, FloatArray, IntArray, ItemParameters, ResponseModel
from app.engine.models.continuous import CONTINUOUS
from app.engine.models.logistic import LOGISTIC
from app.engine.models.multidimensional import MultidimensionalModel, standardised
from app.errors import FieldProblem, ItemBankError, UnknownNameError

__all__ = ["DEFAULT_SCALE", "FloatArray", "IntArray", "ItemBank", "ItemIndex"]

ItemIndex = NewType("ItemIndex", int)
"""Position of an item in a bank; never an id."""

DEFAULT_SCALE = "logit"
MAX_PROBLEMS = 50
#: Largest absolute slope or intercept; with much larger ones the squared information overflows.
LARGEST = 1e9
#: Smallest dispersion: with less, no grid can hold the posterior. An imported slope that is not 0
#: is as far from 0, above or below: a smaller one gives a difficulty without meaning.
SMALLEST = 1e-9
_HINT_POOL = 10_000  # ids searched for a near miss: enough to help, cheap on the largest banks


#: Number of faults of one kind, and the faults.
_Faults = tuple[int, Iterator[FieldProblem]]


@dataclass(frozen=True, eq=False)
class ItemBank:
    """Items with parameters on one theta scale.

    Slopes of zero or less are allowed, because published banks have such items; `lint` reports
    them and quarantine keeps them out of selection.

    Attributes:
        a: Discriminations, shape (n_items,).
        intercept: Logits at theta = 0, shape (n_items,).
        c: Lower asymptotes, shape (n_items,).
        d: Upper asymptotes, shape (n_items,).
        item_ids: Ids of the items, in the order of the arrays.
        scale: Name of the theta scale; only estimates on one scale are comparable.
        model: Response model of the items.
        k: Dispersions of continuous scores, shape (n_items,); ones in other models, and if left
            out.
        abilities: Loadings on several abilities, and the population; None if the bank measures one
            ability. With loadings, the other parameters are those of the main ability alone.
        n_items: Number of items.

    Raises:
        ItemBankError: No items, unequal lengths, repeated ids, a number that is not finite, or an
            item without 0 <= c < d <= 1 and k >= 1e-9. Every faulty item is listed in `problems`,
            up to a maximum number.
    """

    a: FloatArray
    intercept: FloatArray
    c: FloatArray
    d: FloatArray
    item_ids: tuple[str, ...]
    scale: str = DEFAULT_SCALE
    model: ResponseModel = LOGISTIC
    k: FloatArray = field(default_factory=lambda: np.ones(()))
    abilities: MultidimensionalModel | None = None
    parameters: ItemParameters = field(init=False, repr=False)
    n_items: int = field(init=False, repr=False)
    _positions: dict[str, ItemIndex] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        item_ids = tuple(self.item_ids)
        own_k = np.ndim(self.k) > 0
        k = self.k if own_k else np.ones(len(item_ids))
        arrays = {
            name: _column(name, values)
            for name, values in zip(
                ItemParameters._fields, (self.a, self.intercept, self.c, self.d, k), strict=True
            )
        }
        _check(arrays, item_ids)
        for name, values in arrays.items():
            object.__setattr__(self, name, values)
        object.__setattr__(self, "item_ids", item_ids)
        object.__setattr__(self, "n_items", len(item_ids))
        if self.abilities is not None and self.abilities.items.a.size != len(item_ids):
            raise ItemBankError(
                f"Loadings need one row for each of {len(item_ids)} items, got "
                f"{self.abilities.items.a.size}."
            )
        if not own_k:  # a single 1 for all items is fastest
            del arrays["k"]
        object.__setattr__(self, "parameters", ItemParameters(**arrays))
        positions = {item_id: ItemIndex(i) for i, item_id in enumerate(item_ids)}
        object.__setattr__(self, "_positions", positions)

    @property
    def columns(self) -> dict[str, FloatArray]:
        """The parameters of the bank's model by name; only continuous scores have k."""
        return {name: getattr(self, name) for name in self.model.columns}

    @classmethod
    def from_intercepts(
        cls,
        *,
        a: ArrayLike,
        intercept: ArrayLike,
        c: ArrayLike | None = None,
        d: ArrayLike | None = None,
        k: ArrayLike | None = None,
        item_ids: Sequence[str] | None = None,
        scale: str = DEFAULT_SCALE,
    ) -> "ItemBank":
        """Bank from slopes and intercepts; c defaults to 0, d to 1, ids to "1", "2", ...

        With dispersions k its model is that of continuous scores, otherwise the logistic model.
        """
        slopes = _column("a", a)
        return cls(
            a=slopes,
            intercept=_column("intercept", intercept),
            c=np.zeros_like(slopes) if c is None else _column("c", c),
            d=np.ones_like(slopes) if d is None else _column("d", d),
            item_ids=_numbered(len(slopes)) if item_ids is None else tuple(item_ids),
            scale=scale,
            model=LOGISTIC if k is None else CONTINUOUS,
            k=np.ones(()) if k is None else _column("k", k),
        )

    @classmethod
    def from_columns(
        cls,
        item_ids: Sequence[str],
        columns: Mapping[str, FloatArray],
        *,
        scale: str = DEFAULT_SCALE,
    ) -> "ItemBank":
        """Bank from columns of parameters; other columns are ignored."""
        own = {name: columns[name] for name in LOGISTIC.columns}
        return cls.from_intercepts(**own, k=columns.get("k"), item_ids=item_ids, scale=scale)

    @classmethod
    def from_difficulties(
        cls,
        *,
        a: ArrayLike,
        b: ArrayLike,
        c: ArrayLike | None = None,
        d: ArrayLike | None = None,
        k: ArrayLike | None = None,
        item_ids: Sequence[str] | None = None,
        scale: str = DEFAULT_SCALE,
    ) -> "ItemBank":
        """Bank from slopes and difficulties b (logits); otherwise as `from_intercepts`."""
        slopes, difficulties = _column("a", a), _column("b", b)
        ids = _numbered(len(slopes)) if item_ids is None else tuple(item_ids)
        _check_lengths({"a": slopes, "b": difficulties}, ids)
        _raise_if_any(_not_finite("a", slopes, ids), _not_finite("b", difficulties, ids))
        with np.errstate(over="ignore"):  # an infinite intercept is refused below, with its item
            intercepts = -slopes * difficulties
        return cls.from_intercepts(
            a=slopes, intercept=intercepts, c=c, d=d, k=k, item_ids=ids, scale=scale
        )

    @classmethod
    def from_abilities(
        cls,
        abilities: MultidimensionalModel,
        item_ids: Sequence[str],
        *,
        scale: str = DEFAULT_SCALE,
    ) -> "ItemBank":
        """Bank of several abilities; its slopes `a` are those along the main one."""
        items = abilities.items
        return cls(
            a=items.slopes @ abilities.composite,
            intercept=items.intercept,
            c=np.zeros_like(items.intercept),
            d=np.ones_like(items.intercept),
            item_ids=tuple(item_ids),
            scale=scale,
            abilities=abilities,
        )

    def standardised(self) -> "ItemBank":
        """The bank in abilities that are standard normal, as files of banks hold them."""
        if self.abilities is None:
            return self
        return ItemBank.from_abilities(
            standardised(self.abilities), self.item_ids, scale=self.scale
        )

    @property
    def b(self) -> FloatArray:
        """Difficulties -intercept / a in logits; NaN where a is 0 and no difficulty exists."""
        flat = self.a == 0
        return np.where(flat, np.nan, -self.intercept / np.where(flat, 1.0, self.a))

    def index_of(self, item_id: str) -> ItemIndex:
        """Position of an item.

        Raises:
            UnknownNameError: The item is unknown; the message names similar ids.
        """
        try:
            return self._positions[item_id]
        except KeyError:
            pool = list(islice(self.item_ids, _HINT_POOL))
            near = get_close_matches(item_id, pool, n=5) or pool[:5]
            raise UnknownNameError("item", item_id, near) from None

    def open_items(self, asked: Collection[int], active: BoolArray | None) -> BoolArray:
        """Mask of the items that are active and not yet asked, shape (n_items,).

        Args:
            asked: Positions of the items asked so far.
            active: Mask of the items in use, shape (n_items,); None means all.
        """
        mask = np.ones(self.n_items, dtype=np.bool_) if active is None else active.copy()
        mask[list(asked)] = False
        return mask

    def take(self, items: IntArray) -> "ItemBank":
        """The bank of some of the items, by position."""
        some = self.parameters.take(items)
        return replace(
            self,
            a=some.a,
            intercept=some.intercept,
            c=some.c,
            d=some.d,
            k=some.k,
            item_ids=tuple(self.item_ids[i] for i in items),
            abilities=self.abilities and self.abilities.take(items),
        )

    def expected_score(
        self, theta: ArrayLike, items: IntArray | Sequence[int] | None = None
    ) -> FloatArray:
        """Expected scores, shape (*theta.shape, n_items)."""
        return self.model.expected_score(self._some(items), _outer(theta))

    def information(
        self, theta: ArrayLike, items: IntArray | Sequence[int] | None = None
    ) -> FloatArray:
        """Fisher information in 1/logit^2, shape (*theta.shape, n_items)."""
        return self.model.information(self._some(items), _outer(theta))

    def printed_information(
        self, theta: ArrayLike, items: IntArray | Sequence[int] | None = None
    ) -> FloatArray:
        """a^2 P (1 - P), shape (*theta.shape, n_items).

        It is exact for the 2PL; ATLAS eq. 2 prints it for the 3PL, too.
        """
        expected = self.expected_score(theta, items)
        a = self.a if items is None else self.a[np.asarray(items, dtype=np.intp)]
        information: FloatArray = a**2 * expected * (1.0 - expected)
        return information

    def log_likelihood(
        self, theta: ArrayLike, items: IntArray | Sequence[int], scores: ArrayLike
    ) -> FloatArray:
        """Log-likelihood of `scores` (one per item) at each theta, shape theta.shape."""
        terms = self.model.log_likelihood(
            self._some(items), _outer(theta), np.asarray(scores, dtype=np.float64)
        )
        total: FloatArray = terms.sum(axis=-1)
        return total

    def _some(self, items: IntArray | Sequence[int] | None) -> ItemParameters:
        if items is None:
            return self.parameters
        return self.parameters.take(np.asarray(items, dtype=np.intp))


def _outer(theta: ArrayLike) -> FloatArray:
    return np.asarray(theta, dtype=np.float64)[..., None]


def _numbered(n_items: int) -> tuple[str, ...]:
    return tuple(str(i + 1) for i in range(n_items))


def _column(name: str, values: ArrayLike) -> FloatArray:
    try:
        column = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as exc:
        raise ItemBankError(f"{name}: expected numbers, got {values!r:.200}.") from exc
    if column.ndim != 1:
        raise ItemBankError(f"{name}: expected one number per item, got shape {column.shape}.")
    column.flags.writeable = False
    return column


def _check(arrays: dict[str, FloatArray], item_ids: tuple[str, ...]) -> None:
    _check_lengths(arrays, item_ids)
    c, d, k = arrays["c"], arrays["d"], arrays["k"]
    finite = np.isfinite(c) & np.isfinite(d)
    first: dict[str, int] = {}
    again = np.array([first.setdefault(item_id, i) != i for i, item_id in enumerate(item_ids)])
    _raise_if_any(
        _faults(
            again,
            "/id",
            lambda i: f"item {item_ids[i]!r} occurs already at {first[item_ids[i]]}",
        ),
        *(_not_finite(name, values, item_ids) for name, values in arrays.items()),
        *(_too_large(name, arrays[name], item_ids) for name in ("a", "intercept")),
        _faults(
            finite & ~((c >= 0) & (c < d) & (d <= 1)),
            "",
            lambda i: f"item {item_ids[i]!r}: need 0 <= c < d <= 1, got c={c[i]}, d={d[i]}",
        ),
        _faults(
            k < SMALLEST,
            "",
            lambda i: f"item {item_ids[i]!r}: need k >= {SMALLEST:g}, got k={k[i]}",
        ),
    )


def _check_lengths(arrays: dict[str, FloatArray], item_ids: tuple[str, ...]) -> None:
    if not item_ids:
        raise ItemBankError("A bank needs at least one item, got none.")
    lengths = {name: len(values) for name, values in arrays.items()} | {"item_ids": len(item_ids)}
    if len(set(lengths.values())) > 1:
        raise ItemBankError(f"All item parameters need one length, got {lengths}.")


def _not_finite(name: str, values: FloatArray, item_ids: tuple[str, ...]) -> _Faults:
    return _faults(
        ~np.isfinite(values),
        f"/{name}",
        lambda i: f"item {item_ids[i]!r}: {name} is {values[i]}, not a number",
    )


def _too_large(name: str, values: FloatArray, item_ids: tuple[str, ...]) -> _Faults:
    return _faults(
        np.isfinite(values) & (np.abs(values) > LARGEST),
        f"/{name}",
        lambda i: (
            f"item {item_ids[i]!r}: {name} is {values[i]:g}, expected at most {LARGEST:g} either "
            "way"
        ),
    )


def _faults(faulty: BoolArray, field_: str, detail: Callable[[int], str]) -> _Faults:
    places = np.flatnonzero(faulty)
    return len(places), (FieldProblem(f"/items/{i}{field_}", detail(i)) for i in places.tolist())


def _raise_if_any(*faults: _Faults) -> None:
    count = sum(n for n, _ in faults)
    if not count:
        return
    # Only the listed problems are created: a file may have a million of them.
    problems = list(islice(chain.from_iterable(some for _, some in faults), MAX_PROBLEMS))
    more = f" (and {count - 1} more)" if count > 1 else ""
    raise ItemBankError(
        f"Item parameters cannot be used: {problems[0].detail}{more}.", problems=problems
    )

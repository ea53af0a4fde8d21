"""Several abilities, score models and score curves as JSON that is stored with a bank version.

    {"abilities": {"nested", "dimensions", "items": [keys], "loadings", "population"},
     "prediction": {"items": [keys], "mean", "factors", "noise", "targets": {tag: {...}}},
     "curves": {"items": [keys], "n_reference", "abilities", "slopes", "intercept", "dispersion",
                "population": [quantiles], "level": [mean, sd, n_items], "errors": {}}}

Arrays are base64 of compressed 32-bit floats: a bank of 5,000 items takes about a megabyte. Items
are named, because a version may leave some out or order them in its own way.
"""

import base64
import math
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit

from app.engine.bank import FloatArray, ItemBank
from app.engine.models.multidimensional import Loadings, MultidimensionalModel, Population
from app.engine.prediction.learned_curves import LearnedCurves, ReferencePopulation
from app.engine.prediction.score_curves import ScoreCurves
from app.engine.prediction.score_estimate import logit_of
from app.engine.prediction.score_model import ScoreModel, Target, Widths, most_factors, reduced
from app.engine.prediction.targets import WHOLE_BANK, target_weights

ABILITIES, PREDICTION, CURVES = "abilities", "prediction", "curves"

#: Most numbers in one array: a hundred for each of 200,000 items.
_MOST_NUMBERS = 20_000_000
#: Assumed number of reference models of a version that does not store it.
_FEW = 20


def abilities_to_dict(abilities: MultidimensionalModel, item_ids: Sequence[str]) -> dict[str, Any]:
    """JSON of loadings, discriminations and population; the items themselves hold intercepts."""
    items = abilities.items
    return {
        "nested": items.nested,
        "dimensions": items.loadings.shape[1],
        "names": list(items.names),
        "items": list(item_ids),
        "a": packed(items.a),
        "loadings": packed(items.loadings),
        "population": {
            "mean": abilities.population.mean.tolist(),
            "covariance": abilities.population.covariance.tolist(),
        },
    }


def prediction_to_dict(targets: Mapping[str, Target], item_ids: Sequence[str]) -> dict[str, Any]:
    """JSON of a score model and its targets' widths; very large banks keep the largest factors."""
    model = targets[WHOLE_BANK].model
    factors = reduced(model.factors, most_factors(model.mean.size))
    # The variance of each item stays the same.
    noise = model.variance - np.einsum("rj,rj->j", factors, factors)
    return {
        "items": list(item_ids),
        "mean": packed(model.mean),
        "factors": packed(factors),
        "noise": packed(noise),
        "targets": {
            name: {"counts": list(target.widths.counts), "half": list(target.widths.half)}
            for name, target in targets.items()
        },
    }


def with_abilities(bank: ItemBank, knowledge: Mapping[str, Any]) -> ItemBank:
    """The bank with the abilities that are stored with its version.

    It stays a bank of one ability if none are stored, or if those of an item are missing: items
    may have been added to a version since its calibration.
    """
    stored, at, n = _stored(ABILITIES, knowledge, bank)
    if at is None:
        return bank
    loadings = unpacked(stored["loadings"], n, int(stored["dimensions"]))[at]
    a = unpacked(stored["a"], n)[at]
    abilities = MultidimensionalModel(
        Loadings(a, bank.intercept, loadings, bool(stored["nested"])),
        Population(
            np.array(stored["population"]["mean"]), np.array(stored["population"]["covariance"])
        ),
    )
    return replace(bank, k=bank.parameters.k, abilities=abilities)


def tasks_in(knowledge: Mapping[str, Any]) -> frozenset[str]:
    """The tags whose predicted scores have learned widths of their own."""
    return frozenset(knowledge.get(PREDICTION, {}).get("targets", ())) - {WHOLE_BANK}


def targets_of(
    bank: ItemBank, knowledge: Mapping[str, Any], tags: Sequence[Collection[str]]
) -> dict[str, Target]:
    """The scores that a version can predict: of the whole bank, and of each tag of its items.

    A tag without learned widths of its own takes those of the whole bank. The result is empty if
    an item of the bank is missing in the stored model.
    """
    stored, at, n = _stored(PREDICTION, knowledge, bank)
    if at is None:
        return {}
    model = ScoreModel(
        unpacked(stored["mean"], n)[at],
        unpacked(stored["factors"], -1, n)[:, at],
        unpacked(stored["noise"], n)[at],
    )
    names = sorted({tag for item in tags for tag in item} - {WHOLE_BANK})
    targets = {}
    for name in (WHOLE_BANK, *names):
        entry = stored["targets"].get(name) or stored["targets"][WHOLE_BANK]
        widths = Widths(tuple(map(int, entry["counts"])), tuple(map(float, entry["half"])))
        targets[name] = Target(model, target_weights(bank, {name: 1.0}, tags), widths)
    return targets


def curves_to_dict(learned: LearnedCurves, item_ids: Sequence[str]) -> dict[str, Any]:
    """JSON of the curves of the items with these keys, in this order."""
    curves, population = learned.curves, learned.population
    return {
        "items": list(item_ids),
        "n_reference": learned.n_reference,
        "abilities": len(curves.slopes),
        "slopes": packed(curves.slopes),
        "intercept": packed(curves.intercept),
        "dispersion": curves.dispersion,
        "population": [] if population is None else list(population.quantiles),
        "level": population and [population.mean, population.sd, population.n_items],
        "errors": {},  # readers of `simulate --json` may expect it
    }


def curves_of(bank: ItemBank, knowledge: Mapping[str, Any]) -> LearnedCurves | None:
    """The stored curves of a bank's items; None if those of an item are missing."""
    stored, at, n = _stored(CURVES, knowledge, bank)
    if at is None:
        return None
    slopes = unpacked(stored["slopes"], int(stored["abilities"]), n)[:, at]
    intercept = unpacked(stored["intercept"], n)[at]
    curves = ScoreCurves(slopes, intercept, float(stored["dispersion"]))
    return LearnedCurves(
        curves=curves,
        n_reference=int(stored.get("n_reference", _FEW)),
        population=_population(stored, curves),
    )


def _population(stored: Mapping[str, Any], curves: ScoreCurves) -> ReferencePopulation | None:
    """The stored population; where its level is not stored, the curves tell about where it is."""
    if not stored.get("population"):
        return None
    if (level := stored.get("level")) is None:
        logits = [
            logit_of(float(expit(z * curves.slopes[0] + curves.intercept).mean()))
            for z in (-1.0, 0.0, 1.0)
        ]
        level = logits[1], (logits[2] - logits[0]) / 2.0, curves.intercept.size
    mean, sd, n_items = level
    return ReferencePopulation(
        quantiles=tuple(map(float, stored["population"])), mean=mean, sd=sd, n_items=n_items
    )


def _stored(
    part: str, knowledge: Mapping[str, Any], bank: ItemBank
) -> tuple[Mapping[str, Any], list[int] | None, int]:
    """A part of the knowledge, where the bank's items are in it, and how many items it has.

    The positions are None if nothing is stored, or nothing of some item.
    """
    stored = knowledge.get(part)
    if stored is None:
        return {}, None, 0
    at = {key: position for position, key in enumerate(stored["items"])}
    found = [at[key] for key in bank.item_ids if key in at]
    return stored, found if len(found) == bank.n_items else None, len(stored["items"])


def packed(values: FloatArray) -> str:
    """Pack an array as text: base64 of compressed 32-bit floats."""
    return base64.b64encode(zlib.compress(values.astype("<f4").tobytes())).decode()


def unpacked(text: str, *shape: int) -> FloatArray:
    """Unpack an array that `packed` wrote; the first length may be -1, for any length.

    The text is not trusted: a small one could expand to fill the memory.

    Raises:
        ValueError: The array has another shape, or it is too large.
    """
    most = 4 * (_MOST_NUMBERS if shape[0] < 0 else min(math.prod(shape), _MOST_NUMBERS))
    numbers = zlib.decompressobj().decompress(base64.b64decode(text), most + 1)
    if len(numbers) > most:
        raise ValueError(f"an array is larger than {shape}")
    return np.frombuffer(numbers, "<f4").astype(np.float64).reshape(shape)

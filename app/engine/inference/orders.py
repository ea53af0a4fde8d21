"""Rank correlations of Spearman and Kendall.

`scipy.stats` has them, too, but it takes longer to import than most callers take to run.
"""

import numpy as np

from app.engine.models.base import FloatArray


def ranks(values: FloatArray) -> FloatArray:
    """Ranks from 1 for the smallest value; equal values share their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2.0)[place], dtype=np.float64)


def spearman(first: FloatArray, second: FloatArray) -> float | None:
    """Spearman's correlation of the ranks; None if either is constant."""
    first, second = ranks(first), ranks(second)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return float(np.corrcoef(first, second)[0, 1])


def kendall(first: FloatArray, second: FloatArray) -> float | None:
    """Kendall's tau-b; None if either is constant."""
    balance = untied_first = untied_second = 0.0
    for k in range(len(first) - 1):
        of_first = np.sign(first[k + 1 :] - first[k])
        of_second = np.sign(second[k + 1 :] - second[k])
        balance += float(of_first @ of_second)
        untied_first += float(of_first @ of_first)
        untied_second += float(of_second @ of_second)
    untied = (untied_first * untied_second) ** 0.5
    return balance / untied if untied else None

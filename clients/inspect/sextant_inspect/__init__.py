"""Sextant for Inspect: the score of a task from a few samples that Sextant chooses."""

from sextant_client import Examinee
from sextant_inspect.adaptive import adaptive

__all__ = ["Examinee", "adaptive"]

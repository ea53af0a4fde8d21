"""Sextant for Inspect: a task's score from the few samples that Sextant chooses."""

from sextant_client import Examinee
from sextant_inspect.adaptive import adaptive

__all__ = ["Examinee", "adaptive"]

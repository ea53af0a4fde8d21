"""Sextant: how able a language model is, by as few benchmark items as possible."""

from typing import Final

#: Under which its version is known to Python.
DISTRIBUTION: Final = "sextant-server"

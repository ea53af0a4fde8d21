"""Sextant measures how able a language model is with as few benchmark items as possible."""

from typing import Final

#: Name of the installed distribution, which carries the version.
DISTRIBUTION: Final = "sextant-server"

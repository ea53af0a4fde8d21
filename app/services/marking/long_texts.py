"""Texts that are too long to be stored whole: both ends stay, and a hash of the whole."""

import hashlib
import re
from typing import Final

#: Characters of a text that are stored at most; answers that are worth something are far below.
MAX_CHARS: Final = 256 * 1024
_END: Final = MAX_CHARS // 2
_CUT = re.compile(r"\n\[\.\.\. [0-9]+ characters left out; SHA-256 of the whole: [0-9a-f]{64}\]\n")


def cut(text: str | None) -> str | None:
    """A text as it is stored."""
    if text is None or len(text) <= MAX_CHARS:
        return text
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    n_lost = len(text) - 2 * _END
    note = f"\n[... {n_lost} characters left out; SHA-256 of the whole: {digest}]\n"
    return text[:_END] + note + text[-_END:]


def is_cut(text: str | None) -> bool:
    """Whether a stored text is not the whole one: it cannot be marked again."""
    return text is not None and len(text) > MAX_CHARS and _CUT.match(text, _END) is not None

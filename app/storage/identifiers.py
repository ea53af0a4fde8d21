"""Identifiers: a prefix for the kind of resource, then a body that sorts by time."""

import secrets
import time
from threading import Lock

# Crockford's base 32 in lower case, without i, l, o and u; texts sort like their numbers.
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH = 26
_RANDOM_BITS = 80
#: No id is older than this, 2025-01-01.
_FIRST_MS = 1_735_689_600_000
#: Clocks of different processes do not differ by more than this.
_CLOCKS_APART_MS = 60_000

_lock = Lock()
_latest = 0


def new_id(prefix: str) -> str:
    """`prefix`, an underscore and 26 characters that sort by time of creation.

    The body is a ULID: 48 bits of milliseconds since 1970, then 80 random bits. Within a process,
    each id is greater than the one before, even within a millisecond or after the clock is set
    back. So resources are listed in their order of creation.
    """
    global _latest
    moment = time.time_ns() // 1_000_000 << _RANDOM_BITS
    with _lock:
        if moment >> _RANDOM_BITS > _latest >> _RANDOM_BITS:
            _latest = moment | secrets.randbits(_RANDOM_BITS)
        else:
            _latest += 1
        value = _latest
    body = "".join(_DIGITS[value >> shift & 31] for shift in range(5 * (_LENGTH - 1), -1, -5))
    return f"{prefix}_{body}"


def may_name(text: str, like: str) -> bool:
    """Whether `new_id` can have made the id `text` by now, with the prefix of the id `like`."""
    prefix, _, body = text.rpartition("_")
    if prefix != like.rpartition("_")[0] or len(body) != _LENGTH or not set(body) <= set(_DIGITS):
        return False
    value = sum(_DIGITS.index(digit) << 5 * place for place, digit in enumerate(reversed(body)))
    moment = value >> _RANDOM_BITS
    return _FIRST_MS <= moment <= time.time_ns() // 1_000_000 + _CLOCKS_APART_MS

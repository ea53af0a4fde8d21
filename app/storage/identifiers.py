"""Identifiers: a prefix that says what it names, then a time-sortable body."""

import secrets
import time

# Crockford's base 32 in lower case: no i, l, o, u; sorts as its numbers do.
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH = 26
_RANDOM_BITS = 80


def new_id(prefix: str) -> str:
    """`prefix`, an underscore and 26 characters that sort by time of creation.

    The body is a ULID: 48 bits of milliseconds since 1970, then 80 random bits.
    """
    value = (time.time_ns() // 1_000_000) << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    body = "".join(_DIGITS[value >> shift & 31] for shift in range(5 * (_LENGTH - 1), -1, -5))
    return f"{prefix}_{body}"

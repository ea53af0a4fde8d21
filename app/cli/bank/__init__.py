"""Commands of `sextant banks` that are modules of their own, and what they share."""

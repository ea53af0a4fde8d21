"""What `sextant` can be told: one module a noun or verb."""

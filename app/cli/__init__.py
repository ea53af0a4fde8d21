"""The `sextant` command."""

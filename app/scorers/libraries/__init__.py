"""Modules that take seconds to import; only helper processes import them."""

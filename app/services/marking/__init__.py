"""Marks for answers, also by scorers that call out."""

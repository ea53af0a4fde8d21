"""Scores on the whole bank, predicted from a part of it."""

"""Offline research: commands that work on files alone."""

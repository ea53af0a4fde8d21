"""Beliefs, predictions and stored knowledge of several abilities."""

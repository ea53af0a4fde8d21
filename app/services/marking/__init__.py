"""Scores of answers, including those of scorers that call endpoints."""

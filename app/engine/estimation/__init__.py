"""Estimates of theta."""

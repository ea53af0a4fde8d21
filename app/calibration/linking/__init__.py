"""Calibrations that share items or examinees: linked, joined, checked for drift."""

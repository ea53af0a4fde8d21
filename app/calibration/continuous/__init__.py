"""Calibration of continuous scores."""

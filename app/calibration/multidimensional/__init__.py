"""Calibration of the models of several abilities."""

"""Calibration of the logistic models of one ability."""

"""Calibrations of response sets, run in processes of their own."""

"""From a response matrix and a plan to all that is stored of a calibration."""

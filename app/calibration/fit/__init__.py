"""Model fit of a calibration, and accuracy of tests on its bank."""

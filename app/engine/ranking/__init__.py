"""Several examinees on one bank, put in order."""

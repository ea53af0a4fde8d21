"""Release gates: rules, the tests that decide them, and reports of the outcome."""

"""Gates of a release: rules, what decides them, and how the outcome is told."""

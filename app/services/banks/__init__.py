"""Banks, their items and their versions."""

"""Rankings of several endpoints on one budget."""

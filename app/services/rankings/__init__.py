"""Rankings of several examinees within one budget."""

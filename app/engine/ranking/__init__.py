"""Rankings of several examinees on one bank."""

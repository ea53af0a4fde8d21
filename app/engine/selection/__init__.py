"""Selection of the next item."""

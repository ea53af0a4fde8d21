"""What is stored, as values: what storage takes and gives, and all above it speaks of."""

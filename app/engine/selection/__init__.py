"""Which item to ask next."""

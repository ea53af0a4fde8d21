"""Make the items of a bank from recorded results, with the exact texts that were sent."""

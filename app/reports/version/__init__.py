"""The report of a bank version: what it can do and what is wrong with it."""

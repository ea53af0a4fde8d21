"""What is known of a bank version, as one page for people: a value in, HTML out. Pure."""

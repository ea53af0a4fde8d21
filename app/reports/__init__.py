"""What is known of a bank version or a session, as a page for people: values in, HTML out. Pure."""

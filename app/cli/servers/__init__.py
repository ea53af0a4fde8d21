"""How commands reach a server: a running one, one in this process, or the database alone."""

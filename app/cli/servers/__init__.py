"""How commands reach a server: one that runs, one of their own, or the database alone."""

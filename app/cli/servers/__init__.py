"""How commands reach a server: a running one, or the API in this process."""

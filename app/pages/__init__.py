"""The service as pages: HTML over the services that REST uses, for people with a browser."""

"""Stored data as values, which the storage and all layers above it share."""

"""Queries: one repository for each kind of resource. They return domain values, never commit."""

"""Endpoints: kept, opened, and called within their rate limits."""

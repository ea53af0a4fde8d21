"""Endpoints: store them, open them, and call them within their rate limits."""

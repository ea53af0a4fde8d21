"""Test designs: read from JSON, written as JSON, and built into tests."""

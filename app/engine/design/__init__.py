"""Test designs: JSON in, JSON out, and the test itself."""

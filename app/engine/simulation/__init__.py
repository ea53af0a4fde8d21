"""Tests on answers that are known beforehand, and what they teach."""

"""Tests of several abilities."""

"""Simulated tests on recorded or drawn answers, and what is learned from them."""

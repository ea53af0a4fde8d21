"""Comparisons, leaderboards and gates over ended sessions, and forecasts of new sessions."""

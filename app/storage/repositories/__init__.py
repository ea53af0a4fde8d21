"""Queries. One repository a noun: questions in, domain values out; none of them commits."""

"""Inference from results: differences, decisions and person fit."""

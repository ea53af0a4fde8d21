"""Calls to language models: prompts in, completions or classified errors out."""

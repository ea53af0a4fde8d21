"""Banks that can be installed by name: where their files lie and how they belong together."""

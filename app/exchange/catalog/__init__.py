"""The catalogue of banks that can be installed by name: where their files are, and their form."""

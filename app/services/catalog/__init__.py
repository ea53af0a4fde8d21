"""Banks installed by name: fetched, joined, checked, and made in one transaction."""

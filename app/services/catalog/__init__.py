"""Install banks by name: fetch files, join and check them, write a bank in one transaction."""

"""HTML pages for people with a browser, over the same services that REST uses."""

"""Results of bank versions and sessions as pages for people: pure functions from values to HTML."""

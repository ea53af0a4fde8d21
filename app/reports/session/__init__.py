"""The result of one test as a page for people who know no item response theory."""

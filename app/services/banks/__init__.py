"""Banks, their items, versions and files.

Banks are named by id or name, versions by number, id or `latest`, the default. What takes such a
name raises `NotFoundError` where there is no such thing.
"""

"""Commands of `sextant banks` that have their own modules, and what they share."""

#: Stands for a file's content in a request body, where this process reads the file from disk.
UNREAD = {"name": "from disk", "content": "-"}

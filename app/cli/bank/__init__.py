"""Commands of `sextant banks` that are modules of their own, and what they share."""

#: In place of a file's content in what a server would be sent, where the file is read here.
UNREAD = {"name": "from disk", "content": "-"}

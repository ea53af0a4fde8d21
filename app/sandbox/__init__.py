"""Processes for what users send and for what takes long.

`pool` forks a child for each piece of work on untrusted input, within limits of memory, time and
output; `programs` starts one of our own for minutes of work, such as a calibration or a download.
Both are killed when nobody waits for them any more, and end with this process. What they give back
is JSON and plain bytes.
"""

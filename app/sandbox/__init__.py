"""Separate processes for untrusted input and for long work.

`pool` forks a child for each piece of work on untrusted input, within limits of memory, time and
output. `programs` starts a program of ours for minutes of work, such as a calibration or a
download. Both are killed when no task waits for them, and end with this process. They return JSON
and plain bytes.
"""

"""Stand-in for `uv` in documented commands: see `tests/servers/preloaded.py`."""

import json
import os
import signal
import socket
import struct
import sys
from pathlib import Path

SERVER, UV = sys.argv[1:3]
arguments = sys.argv[3:]
command = [word for word in arguments[1:] if word not in ("--no-dev", "--extra", "embedded")]
if arguments[:1] != ["run"]:
    os.execv(UV, [UV, *arguments])
if command[0] != "sextant" and command[:2] != ["python", "-m"]:
    os.execvp(command[0], command)

with socket.socket(socket.AF_UNIX) as server:
    server.connect(SERVER)
    request = {"command": command, "directory": str(Path.cwd()), "environment": dict(os.environ)}
    sent = json.dumps(request).encode()
    socket.send_fds(server, [struct.pack("!I", len(sent))], [0, 1, 2])
    server.sendall(sent)
    server.recv(4)  # its process id
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: server.sendall(bytes([received])))
    (code,) = struct.unpack("!i", server.recv(4))
sys.exit(code if code >= 0 else 128 - code)

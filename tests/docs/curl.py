"""The part of curl that the docs use, for machines without it."""

import argparse
import sys
import urllib.error
import urllib.request
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("-s", "--silent", action="store_true")
parser.add_argument("-S", "--show-error", action="store_true")
parser.add_argument("-f", "--fail", action="store_true")
parser.add_argument("-N", "--no-buffer", action="store_true")
parser.add_argument("-X", "--request")
parser.add_argument("-H", "--header", action="append", default=[])
parser.add_argument("-d", "--data")
parser.add_argument("url")
given = parser.parse_args()
if given.data and given.data.startswith("@"):
    given.data = Path(given.data[1:]).read_text(encoding="utf-8")
headers = dict(header.split(": ", 1) for header in given.header)
request = urllib.request.Request(
    given.url,
    headers=headers,
    method=given.request,
    data=given.data.encode() if given.data else None,
)
try:
    with urllib.request.urlopen(request) as answer:
        for line in answer:
            sys.stdout.write(line.decode())
            sys.stdout.flush()
except urllib.error.HTTPError as error:
    if given.fail:
        sys.exit(22)
    sys.stdout.write(error.read().decode())
except urllib.error.URLError:
    sys.exit(7)

"""A server that says what it is told to, byte for byte: python3 -I -S raw.py HEARD CONTROL [modern]

Every line that it reads is appended to the file HEARD. A line that has `"say":"…"` in it is answered with those bytes
(base64); any other request with `{}`, what is not JSON with an error, and the rest with nothing. Some methods are its own:

  hold             is not answered: its id and its progress token are kept, and `$ID0`, `$TOKEN0` and so on stand for
                   them in whatever is said later; `$ID` stands for the id of the line that is answered
  deaf             is not answered: its standard input is closed, which is appended as `closed`, and it lives on
  pad {bytes}      is answered with a line of that many bytes
  flood {lines, bytes}  notifies so often, each time with a number and so many bytes, and then answers

With a third argument `modern` it answers `server/discover` as a server of MCP 2026-07-28, and `tools/list` by two pages, of
which the second has the tool `query`: it wants its argument `region` in the header `Mcp-Param-Region`.

Each line that is written to the FIFO CONTROL is said as it is, also while nobody is there to ask for it.
"""
import base64
import json
import os
import re
import sys
import threading

ID = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|[^,}\s\]]+)')
SAY = re.compile(rb'"say"\s*:\s*"([^"]*)"')
TOKEN = re.compile(rb'"progressToken"\s*:\s*("[^"]*"|[^,}\s]+)')
NUMBER = re.compile(rb'"(lines|bytes)":(\d+)')
held = []
writing = threading.Lock()


def say(text, own=b""):
    for n, (identity, token) in enumerate(held):
        text = text.replace(b"$ID%d" % n, identity).replace(b"$TOKEN%d" % n, token)
    with writing:
        sys.stdout.buffer.write(text.replace(b"$ID", own) + b"\n")
        sys.stdout.buffer.flush()


def control(path):
    # Open for writing too, so that it never ends.
    with os.fdopen(os.open(path, os.O_RDWR), "rb") as lines:
        for line in lines:
            say(line.rstrip(b"\n"))


def answer(line):
    identity = ID.search(line)
    own = identity.group(1) if identity else b""
    told = SAY.search(line)
    given = {name: int(value) for name, value in NUMBER.findall(line[:4096])}
    if told:
        say(base64.b64decode(told.group(1)), own)
    elif b'"method":"hold"' in line:
        token = TOKEN.search(line)
        held.append((own, token.group(1) if token else b""))
    elif b'"method":"deaf"' in line:
        os.close(0)
        heard.write(b"closed\n")
        threading.Event().wait()
    elif b'"method":"pad"' in line:
        start, end = b'{"jsonrpc":"2.0","id":' + own + b',"result":{"pad":"', b'"}}'
        say(start + b"x" * (given[b"bytes"] - len(start) - len(end)) + end)
    elif b'"method":"flood"' in line:
        padding = b"x" * given[b"bytes"]
        for n in range(given[b"lines"]):
            say(b'{"jsonrpc":"2.0","method":"flood","params":{"n":%d,"x":"%s"}}' % (n, padding))
        say(b'{"jsonrpc":"2.0","id":' + own + b',"result":{}}')
    elif not is_json(line):
        say(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}')
    elif b'"initialize"' in line:
        info = b'"capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"raw","version":"1.0.0"}'
        say(b'{ "jsonrpc": "2.0",  "id":' + own + b',"result":{"protocolVersion":"2025-06-18",' + info + b"}}")
    elif b'"server/discover"' in line and "modern" in sys.argv:
        versions = b'"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"resultType":"complete"'
        say(b'{"jsonrpc":"2.0","id":' + own + b',"result":{' + versions + b"}}")
    elif b'"tools/list"' in line and "modern" in sys.argv:
        region = b'{"type":"string","x-mcp-header":"Region"}'
        query = b'{"name":"query","inputSchema":{"type":"object","properties":{"region":' + region + b"}}}"
        page = b'"tools":[' + query + b"]" if b'"cursor":"2"' in line else b'"tools":[],"nextCursor":"2"'
        say(b'{"jsonrpc":"2.0","id":' + own + b',"result":{' + page + b"}}")
    elif own and b'"method"' in line:
        say(b'{"jsonrpc":"2.0","id":' + own + b',"result":{}}')


def is_json(line):
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


heard = open(sys.argv[1], "ab", buffering=0)
threading.Thread(target=control, args=(sys.argv[2],), daemon=True).start()
for line in sys.stdin.buffer:
    heard.write(line)
    answer(line.rstrip(b"\n"))

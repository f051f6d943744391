"""FastMCP's proxy of several servers, on stdio: proxy.py FILE"""

import json
import sys

from fastmcp.server import create_proxy

with open(sys.argv[1]) as file:
    proxy = create_proxy(json.load(file))
proxy.run("stdio", show_banner=False)

"""What the benchmarks compare, and where it is: mcp-sessiond, and its peers in the versions that tests/hosts names."""

import json, os, pathlib, subprocess, sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(1, str(ROOT / "tests/hosts"))
import bundle_view, harness, mcp_proxy, supergateway

BINARY = pathlib.Path(os.environ.get("MCP_SESSIOND_BIN") or ROOT / "target/release/mcp-sessiond")
PROXY = mcp_proxy.PROXY
FASTMCP = bundle_view.FASTMCP_PYTHON
MODULES = ROOT / "tests/node/node_modules"
PORTER = MODULES / "mcporter/dist/cli.js"
EVERYTHING = MODULES / "@modelcontextprotocol/server-everything/dist/index.js"
SUPERGATEWAY = harness.INSTALLED / "supergateway/node_modules/supergateway"


def need(*paths):
    """Installs the peers, and ends the program if something else is missing."""
    if PROXY in paths:
        harness.install(harness.INSTALLED / "mcp_proxy", mcp_proxy.PACKAGE)
    if FASTMCP in paths:
        harness.install(FASTMCP.parents[1], bundle_view.FASTMCP_PACKAGE)
    if SUPERGATEWAY in paths:
        harness.install(harness.INSTALLED / "supergateway", supergateway.PACKAGE)
    for path in paths:
        if not path.exists():
            sys.exit(f"{sys.argv[0]}: {path} is missing; tests/bench/run builds and installs it")


def versions():
    """What is compared, by name."""
    of_npm = lambda directory: json.loads((directory / "package.json").read_text())["version"]
    said = lambda command: subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    run = lambda command: said(command).split()[-1]
    return {
        "mcp-sessiond": run(BINARY),
        "supergateway": of_npm(SUPERGATEWAY),
        "mcp-proxy": run(PROXY),
        "mcporter": of_npm(MODULES / "mcporter"),
        "Node": run("node").lstrip("v"),
        "Python": sys.version.split()[0],
    }

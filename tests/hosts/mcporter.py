"""mcporter's command line: one process, one call, of a server that its file names."""

import json

import over_http
import bundle_view
from harness import INSTALLED

NAME, PACKAGE = "mcporter", ("npm", "mcporter", "0.12.3")
NEEDS = bundle_view.NEEDS
MCPORTER = INSTALLED / "mcporter" / "node_modules" / ".bin" / "mcporter"


def url_call(world, url, token=None):
    """`mcporter config add`, then `mcporter call`."""
    config = world.project / "config" / "mcporter.json"
    config.unlink(missing_ok=True)
    header = ["--header", f"Authorization=Bearer {token}"] if token else []
    code, said = world.finish([MCPORTER, "config", "add", "counter", url, "--transport", "http", *header])
    world.check("`mcporter config add NAME URL` takes the address", code == 0, said)
    return world.finish([MCPORTER, "call", "counter.count", "--no-oauth", "--timeout", "30000"])


def ask(world, target, asks, is_direct):
    """A process for each ask. It has no prompts and no templates, and shows nothing of annotations."""
    which = "direct" if is_direct else "whole"
    config = world.root / f"{which}.json"
    entry = {"baseUrl": target.url} if target.url else {"command": target.command[0], "args": target.command[1:]}
    config.write_text(json.dumps({"mcpServers": {"asked": entry}, "imports": []}))

    def one(number, asked):
        name, arguments = asked.params.get("name"), json.dumps(asked.params.get("arguments", {}))
        options = {
            "tools/list": ["list", "asked", "--schema", "--json", "--timeout", "60000"],
            "resources/list": ["resource", "asked", "--json"],
            "resources/read": ["resource", "asked", asked.params.get("uri"), "--json"],
            "tools/call": ["call", "--server", "asked", "--tool", name, "--args", arguments, "--output", "raw", "--timeout", "60000"],
        }.get(asked.method)
        if options is None:
            return None
        code, out = world.finish([MCPORTER, "--config", config, *options], log=f"{which}-{number}")
        if asked.method in bundle_view.FIRST:
            listed = json.loads(out) if out else {}
            return {key: listed[key] for key in bundle_view.LISTS.values() if key in listed}
        return {"code": code, "said": out}
    return bundle_view.each(one, asks)


SCENARIOS = [*bundle_view.scenarios(ask, is_slow=True), *over_http.single_calls(url_call)]
OBSERVED = []

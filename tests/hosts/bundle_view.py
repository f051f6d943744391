"""What a client sees of several servers as one, against what it sees of each of them directly: names apart, the same.

A client here is a function, `ask(world, target, asks, is_direct)`, which asks a target (a command, or a URL), and returns an answer to each ask, with
what came before it. An ask is a method of MCP with its parameters; `None` is the answer of a client that has no such thing.
"""

import contextlib
import hashlib
import json
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from harness import HERE, INSTALLED, NODE, PROGRAM, until

# The real servers behind it, and what runs `every_kind.py`.
SERVERS_PACKAGE = ("npm", "@modelcontextprotocol/server-everything", "2026.8.31", "@modelcontextprotocol/server-memory", "2026.8.31")
FASTMCP_PACKAGE = ("pypi", "fastmcp", "4.2.3")
NEEDS = {"servers": SERVERS_PACKAGE, "fast_mcp": FASTMCP_PACKAGE}
FASTMCP_PYTHON = INSTALLED / "fast_mcp" / "bin" / "python"
SERVERS = INSTALLED / "servers" / "node_modules" / "@modelcontextprotocol"

# Servers that a machine with other things to do starts slowly are waited for.
WAITS = "bundle.ready_wait_ms = 60000\nbundle.init_timeout_ms = 60000\n"
LISTS = {"tools/list": "tools", "prompts/list": "prompts", "resources/list": "resources", "resources/templates/list": "resourceTemplates"}
# Of these a client answers with the result, of all others with whatever it makes of the answer.
FIRST = ["initialize", *LISTS]
# What a server says about the moment.
MOMENT = re.compile(r"\d{1,2}:\d{2}:\d{2}( [AP]M)?")


@dataclass(frozen=True)
class Target:
    """What a client connects to: a command, or a URL."""

    command: list = None
    url: str = None


@dataclass(frozen=True)
class Ask:
    """What a client is to ask. `answers`: what it answers when it is asked itself, by method."""

    method: str
    params: dict = field(default_factory=dict)
    # Only clients that hear what comes before an answer, and that can be asked, take part in it.
    is_rich: bool = False

    def under(self, name):
        """The same of what is listed by this name."""
        return Ask(self.method, {**self.params, "name": name}, self.is_rich)


def tool(name, is_rich=False, **arguments):
    return Ask("tools/call", {"name": name, "arguments": arguments}, is_rich)


def prompt(name, **arguments):
    return Ask("prompts/get", {"name": name, "arguments": arguments})


def read(uri):
    return Ask("resources/read", {"uri": uri})


def completion(of, argument, value, **before):
    return Ask("completion/complete", {"ref": of, "argument": {"name": argument, "value": value}, "context": {"arguments": before}}, True)


EVERYTHING = [
    tool("echo", message="hello"), tool("echo"), tool("get-sum", a=2, b=3), tool("get-tiny-image"), tool("get-structured-content", location="New York"),
    tool("get-annotated-message", messageType="error", includeImage=True), tool("get-resource-links", count=3),
    tool("get-resource-reference", resourceType="Text", resourceId=1),
    prompt("simple-prompt"), prompt("args-prompt", city="Paris"), prompt("args-prompt"),
    read("demo://resource/static/document/structure.md"), read("demo://resource/dynamic/text/1"), read("demo://resource/dynamic/text/none"),
    completion({"type": "ref/prompt", "name": "completable-prompt"}, "name", "", department="Sales"),
    completion({"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"}, "resourceId", "7"),
    tool("get-roots-list", True), tool("trigger-sampling-request", True, prompt="Say something", maxTokens=10),
    tool("trigger-elicitation-request", True), tool("trigger-long-running-operation", True, duration=0.2, steps=4),
    Ask("resources/subscribe", {"uri": "demo://resource/static/document/structure.md"}, True), tool("toggle-subscriber-updates", True),
]
SHOWN = [
    tool("echo", message="hello", times=2), tool("echo"), tool("weather", city="Köln"), tool("picture"), tool("dotted.name/x"), tool("fails"),
    tool("refuses"), tool("steps", number=3), prompt("review", what="this"), prompt("review"),
    read("shown://own"), read("shown://pixel"), read("shown://logs/2026-11-23.txt"), tool("asks", True),
]
MEMORY = [
    tool("create_entities", entities=[{"name": "one", "entityType": "number", "observations": ["it is odd"]}]),
    tool("read_graph"), tool("open_nodes", names=["one"]), tool("delete_entities", entityNames=["one"]),
]
ASKS = {"everything": EVERYTHING, "shown": SHOWN, "memory": MEMORY}
FEW = {
    "everything": [tool("echo"), tool("get-tiny-image"), tool("get-structured-content", location="New York"), prompt("args-prompt", city="Paris"),
                   read("demo://resource/dynamic/text/1"), read("demo://resource/dynamic/text/none")],
    "shown": [tool("echo", message="hello", times=2), tool("picture"), tool("dotted.name/x"), tool("fails"), prompt("review"), read("shown://own")],
    "memory": MEMORY[:1],
}


def entries(world, which):
    """The servers. Of the directly asked ones and of those behind the whole each has its own memory."""
    memory = str(world.root / f"memory-{which}.jsonl")
    return {
        "everything": {"command": str(NODE / "node"), "args": [str(SERVERS / "server-everything/dist/index.js"), "stdio"]},
        "shown": {"command": str(FASTMCP_PYTHON), "args": [str(HERE / "every_kind.py")], "env": {"FASTMCP_LOG_LEVEL": "CRITICAL"}},
        "memory": {"command": str(NODE / "node"), "args": [str(SERVERS / "server-memory/dist/index.js")], "env": {"MEMORY_FILE_PATH": memory}},
    }


def direct(entry):
    """One of them, as a client would start it."""
    return Target(["env", *(f"{name}={value}" for name, value in entry.get("env", {}).items()), entry["command"], *entry["args"]])


def wrapped(world, servers):
    """All of them as one, on stdio."""
    world.config_path.with_name("servers.json").write_text(json.dumps({"mcpServers": servers}))
    own = [f"MCP_SESSIOND_DIR={world.run}", f"MCP_SESSIOND_CONFIG={world.config_path}"]
    return Target(["env", *own, str(PROGRAM), "wrap", "--all"])


@contextlib.contextmanager
def over_http(world, servers):
    """All of them as one, over HTTP: the target, and those of each server by itself."""
    world.config_path.with_name("servers.json").write_text(json.dumps({"mcpServers": servers}))
    env = world.environment(MCP_SESSIOND_DIR=str(world.run), MCP_SESSIOND_CONFIG=str(world.config_path))
    serve = world.start([PROGRAM, "serve", "--all", "--listen", "127.0.0.1:0", "--name", "several"], log="serve", env=env, stdout=subprocess.PIPE)
    line = serve.stdout.readline().decode()
    if "http://" not in line:
        raise RuntimeError(f"serve does not listen: {line!r} {(world.root / 'serve.log').read_text()[-2000:]}")
    base = "http://" + line.split("http://", 1)[1].split("/", 1)[0]
    try:
        yield Target(url=f"{base}/mcp"), {name: Target(url=f"{base}/servers/{name}") for name in servers}
    finally:
        serve.send_signal(signal.SIGINT)
        serve.wait()


def each(one, asks):
    """The answers of a client that has a process for each ask; two of them at a time."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, range(len(asks)), asks))


def said(answer):
    """An answer as a text, without the moment at which it was given."""
    return MOMENT.sub("TIME", json.dumps(answer, sort_keys=True, ensure_ascii=False))


def names_of(server, name, is_always):
    """By which names a tool or a prompt may be listed: bare, with its server, or as models' interfaces take it."""
    digest = hashlib.sha256(f"{server}\0{name}".encode()).hexdigest()[:8]
    is_fine = re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name)
    bare, prefixed = [one if is_fine else f"{re.sub(r'[^A-Za-z0-9-]', '_', one)}_{digest}" for one in (name, f"{server}_{name}")]
    return [prefixed] if is_always else [bare, prefixed]


def has_same(listed, own, names):
    """Whether an entry of the whole is that of the server, but for the name, which must be one of these."""
    without = lambda entry: said({key: value for key, value in entry.items() if key != "name"})
    return listed.get("name") in names and without(listed) == without(own)


def compare_lists(world, method, of_each, of_all, is_always):
    """Checks one list. Returns how each entry of each server is listed."""
    what = LISTS[method]
    owns = [(server, own) for server, answer in of_each.items() for own in (answer or {}).get(what, [])]
    listed = (of_all or {}).get(what, [])
    world.check(f"as many {what} are listed as the servers have: {len(owns)}", len(listed) == len(owns), [one.get("name") for one in listed])
    named = method in ("tools/list", "prompts/list")
    wrong = [(server, own, one) for (server, own), one in zip(owns, listed)
             if not has_same(one, own, names_of(server, own["name"], is_always) if named else [own["name"]])]
    world.check(f"each of the {what} is as its server has it, in the order of the servers", not wrong, wrong[:1])
    names = [one.get("name") for one in listed]
    if named:
        world.check(f"no two {what} have the same name", len(set(names)) == len(names), names)
    return {(server, own["name"]): one.get("name") for (server, own), one in zip(owns, listed)}


def compare(world, client, asks, whole, is_rich=False, is_always=False):
    """Asks each server, then all of them as one."""
    asks = {server: [one for one in of if is_rich or not one.is_rich] for server, of in asks.items()}
    first = [Ask(method) for method in FIRST]
    servers = {server: entry for server, entry in entries(world, "direct").items() if server in asks}
    seen = {server: client(world, direct(entry), first + asks[server], True) for server, entry in servers.items()}
    introduced, *lists = client(world, whole, first, False)
    if introduced is not None:
        missing = [server for server, answers in seen.items() if (answers[0].get("instructions") or "").strip() not in introduced["instructions"]]
        world.check("the instructions of all servers are there", not missing, (missing, introduced))
    known = {}
    for at, (method, of_all) in enumerate(zip(LISTS, lists), 1):
        if of_all is not None:
            known[method] = compare_lists(world, method, {server: answers[at] for server, answers in seen.items()}, of_all, is_always)
    if not is_always and len(asks) > 1:
        bearers = {known["tools/list"].get((server, "echo")) for server in ("everything", "shown")}
        world.check("of two servers with `echo` one has the bare name", bearers in ({"echo", "shown_echo"}, {"echo", "everything_echo"}), bearers)
    rows = [(server, ask, expected) for server, of in asks.items() for ask, expected in zip(of, seen[server][len(first):]) if expected is not None]
    answers = client(world, whole, [as_listed(known, server, ask) for server, ask, _ in rows], False)
    for (server, ask, expected), answer in zip(rows, answers):
        about = {**ask.params, **ask.params.get("ref", {})}
        world.check(f"{ask.method} {about.get('name') or about['uri']} {about.get('arguments', '')} of {server} is answered as by the server itself",
                    said(answer) == said(expected), f"{said(answer)[:400]} and not {said(expected)[:400]}")


def as_listed(known, server, ask):
    """The ask, by the name that is listed."""
    of = {"tools/call": "tools/list", "prompts/get": "prompts/list"}.get(ask.method)
    return ask.under(known[of][server, ask.params["name"]]) if of else ask


def scenarios(client, is_rich=False, is_slow=False):
    """What holds for every client. `is_slow`: it has a process for each ask, which starts all servers; so it asks less."""
    def several(world):
        world.config_path.write_text(WAITS)
        compare(world, client, FEW if is_slow else ASKS, wrapped(world, entries(world, "whole")), is_rich)
        world.check("after the end of the client no server is left", until(lambda: not world.ours("keep")), world.ours("keep"))

    def several_always_by_their_servers(world):
        world.config_path.write_text(f'{WAITS}bundle.names = "always"\n')
        compare(world, client, {server: of[:1] for server, of in ASKS.items()}, wrapped(world, entries(world, "whole")), is_always=True)

    def several_over_http(world):
        world.config_path.write_text(WAITS)
        asks = FEW if is_slow else ASKS
        with over_http(world, entries(world, "whole")) as (whole, by_itself):
            compare(world, client, asks, whole, is_rich)
            # What `memory` holds is known already.
            for server in ("everything", "shown"):
                compare(world, client, {server: asks[server]}, by_itself[server], is_rich)
        world.check("after the end of serve no server is left", until(lambda: not world.ours("keep")), world.ours("keep"))
    return [several, several_always_by_their_servers, several_over_http]

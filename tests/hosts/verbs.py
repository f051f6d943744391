"""What a user types in a shell beside a host: `status`, `logs`, `restart`, `stop` and `call`, with the entry that the README has.

The entry stands in the host's file as it is typed there, so the host finds `mcp-sessiond` and `npx` in its PATH. There `mcp-sessiond` sets
the scenario's directory, and `npx` runs the package that is asked for: `counter.py` in the place of the browser, and the real
`server-filesystem`.
"""

import json
import re
import shlex
import subprocess

import claude
import typescript
from drivers import Terminal
from harness import HERE, INSTALLED, NODE, PROGRAM, PYTHON, number, start_of, until

NAME, PACKAGE = "A user's shell", None
NEEDS = {"claude": claude.PACKAGE, "typescript": typescript.PACKAGE, "filesystem": ("npm", "@modelcontextprotocol/server-filesystem", "2026.8.31")}
FILESYSTEM = INSTALLED / "filesystem" / "node_modules" / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"
BROWSER = ["npx", "@playwright/mcp@latest"]
OWN = ["mcp-sessiond", "wrap"]


def path(world):
    """A PATH that begins with `mcp-sessiond` and `npx`."""
    programs = world.root / "shell"
    programs.mkdir(exist_ok=True)
    counter = shlex.join(map(str, [PYTHON, HERE / "counter.py", world.journal_path]))
    written = {
        "mcp-sessiond": f'MCP_SESSIOND_DIR={world.run} MCP_SESSIOND_CONFIG={world.config_path} exec {PROGRAM} "$@"',
        "npx": f'echo "the server writes to its standard error" >&2\n'
               f'case "$*" in *server-filesystem*) shift 2; exec {NODE / "node"} {FILESYSTEM} "$@";; *) exec {counter};; esac',
    }
    for name, script in written.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    return f"{programs}:{world.environment()['PATH']}"


class Shells:
    """Shells of the user's, each a process of its own."""

    def __init__(self, world):
        self.world, self.env = world, world.environment(PATH=path(world), COLUMNS="160")

    def begin(self, line):
        """Starts a shell that runs this line and then exits."""
        # A second command keeps the shell there while the first one runs.
        return subprocess.Popen(["bash", "-c", f"{line}\nexit $?"], cwd=self.world.home, env=self.env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self, shell):
        """Its exit code, and what it printed on standard output and standard error."""
        out, err = shell.communicate(timeout=90)
        with open(self.world.root / "shells", "a") as log:
            log.write(f"$ {shell.args[2].splitlines()[0]}\n{out}{err}[exit code {shell.returncode}]\n\n")
        return shell.returncode, out, err

    def run(self, line):
        return self.end(self.begin(line))

    def says(self, line, code, *wanted):
        """Checks that it exits with this code, and that each of these is found in what it prints."""
        seen = self.run(line)
        said = seen[1] + seen[2]
        words = "" if not wanted else " and says " + ", ".join(repr(one) for one in wanted)
        self.world.check(f"`{line}` exits with {code}{words}", seen[0] == code and all(re.search(one, said, re.MULTILINE) for one in wanted), seen)
        return said


def counts(seen):
    """What the calls of shells counted to, in order."""
    return sorted(number(out) or (code, err) for code, out, err in seen)


class Claude:
    """A session of Claude Code that has this entry, added as the README has it."""

    TITLE = "Claude Code"

    def __init__(self, world, name, command):
        self.world, self.name, self.asked = world, name, 0
        self.env = claude.environment(world) | {"PATH": path(world)}
        code, said = world.finish([claude.CLAUDE, "mcp", "add", name, "--", *command], env=self.env)
        world.check(f"`claude mcp add {name} -- {' '.join(command)}` takes the entry", code == 0, said)
        self.open()

    def open(self):
        self.session = claude.Session(self.world, self.env, self.name, f"mcp__{self.name}__count")

    def count(self):
        """What the model's call counted to."""
        self.asked += 1
        self.session.ask(prompt := f"call-{self.asked}")
        return number(str(self.world.api.results(prompt)))

    @property
    def pid(self):
        return self.session.pid

    def end(self):
        self.session.end()


class TypeScript:
    """A program on the official TypeScript client, which starts this command. It has no file with an entry."""

    TITLE = "node"

    def __init__(self, world, name, command):
        self.world, self.command = world, command
        self.open()

    def open(self):
        self.host = typescript.Host(self.world, "legacy", self.command, PATH=path(self.world))
        connected = self.host.call("connect", seconds=90)
        self.world.check("the official client connects", connected and "pid" in connected, connected)

    def count(self):
        return number(str(self.host.call("count")))

    @property
    def pid(self):
        return self.host.pid

    def end(self):
        self.host.call("close")
        self.host.process.kill()
        self.host.process.wait()


def listed(world, **entry):
    """Writes servers.json, with the browser alone."""
    servers = {"browser": {"command": BROWSER[0], "args": BROWSER[1:], **entry}}
    world.config_path.with_name("servers.json").write_text(json.dumps({"mcpServers": servers}))


def by_name(world, kind):
    """The README's own commands."""
    shells = Shells(world)
    # A host without a file that we know has no name for its server: there `--entry` says it.
    entry = [] if kind is Claude else ["--entry", "browser"]
    host = kind(world, "browser", [*OWN, *entry, "--", *BROWSER])
    counted = [host.count(), host.count()]
    world.check("the host counts", counted == [1, 2], counted)
    shells.says("mcp-sessiond status", 0, rf"^browser +{kind.TITLE} {host.pid} \S*/project +in use ", "RESTARTS")
    shells.says("mcp-sessiond logs browser", 0, "a server was started", "the server writes to its standard error")
    shells.says("mcp-sessiond call browser count", 69, rf"browser belongs to {kind.TITLE} \(pid {host.pid}\)\. To use it from a shell, write `--name browser` behind `wrap`")
    shells.says("mcp-sessiond restart browser", 0, rf"^browser of {kind.TITLE} {host.pid} .*restarted")
    world.check("a fresh server was started", until(lambda: len(world.started()) == 2), world.started())
    counted = host.count()
    world.check("the host stays connected, and counts from 1", counted == 1, counted)
    shells.says("mcp-sessiond stop browser", 0, f"it starts again when {kind.TITLE} next calls it")
    world.lives(0, "after `stop`")
    shells.says("mcp-sessiond status", 0, rf"^browser +{kind.TITLE} {host.pid} .*not running ")
    counted = host.count()
    world.check("the next call starts a fresh one", counted == 1 and len(world.started()) == 3, (counted, world.started()))
    shells.says("mcp-sessiond logs browser", 0, "it was restarted by hand", "the previous server was stopped")
    host.end()
    world.lives(0, "after the end of the host")
    shells.says("mcp-sessiond restart browser", 66, "no server is called `browser`")


def shared(world, kind):
    """`call` joins a shared server as one more client: one count over the host and both shells."""
    shells = Shells(world)
    listed(world, shared=True)
    host = kind(world, "browser", [*OWN, "@browser"])
    counted = [host.count()]
    counted += counts([shells.run("mcp-sessiond call browser count")]) + counts([shells.run("mcp-sessiond call browser count")])
    counted.append(host.count())
    world.check("the host, one shell, another shell, and the host count 1, 2, 3, 4", counted == [1, 2, 3, 4], counted)
    both = [shells.begin("mcp-sessiond call browser count") for _ in range(2)]
    counted = counts(map(shells.end, both))
    world.check("two shells at once count 5 and 6", counted == [5, 6], counted)
    world.check("it was started once", len(world.started()) == 1, world.started())
    shells.says("mcp-sessiond status", 0, "^browser ")
    shells.says("mcp-sessiond call browser", 0, "count")
    host.end()


def at_name(world, kind):
    """A server of servers.json that is not shared: one session of the user's for all shells, apart from the host's."""
    shells = Shells(world)
    listed(world)
    host = kind(world, "browser", [*OWN, "@browser"])
    counted = host.count()
    world.check("the host counts 1", counted == 1, counted)
    first, second = (shells.run("mcp-sessiond call browser count") for _ in range(2))
    world.check("two shells count 1 and 2: they have one session, which is not the host's", counts([first, second]) == [1, 2], (first, second))
    told = "@browser runs in a session of your own, apart from every host's"
    world.check("standard error says so the first time, and then no more", told in first[2] and not second[2], (first[2], second[2]))
    both = [shells.begin("mcp-sessiond call browser count") for _ in range(2)]
    seen = counts(map(shells.end, both))
    world.check("two shells at once count 3 and 4: one waits for the other", seen == [3, 4], seen)
    counted = host.count()
    world.check("the host's server goes on, 2", counted == 2, counted)
    shells.says("mcp-sessiond status", 0, "^@browser ", "^browser ")
    shells.says("mcp-sessiond stop @browser", 0, "@browser")
    counted = host.count()
    world.check("the host's server is another one, 3", counted == 3, counted)
    host.end()


def name_in_use(world, kind):
    """A server with a `--name` is used for one call at a time, when nobody else has it."""
    shells = Shells(world)
    host = kind(world, "browser", [*OWN, "--name", "browser", "--", *BROWSER])
    counted = host.count()
    world.check("the host counts 1", counted == 1, counted)
    shells.says("mcp-sessiond call browser count", 75, kind.TITLE)
    counted = host.count()
    world.check("the host's server goes on, 2", counted == 2, counted)
    host.end()
    counted = counts([shells.run("mcp-sessiond call browser count")]) + counts([shells.run("mcp-sessiond call browser count")])
    world.check("when the host has gone, two shells count 3 and 4", counted == [3, 4], counted)
    host.open()
    counted = host.count()
    world.check("the host comes back and counts 5", counted == 5, counted)
    host.end()
    shells.says("mcp-sessiond stop browser", 0, "^browser ")


class Files:
    """A session of Claude Code in a project, whose server is the real `server-filesystem` of that directory."""

    def __init__(self, world, project, env):
        self.world, self.project = world, project
        before, world.project = world.project, project
        command = [*OWN, "--", "npx", "-y", "@modelcontextprotocol/server-filesystem", str(project)]
        code, said = world.finish([claude.CLAUDE, "mcp", "add", "files", "--", *command], env=env)
        world.check(f"`claude mcp add files -- …` in {project.name}", code == 0, said)
        self.session = OfFiles(world, env, "files", "mcp__files__list_allowed_directories")
        world.project = before

    def allowed(self, prompt):
        """What the model's call answers: the directories that the server may read."""
        self.session.ask(prompt, "allowed")
        return " ".join(self.world.api.results(prompt))


class OfFiles(claude.Session):
    def wait(self):
        self.wait_for_offer()


def two_projects(world):
    """Two hosts with `server-filesystem` under one name in two projects: each verb tells them apart."""
    shells, other = Shells(world), world.root / "other"
    other.mkdir()
    env = claude.environment(world, other) | {"PATH": shells.env["PATH"]}
    world.api.calls["allowed"] = ("list_allowed_directories", {})
    one, two = (Files(world, project, env) for project in (world.project, other))
    seen = one.allowed("one"), two.allowed("two")
    world.check("each host has the files of its project", all(str(project) in said for project, said in zip((world.project, other), seen)), seen)
    shells.says("mcp-sessiond status", 0, rf"^files +Claude Code {one.session.pid} \S*/project ", rf"^files +Claude Code {two.session.pid} \S*/other ")
    for verb in ("restart", "stop", "logs"):
        said = shells.says(f"mcp-sessiond {verb} files", 64, "could be any of 2 servers", "/project ", "/other ")
        word = next((line.split()[-1] for line in said.splitlines() if "/other " in line), "")
        shells.says(f"mcp-sessiond {verb} {word}", 0, *([] if verb == "logs" else [f"Claude Code {two.session.pid}"]))
        if verb == "stop":
            two.allowed("again")
    shells.says("mcp-sessiond call files list_allowed_directories", 69, str(one.session.pid), str(two.session.pid))
    seen = one.allowed("three"), two.allowed("four")
    world.check("each host still has the files of its project", all(str(project) in said for project, said in zip((world.project, other), seen)), seen)


def asks_again(world):
    """Claude Code asks once about a project's server. After `setup` it does not ask again, since it approves by name."""
    shells, file = Shells(world), world.project / ".mcp.json"
    # What `setup` writes is the executable itself.
    own = {"MCP_SESSIOND_DIR": str(world.run), "MCP_SESSIOND_CONFIG": str(world.config_path)}
    env = claude.environment(world) | {"PATH": shells.env["PATH"]} | own
    file.write_text(json.dumps({"mcpServers": {"browser": {"command": BROWSER[0], "args": BROWSER[1:]}}}))
    question = "New MCP server found in this project: browser"
    asked = Terminal(world, [claude.CLAUDE], env)
    world.check("it asks about a project's server at first", asked.shows(question, seconds=60), asked.text()[-300:])
    asked.rests()
    # The answer that is marked is to go on without it; the first one is to use it.
    for key in ("\x1b[A", "\x1b[A", "\r"):
        asked.type(key)
        asked.rests()
    answer = world.project / ".claude" / "settings.local.json"
    world.check("the answer is remembered by the server's name", until(answer.exists) and json.loads(answer.read_text()) == {"enabledMcpjsonServers": ["browser"]})
    asked.send("/exit")
    until(lambda: start_of(asked.pid) is None)
    shells.says(f"mcp-sessiond setup claude --file {file} --yes", 0, "wrap --entry browser -- npx @playwright/mcp@latest", "1 file was changed")
    session = claude.Session(world, env, "browser", "mcp__browser__count")
    world.check("after `setup` it does not ask again", re.sub(r"\s", "", question) not in session.text(), session.text()[-300:])
    session.ask("one")
    shells.says("mcp-sessiond status", 0, "^browser +Claude Code ")
    session.end()


def share(world):
    """Three windows of Claude Code have a server each, as `claude mcp add` has it. `status` says what makes them one, and `share` does; `--undo` gives
    each its own again."""
    shells = Shells(world)
    # What `share` writes is the executable itself.
    own = {"MCP_SESSIOND_DIR": str(world.run), "MCP_SESSIOND_CONFIG": str(world.config_path)}
    env = claude.environment(world) | {"PATH": shells.env["PATH"]} | own
    entry = lambda: json.loads((world.home / ".claude.json").read_text())["projects"][str(world.project)]["mcpServers"]["browser"]
    code, said = world.finish([claude.CLAUDE, "mcp", "add", "browser", "--", *OWN, "--", *BROWSER], env=env)
    world.check("`claude mcp add browser -- mcp-sessiond wrap -- …` takes the entry", code == 0, said)
    before = entry()

    def counted(stage, many):
        windows = [claude.Sharing(world, env, "browser", "mcp__browser__count") for _ in range(many)]
        for number_of, window in enumerate(windows):
            window.ask(f"{stage}-{number_of}")
        return windows, sorted(number(str(world.api.results(f"{stage}-{one}"))) for one in range(many))
    windows, seen = counted("own", 3)
    world.check("three windows count 1 each", seen == [1, 1, 1], seen)
    shells.says("mcp-sessiond status", 0, "^browser: 3 processes, .*`mcp-sessiond share browser` makes them one")
    for window in windows:
        window.end()
    shells.says("mcp-sessiond share browser --yes", 0, "browser: is added, and shared", "wrap @browser", "2 files were changed")
    already = len(world.started())
    windows, seen = counted("shared", 2)
    world.check("two windows have one count", seen == [1, 2] and len(world.started()) == already + 1, (seen, world.started()))
    for window in windows:
        window.end()
    shells.says("mcp-sessiond stop browser", 0, "browser")
    shells.says("mcp-sessiond share browser --undo --yes", 0, "1 file was changed", "browser: is removed")
    after = entry()
    world.check("Claude Code's entry is as it was", [after[name] for name in ("command", "args")] == [before[name] for name in ("command", "args")], (before, after))
    windows, seen = counted("again", 2)
    world.check("two windows count 1 each again", seen == [1, 1], seen)
    for window in windows:
        window.end()


def of(kind, scenario):
    def run(world):
        scenario(world, kind)
    run.__name__ = f"{kind.__name__.lower()}_{scenario.__name__}"
    return run


SCENARIOS = [*(of(kind, scenario) for kind in (Claude, TypeScript) for scenario in (by_name, shared, at_name, name_in_use)), two_projects, asks_again, share]
OBSERVED = []

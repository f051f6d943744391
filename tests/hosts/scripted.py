"""Hosts that do as they are told (`scripted_host.py`), for what takes several hosts, or a host at its worst moment.

Each scenario runs directly and wrapped.
"""

import subprocess

from drivers import Peer
from entry_points import OWNERS, command, ended, in_turn
from harness import ENTRIES, HERE, PYTHON, number, until

NAME, PACKAGE = "A scripted host", None
# How long a host waits for a server that is being installed, in seconds.
LIMIT = 2


class Host(Peer):
    def __init__(self, world):
        super().__init__(world, [PYTHON, "-I", "-S", HERE / "scripted_host.py"], world.environment())

    def connect(self, name, command, **more):
        return self.call("connect", {"name": name, "command": [str(part) for part in command], **more}, 120)

    def count(self, name):
        return number(text := self.call("call", {"name": name}, 90)) or text

    def say(self, name):
        """What the tool says."""
        return self.call("call", {"name": name}, 90)

    def heard(self, name):
        """What the server has said on standard error."""
        return self.call("said", {"name": name})

    def leave(self):
        """As `claude -p` ends. Returns once the host is gone."""
        self.write({"jsonrpc": "2.0", "id": 0, "method": "leave", "params": {}})
        self.process.wait()


def six_in_a_row(probe):
    """Six hosts, each begun as soon as the last one is gone, with a server that holds a lock and ignores the end of its input."""
    def scenario(world):
        def run(command):
            seen = []
            for _ in range(6):
                host = Host(world)
                connected = host.connect("counter", command, probe=probe)
                seen.append(host.count("counter") if "pid" in connected else connected)
                host.leave()
            return seen
        for way, command in (("directly", world.server), ("wrapped", world.wrapped)):
            seen = run(command("--lock", str(world.root / f"{way}.lock")))
            world.check(f"{way} 6 of 6 connect, each to a fresh server", seen == [1] * 6, seen)
        world.lives(0, "when the last host is gone")
    scenario.__name__ = "six_in_a_row_that_probe" if probe else "six_in_a_row"
    return scenario


def dotnet_like(world):
    """The official C# SDK: each conversation ends by killing the process tree, with the input open."""
    def story(command):
        host, counted = Host(world), []
        for who in ("alice", "bob", "carol"):
            host.connect(who, command)
            counted.append([host.count(who), host.count(who)])
            host.call("close", {"name": who, "how": "tree"})
        host.close()
        return counted
    direct = story(world.server())
    world.check("directly each conversation has a fresh server", direct == [[1, 2]] * 3, direct)
    for entry in OWNERS:
        expected, already = in_turn(entry, direct), len(world.started())
        wrapped = story(command(world, entry))
        world.check(f"{entry}: the conversations count {expected}", wrapped == expected, wrapped)
        ended(world, entry, already, is_patient=True)


def two_conversations(world):
    """Two conversations at once in one process, named by a variable that the user's row tells: each finds its own server again."""
    world.config_path.write_text('hosts = [{ executable = "*", conversation = "MY_CHAT" }]\n')
    for entry in ENTRIES:
        command, host = world.wrapped(entry=entry), Host(world)

        def connect(chat):
            host.connect(chat, command, environment={"MY_CHAT": chat})
            return host.count(chat)
        counted = [connect("left"), connect("right"), host.count("right")]
        world.check(f"{entry}: each conversation has a server: 1, then 1 and 2", counted == [1, 1, 2], counted)
        for how, first, second in (("SIGKILL", "right", "left"), ("SIGKILL", "left", "right"), ("input", "left", "right"), ("input", "right", "left")):
            expected = [host.count(first) + 1, host.count(second) + 1]
            for chat in (first, second):
                host.call("close", {"name": chat, "how": how})
            counted = [connect(first), connect(second)]
            world.check(f"{entry}: after {how} of both each finds its own, {first} first: {expected}", counted == expected,
                        (counted, host.heard(first), host.heard(second)))
        host.close()
        world.lives(0, f"{entry}: after the end of the host")


class Edited:
    """A server below a package of the user's, whose module decides what it says. `story(way, connect, host)` comes back after orderly closes."""

    def __init__(self, world):
        self.world, self.package = world, world.root / "package"
        self.package.mkdir()
        (self.package / "pyproject.toml").write_text('[project]\nname = "words"\n')
        self.write("words", "one")
        arguments = [str(HERE / "counter.py"), str(world.journal_path), "--says"]
        (self.package / "main.py").write_text(
            f"import runpy, sys\n\nimport words\n\nsys.argv = [*{arguments}, words.WORD]\nrunpy.run_path(sys.argv[0])\n")
        self.command = [PYTHON, "-B", str(self.package / "main.py")]

    def write(self, module, word):
        (self.package / f"{module}.py").write_text(f'WORD = "{word}"\n')

    def git(self, *words):
        identity = ["-c", "user.name=tests", "-c", "user.email=tests@localhost"]
        subprocess.run(["git", *identity, *words], cwd=self.package, check=True, capture_output=True)

    def judge(self, edits):
        """`edits`: what is edited before the host comes back, what the tool then says, and whether the server may go on."""
        for entry in [None, *ENTRIES]:
            self.write("words", "one")
            command = self.command if entry is None else self.world.wrapping(self.command, ("--resume", "always"), entry=entry)
            host, goes_on = Host(self.world), 0
            for name, edit, word, may_go_on, line in [("begin", lambda: None, "one", False, None), *edits]:
                edit()
                host.connect(name, command)
                goes_on = goes_on + 1 if may_go_on else 1
                said, heard = host.say(name), host.heard(name)
                if entry is None:
                    self.world.check(f"directly, {name}: says {word}", f"count=1 " in said and f"says={word}" in said, said)
                else:
                    self.world.check(f"{entry}, {name}: counts {goes_on} and says {word}",
                                     f"count={goes_on} " in said and f"says={word}" in said, (said, heard))
                    self.world.check(f"{entry}, {name}: a line has {line!r}", not line or line in heard, heard)
                host.call("close", {"name": name, "how": "input"})
            host.close()
            self.world.lives(0, "after the end of the host")


def edited_module(world):
    edited = Edited(world)
    edited.judge([("nothing was edited", lambda: None, "one", True, None), ("the module was edited", lambda: edited.write("words", "two"), "two", False, "words.py"),
                  ("nothing was edited again", lambda: None, "two", True, None)])


def edited_generated(world):
    """Files that are written and say nothing new, and one that says something new each time."""
    edited = Edited(world)

    def write_data():
        (edited.package / "state.json").write_text(f"[{len(world.started())}]")
        (edited.package / "server.log").write_text(f"{len(world.started())}\n")
    edited.judge([("data were written", write_data, "one", True, None), ("the module was written as it was", lambda: edited.write("words", "one"), "one", True, None),
                  ("a generated module is new", lambda: edited.write("generated", f"first-{len(world.started())}"), "one", False, "generated.py"),
                  ("it is new again", lambda: edited.write("generated", f"second-{len(world.started())}"), "one", False, "--no-sources")])


def edited_checkout(world):
    edited = Edited(world)
    edited.git("init", "--quiet", "--initial-branch", "main")
    edited.git("add", ".")
    edited.git("commit", "--quiet", "--message", "one")
    edited.git("checkout", "--quiet", "-b", "other")
    edited.write("words", "two")
    edited.git("commit", "--quiet", "--all", "--message", "two")
    edited.git("checkout", "--quiet", "main")

    def there_and_back():
        edited.git("checkout", "--quiet", "other")
        edited.git("checkout", "--quiet", "main")
    edited.judge([("another branch was looked at", there_and_back, "one", True, None),
                  ("another branch is checked out", lambda: edited.git("checkout", "--quiet", "other"), "two", False, "words.py"),
                  ("the first one is again", lambda: edited.git("checkout", "--quiet", "main"), "one", False, "words.py")])


def roots(world):
    """What a server knows of its host's folders is what this connection would say, where it has ever asked for them: one that was started by a host
    which gives none never has, and goes on."""
    for entry in [None, *ENTRIES]:
        server = world.server("--roots")
        command = server if entry is None else world.wrapping(server, ("--resume", "always"), entry=entry)
        host = Host(world)
        for name, folders, goes_on in [("one", ["file:///one"], 1), ("one again", ["file:///one"], 2), ("two", ["file:///two"], 1), ("no roots", None, 1),
                                       ("one at last", ["file:///one"], 2)]:
            host.connect(name, command, roots=folders)
            said = host.say(name)
            has_asked = entry is None or name != "one at last"
            root = folders[0] if folders and has_asked else "none"
            expected = f"count={1 if entry is None else goes_on} "
            world.check(f"{entry or 'directly'}, {name}: it knows {root}, and {expected}", f"root={root}" in said and expected in said, (said, host.heard(name)))
            host.call("close", {"name": name, "how": "input"})
        host.close()
        world.lives(0, "after the end of the host")
    command = world.wrapping(world.server("--roots"), ("--name", "folders"))
    for count, folders in enumerate((["file:///one"], ["file:///two"], ["file:///two"]), 1):
        host = Host(world)
        host.connect("named", command, roots=folders)
        said = host.say("named")
        world.check(f"a name, and another host in {folders[0]}: the server goes on, and knows that", f"root={folders[0]}" in said and f"count={count} " in said,
                    (said, host.heard("named")))
        host.call("close", {"name": "named", "how": "input"})
        host.close()


def rivals(world):
    """Two servers of one host, each of which ends the other where it finds it (a pid file, `docker rm -f` first)."""
    def starts_and_settles(host, command):
        already = len(world.started())
        for name in ("left", "right"):
            connected = host.connect(name, [*command, "--instance-of", name])
            world.check(f"{name} connects", "pid" in connected, connected)
        until(lambda: len(world.servers()) == 1)
        # The one that was ended is idle: nobody needs it.
        return until(lambda: len(world.started()) - already > 2, 5) or len(world.started()) - already
    for way, command in (("directly", world.server), ("wrapped", world.wrapped)):
        host = Host(world)
        seen = starts_and_settles(host, command("--rival", str(world.root / f"{way}.pid")))
        world.check(f"{way} two starts", seen == 2, f"{'more than two' if seen is True else seen}")
        if way == "wrapped":
            already = len(world.started())
            counted = host.count("left")
            world.check("the one that was ended is started again when it is called", counted == 1, counted)
            again = until(lambda: len(world.started()) - already > 1, 5)
            world.check("and then the other one stays ended until it is called", not again, world.started()[already:])
        host.close()
        until(lambda: not world.servers())


class Installation:
    """A server that is installed before it runs, and takes longer for that than its host waits."""

    def __init__(self, world):
        self.world, self.package = world, world.root / "package"
        self.direct = [PYTHON, str(HERE / "installer.py"), str(self.package), str(world.journal_path)]
        # As world.wrapped(), which runs the counter.
        own = world.wrapped()
        self.wrapped = [*own[:own.index("--") + 1], *self.direct]

    def judge(self, try_):
        """`try_(command, seconds)` tries to connect, closes in an orderly way where it can't, and returns whether it could."""
        direct = [try_(self.direct, LIMIT) for _ in range(2)]
        self.world.check("directly each try is an installation that comes to nothing",
                         (direct, len(self.world.journal("installing"))) == ([False, False], 2), direct)
        already = len(self.world.journal("installing"))
        tries = [try_(self.wrapped, LIMIT) for _ in range(4)]
        self.world.check("while it is installed no try connects", not any(tries), tries)
        self.package.with_name("package.done").touch()
        done = until(lambda: self.world.journal("installed"), 5)
        self.world.check("the installation goes on between the tries, and is done", done, self.world.journal("installing"))
        self.world.check("the first try after that connects", try_(self.wrapped, 30))
        begun = self.world.journal("installing")[already:]
        self.world.check("from one installation", len(begun) == 1, begun)


def install(world):
    """The host tries again and again, and closes each try in an orderly way."""
    host = Host(world)
    Installation(world).judge(lambda command, seconds: "pid" in host.connect("counter", command, seconds=seconds))
    counted = host.count("counter")
    world.check("it counts from 1", counted == 1, counted)


SCENARIOS = [six_in_a_row(False), six_in_a_row(True), dotnet_like, two_conversations, edited_module, edited_generated, edited_checkout, roots, rivals, install]
OBSERVED = []

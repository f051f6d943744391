"""Hosts that do as they are told (`scripted_host.py`), for what takes several hosts, or a host at its worst moment.

Each scenario runs directly and wrapped.
"""

from drivers import Peer
from harness import HERE, PYTHON, number, until

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


SCENARIOS = [six_in_a_row(False), six_in_a_row(True), rivals, install]
OBSERVED = []

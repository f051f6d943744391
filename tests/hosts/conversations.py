"""Hosts that serve many conversations from one process: each conversation has to find what it would find directly.

Each scenario runs directly and wrapped, each with a host process of its own. Directly each start of the command is a server. So wrapped,
too, there are as many servers as the host has started fronts, and where the host does the same each time, all counts are the same.
"""

import contextlib
import os
import signal
import threading

from drivers import Peer
from harness import number, start_of, until


class Host:
    """One host process. `way` is `direct` or `wrapped`, and a part of the names of its prompts, and of its HOME."""

    # Whether it closes the servers of each conversation before the next one begins.
    is_steady = True

    def __init__(self, world, way, command):
        self.world, self.way = world, way
        self.home = world.home / way
        self.home.mkdir()
        self.starts, self.servers = world.root / f"{way}-starts", len(world.started())
        # Each start of the command is a line of this file.
        self.command = ["/bin/sh", "-c", 'echo $$ >> "$0"; exec "$@"', str(self.starts), *command]

    def started(self):
        """How often the host has started the command, and how many servers have been started since."""
        return len(self.starts.read_text().splitlines()), len(self.world.started()) - self.servers

    def talk(self, name, steps="count"):
        """One conversation, from its begin to its end. What its calls counted to."""
        name = f"{self.way}-{name}"
        self.converse(name, steps)
        return [number(text) or text for text in self.world.api.results(name)]

    def converse(self, name, steps):
        """The same, as this host does it."""
        raise NotImplementedError

    def end(self):
        """Ends the host process."""
        raise NotImplementedError

    def processes(self):
        """What the host has started for its servers: the fronts, or the servers themselves."""
        return self.world.ours("wrap") if self.way == "wrapped" else self.world.servers()

    def rests(self):
        """Waits until the host has closed all of that. What is kept after that is to be found by nobody."""
        rests = until(lambda: not self.processes(), 60 if self.is_steady else 5)
        if self.is_steady:
            self.world.check("the host closes the servers of its conversations", rests, self.processes())

    def kill(self):
        """Kills what the host has started, and waits until it is gone."""
        pids = {pid: start_of(pid) for pid in self.processes()}
        self.world.check("there is a process of the server's to kill", pids, pids)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: all(start_of(pid) != began for pid, began in pids.items()))


class Acp(Host):
    """A host that speaks the Agent Client Protocol: one process that serves every session of an editor."""

    # Whether it knows `session/close`.
    closes = True

    def speak(self, command, env):
        """Starts it."""
        self.peer = Peer(self.world, command, {**env, "HOME": str(self.home)})
        self.peer.on_request = lambda method, params: {"outcome": {"outcome": "selected", "optionId": allowing(params.get("options", []))}}
        client = {"protocolVersion": 1, "clientCapabilities": {}, "clientInfo": {"name": "tests", "version": "1.0.0"}}
        self.world.check("it answers `initialize`", self.peer.call("initialize", client, 180))

    def converse(self, name, steps):
        begun = self.peer.call("session/new", {"cwd": str(self.world.project), "mcpServers": []}, 120)
        self.world.check("a session begins", begun, begun)
        session = {"sessionId": begun["sessionId"]}
        self.wait_until_ready(session, name)
        self.prompt(session, name, steps)
        if self.closes:
            self.world.check("the session is closed", self.peer.call("session/close", session) is not None)

    def wait_until_ready(self, session, name):
        """Until the session has its servers, where the host holds no prompt for those that still start."""

    def prompt(self, session, name, steps):
        said = self.peer.call("session/prompt", {**session, "prompt": [{"type": "text", "text": f"STEPS: {name} {steps}"}]}, 120)
        self.world.check(f"prompt {name} is answered", said and name in self.world.api.done, said)

    def end(self):
        """Ends it, and what it has started itself again with other options."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.peer.pid, signal.SIGKILL)
        self.peer.close()


def allowing(options):
    """The option that allows what a host asks for."""
    return next((one["optionId"] for one in options if one.get("kind", "").startswith("allow")), None)


def one_after_the_other(host):
    counted = []
    for name, steps in (("one", "count count"), ("two", "count"), ("three", "count"), ("four", "count count")):
        counted.append(host.talk(name, steps))
        host.rests()
    return counted


def without_pause(host):
    """Each conversation begins as soon as the one before it has ended, while the host may still be closing."""
    return [host.talk(name) for name in ("one", "two", "three")]


def at_once(host):
    """Two conversations at the same time. Neither ends before both have called."""
    counted, called = {}, threading.Barrier(2, timeout=12)

    def meet():
        # Where the other conversation does not come about, that has been said already.
        with contextlib.suppress(threading.BrokenBarrierError):
            called.wait()
    host.world.api.hooks["meet"] = meet

    def talk(name):
        counted[name] = host.talk(name, "count meet count")
    talks = [threading.Thread(target=talk, args=[name]) for name in ("left", "right")]
    for one in talks:
        one.start()
    for one in talks:
        one.join()
    host.rests()
    return [counted["left"], counted["right"], host.talk("after")]


def cut(host):
    """What the host has started for a conversation is killed within it; the next conversation follows."""
    host.world.api.hooks["kill"] = host.kill
    counted = [host.talk("one", "count kill count")]
    host.rests()
    counted.append(host.talk("two"))
    # What a call says after the kill is the host's affair.
    return [["cut" if isinstance(one, str) else one for one in many] for many in counted]


def daemon_killed(host):
    """The daemon is killed between the end of a conversation and the next."""
    counted = []
    for name in ("one", "two", "three"):
        counted.append(host.talk(name))
        host.rests()
        if host.world.ours("run"):
            host.world.kill("daemon")
    return counted


def scenarios(kind, stories=(one_after_the_other, without_pause, at_once, cut, daemon_killed)):
    """All of them with this kind of host, or some."""
    def compared(story):
        def scenario(world):
            host = kind(world, "direct", world.server())
            direct = story(host)
            host.end()
            world.check(f"directly each start of the command is a server; counts {direct}", len(set(host.started())) == 1, host.started())
            host = kind(world, "wrapped", world.wrapped())
            wrapped = story(host)
            starts, servers = host.started()
            world.check("wrapped each front has a server of its own", starts == servers, f"{starts} fronts, {servers} servers, counts {wrapped}")
            if host.is_steady:
                world.check("directly each conversation has a fresh server", all(many[0] == 1 for many in direct), direct)
                world.check(f"wrapped the conversations count as directly, {direct}", wrapped == direct, wrapped)
            host.end()
            world.lives(0, "after the end of the host")
        scenario.__name__ = story.__name__
        return scenario
    return [compared(story) for story in stories]

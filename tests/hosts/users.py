"""A library in a web backend, which serves several users from one process: what one user's call has left, no other call may meet.

Each scenario runs directly and wrapped, and has to count alike.
"""

import os
import signal
import threading

from drivers import Peer
from harness import HERE, INSTALLED, number, start_of, until


class Backend(Peer):
    """One such process, by the name of its library."""

    def __init__(self, world, library, command):
        python = INSTALLED / f"{library}_users" / "bin" / "python"
        super().__init__(world, [python, HERE / f"{library}_client.py", *command], world.environment(PYTHONDONTWRITEBYTECODE="1"))

    def count(self, *users):
        """What these users' calls counted to, all made at once."""
        texts = self.call("count", {"users": users}, seconds=120) or []
        return [number(text) or text for text in texts]


def each_call(library, world, command):
    """One user after the other, each at once after the end of the last call, then both at the same time."""
    backend = Backend(world, library, command)
    counted = [backend.count(user) for user in ("ann", "ann", "bob", "ann", "bob")]
    counted += [backend.count("ann", "bob"), backend.count("bob", "ann", "ann")]
    backend.close()
    return counted


def cut(library, world, command):
    """The process that a user's call has started is killed in the middle of the call; then both users call again."""
    hold = world.root / "journal.hold"
    backend = Backend(world, library, command)
    counted = [backend.count("ann"), backend.count("bob")]
    hold.touch()
    held = len(world.journal("held"))
    calling = threading.Thread(target=lambda: counted.append(backend.count("ann")))
    calling.start()
    until(lambda: len(world.journal("held")) > held)
    # The front where there is one, else the server.
    pids = {pid: start_of(pid) for pid in world.ours("wrap") or world.servers()}
    world.check("there is a process to kill in the middle of a call", pids, pids)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    until(lambda: all(start_of(pid) != started for pid, started in pids.items()))
    # Another user's call comes before the first one has seen it, where it is a call of its own.
    hold.unlink()
    calling.join()
    counted += [backend.count("bob"), backend.count("ann"), backend.count("ann", "bob")]
    backend.close()
    # What the call that was cut says is the library's affair.
    counted[2] = ["cut" if isinstance(one, str) else one for one in counted[2]]
    return counted


def daemon_killed(library, world, command):
    """The daemon is killed between a close and the next claim."""
    backend = Backend(world, library, command)
    counted = []
    for user in ("ann", "bob", "ann"):
        counted.append(backend.count(user))
        if world.ours("run"):
            world.kill("daemon")
    counted.append(backend.count("bob", "ann"))
    backend.close()
    return counted


def scenarios(library):
    def compared(story):
        def scenario(world):
            direct = story(library, world, world.server())
            world.check("directly each call has a fresh server", all(one in (1, "cut") for many in direct for one in many), direct)
            wrapped = story(library, world, world.wrapped())
            world.check(f"wrapped the calls count as directly, {direct}", wrapped == direct, wrapped)
            world.lives(0, "after the end of the backend")
        scenario.__name__ = story.__name__
        return scenario
    return [compared(story) for story in (each_call, cut, daemon_killed)]

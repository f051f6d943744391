"""The entry points of `wrap`, and what the pages promise for each: `docs/sessions.md`, `docs/servers.md` and `docs/remote.md`.

A scenario runs by each of them, and asks here what has to come.
"""

from harness import ENTRIES, until
from over_http import Served

# Whose the server is, or, by URL, the session with it: the host's, as without us; the user's, for one wrapper at a time; or that of all hosts at once.
OWNERS = {**dict.fromkeys(ENTRIES, "host"), "name": "user", "shared": "all", "url": "host"}
# What the line says that tells of a server that goes on, where nothing but time tells a reconnect from an end.
GOES_ON = {**dict.fromkeys(ENTRIES, "resumed"), "url": "the session that an earlier connection had with the server goes on"}

# Two windows that are open at the same time, and a third one after them: what the calls of each prompt count to, by whose the server is.
TWO_WINDOWS = {
    "host": {"left": [1, 2], "right": [1], "left-again": [3], "right-again": [2], "left-alone": [4], "after": [1]},
    # The second window has a server of its own, which ends with it.
    "user": {"left": [1, 2], "right": [1], "left-again": [3], "right-again": [2], "left-alone": [4], "after": [5]},
    "all": {"left": [1, 2], "right": [3], "left-again": [4], "right-again": [5], "left-alone": [6], "after": [7]},
}
# How many servers live while there are two windows, when the second has gone, and when the first has.
LIVING = {"host": (2, 1, 0), "user": (2, 1, 1), "all": (1, 1, 1)}


def command(world, entry, *arguments):
    """The command of the counter by this entry point. By URL it is a session of a `serve` that has a daemon of its own, as if it were elsewhere."""
    if entry != "url":
        return world.wrapped(*arguments, entry=entry)
    remote = world.root / "remote"
    remote.mkdir(mode=0o700)
    return world.wrapping([Served(world, server=world.server(*arguments), run=remote).url()])


def in_turn(entry, direct, closes=True):
    """What conversations of one host count to, one after the other, that count so directly. `closes`: whether the host closes the server of one
    before the next begins; else the name is in use, and the next one has a server of its own."""
    if OWNERS[entry] == "host" or OWNERS[entry] == "user" and not closes:
        return direct
    calls = iter(range(1, 1 + sum(map(len, direct))))
    return [[next(calls) for _ in many] for many in direct]


def windows(begin):
    """A scenario for each entry point: two windows, and a third one after them. `begin(world, command)` says how this host opens one, which has
    `ask(name, steps)` and `end()`, and what cuts both of two and brings them back."""
    def by(entry):
        def scenario(world):
            opened, cut = begin(world, command(world, entry))
            left, right = opened(), opened()
            left.ask("left", "count count")
            right.ask("right", "count")
            living(world, entry, 0, "two windows")
            cut(left, right)
            left.ask("left-again", "count")
            right.ask("right-again", "count")
            right.end()
            living(world, entry, 1, "the second window has gone")
            left.ask("left-alone", "count")
            left.end()
            living(world, entry, 2, "the first window has gone, too")
            third = opened()
            third.ask("after", "count")
            third.end()
            for name, counts in TWO_WINDOWS[OWNERS[entry]].items():
                world.counts(counts, name, f"{entry}: {name}")
            ended(world, entry)
        scenario.__name__ = f"two_windows_{entry}"
        return scenario
    return [by(entry) for entry in OWNERS]


def living(world, entry, stage, why, already=0):
    """Checks how many servers live. One that is reached by URL hears nothing of a host's end."""
    expected = len(world.started()) - already if entry == "url" else LIVING[OWNERS[entry]][stage]
    world.lives(expected, f"{entry}: {why}")


def ended(world, entry, already=0, is_patient=False):
    """Checks what is left after the end of the host, when so many servers had been started `already`. A patient one waits for the end of what is shared."""
    until(lambda: not world.ours("wrap"))
    world.check(f"{entry}: no wrapper outlives its host", not world.ours("wrap"), world.ours("wrap"))
    living(world, entry, 2, "after the end of the host", already)
    if OWNERS[entry] == "all" and is_patient:
        world.lives(0, f"{entry}: half a minute after the end of its last host", 60)
    elif OWNERS[entry] != "host":
        code, said = world.say("stop", "counter")
        world.check(f"{entry}: `mcp-sessiond stop counter` takes the name", code == 0, (code, said))
        world.lives(0, f"{entry}: after `stop`")

"""The official TypeScript client, second version, against servers of seven tempers. `typescript.mjs` is the host.

Four connections, each ended by SIGKILL of the process that the client has started, first directly, then wrapped: wherever the direct run
initialises, the wrapped one does as well, and finds the same server. `auto` probes by `server/discover` on a process of its own, which
it closes before it starts the connection's own; its standard error nobody reads.

`wrap --all` speaks for several servers: it refuses `server/discover` itself, since nothing is lost with a host that goes on with
`initialize`. One that has only probed three times in a row speaks 2026-07-28 alone, and has its servers from then on, of whatever era.
"""

import os
import re

from drivers import Peer
from harness import HERE, INSTALLED, NODE, number, start_of

NAME, PACKAGE = "TypeScript client", ("npm", "@modelcontextprotocol/client", "2.4.0")
TEMPERS = ("answers", "sticks", "alone", "refuses", "late", "exits", "mute")
MODES = {"auto": "auto", "legacy": "legacy", "pinned": "2026-07-28"}
# How long the client waits for the answer to a probe. A server of the temper `late` takes longer.
PROBE_MS = 2500
CONNECTIONS = 4
IS_ALL = "HOSTS_ALL" in os.environ


class Host(Peer):
    def __init__(self, world, mode, command, **more):
        env = world.environment(SDK_FROM=str(INSTALLED / "typescript" / "package.json"), **more)
        super().__init__(world, [NODE / "node", HERE / "typescript.mjs", MODES[mode], PROBE_MS, *command], env)

    def connections(self):
        """Four of them: what each connected to, its count, whether its server was there before the process that the client has started,
        and what was said on its standard error."""
        for _ in range(CONNECTIONS):
            connected = self.call("connect", seconds=90) or {"refused": "no answer within 90 s", "ms": 90_000}
            if "refused" in connected:
                yield connected, None, False, connected.get("said", "")
            else:
                text = str(self.call("count"))
                server = re.search(r"pid=(\d+)", text)
                earlier = bool(server) and (start_of(server[1]) or 0) < start_of(connected["pid"])
                # What it says comes before its answer to `initialize`.
                said = self.call("said")
                self.call("kill")
                yield connected, number(text), earlier, said


def tempered(mode, temper):
    def scenario(world):
        # The program is in no table, and its user has said that a kill ends no conversation.
        world.config_path.write_text('hosts = [{ executable = "*", resume = "cut" }]\n')
        direct = list(Host(world, mode, world.server("--temper", temper)).connections())
        initialises = ["refused" not in connected for connected, *_ in direct]
        world.check("directly each connection has a server of its own, or none has one",
                    [count for _, count, *_ in direct] in ([1] * CONNECTIONS, [None] * CONNECTIONS), direct)
        already = len(world.started())
        asked = len(probes(world))
        wrapped = list(Host(world, mode, world.wrapped("--temper", temper)).connections())
        if IS_ALL and temper != "alone":
            world.check("no server is asked: `--all` answers `server/discover`", len(probes(world)) == asked, len(probes(world)) - asked)
        if IS_ALL and mode == "pinned":
            world.check("the client is refused twice, and has the server then", [count for _, count, *_ in wrapped] == [None, None, 1, 2], wrapped)
            return
        # One that speaks 2026-07-28 alone is translated.
        if not all(initialises) and not IS_ALL:
            world.check("wrapped the client is refused as well", all("refused" in connected for connected, *_ in wrapped), wrapped)
            return
        expected = list(range(1, CONNECTIONS + 1))
        world.check(f"wrapped the count goes on: {expected}", [count for _, count, *_ in wrapped] == expected, wrapped)
        eras = ["2025-11-25" if IS_ALL else one.get("era") for one, *_ in direct]
        world.check("the era is 2025-11-25" if IS_ALL else "the era is the same as directly", [one.get("era") for one, *_ in wrapped] == eras,
                    ([one.get("era") for one, *_ in direct], [one.get("era") for one, *_ in wrapped]))
        starts = world.started()[already:]
        most = 2 if temper == "exits" and mode == "auto" and not IS_ALL else 1
        world.check(f"the server is started {'once' if most == 1 else 'twice: the probe ends the first'}", len(starts) == most, starts)
        if temper not in ("answers", "sticks") and not IS_ALL:
            world.check("its server is asked once at most, and its way is remembered", len(probes(world)) - asked <= 1, len(probes(world)) - asked)
        for place, (_, count, earlier, said) in enumerate(wrapped, 1):
            resumes = "resumed the server" in (said or "")
            world.check(f"connection {place}: 'resumed' is said where the count goes on, and never of a server that this connection began",
                        earlier if resumes else (count or 0) <= 1, (count, earlier, said))
        if temper in ("late", "mute"):
            waits = [place for place, (connected, *_) in enumerate(wrapped, 1) if connected["ms"] >= PROBE_MS]
            world.check("only the first connection waits for the probe's limit", waits in ([], [1]), wrapped)
    scenario.__name__ = f"{mode}_{temper}"
    return scenario


def probes(world):
    """The `server/discover` that servers were sent."""
    return [one for one in world.journal("message") if one["message"].get("method") == "server/discover"]


SCENARIOS = [tempered(mode, temper) for mode in MODES for temper in TEMPERS]
OBSERVED = []

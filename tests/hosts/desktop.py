"""An imitation of Claude Desktop, with the official SDK: one process that starts the same server twice, for its chat and for its
agent panel, which differ in the name that they say in `initialize`. `desktop.mjs` is the host."""

import os
import re
import shutil
import threading
import time

from drivers import Peer
from harness import HERE, INSTALLED, NODE, number

NAME, PACKAGE = "Claude Desktop, imitated", ("npm", "@modelcontextprotocol/sdk", "1.32.2")
CHAT, PANEL = "claude-ai", "local-agent-mode-counter"
WAYS = ("orderly", "SIGTERM", "SIGKILL")


def executable(world, name):
    """Node under another name."""
    path = world.root / "bin" / name
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        try:
            os.link(NODE / "node", path)
        except OSError:
            shutil.copy(NODE / "node", path)
    return path


class Desktop(Peer):
    """One such process. A panel is named by its place, its client by what it says. `program` is the name of its executable."""

    def __init__(self, world, program="Claude"):
        env = world.environment(SDK_FROM=str(INSTALLED / "desktop" / "package.json"))
        super().__init__(world, [executable(world, program), HERE / "desktop.mjs", *world.wrapped()], env)
        self.world, self.names = world, {}

    def open(self, panel, name):
        self.names[panel] = name
        result = self.call("open", {"panel": panel, "name": name}, seconds=40)
        self.world.check(f"{panel} has its server", isinstance(result, int), result)

    def count(self, panel):
        return number(str(self.call("count", {"panel": panel})))

    def end(self, panel, how):
        self.call("close", {"panel": panel, "how": how})

    def reload(self, panels, how):
        """Closes panels, one after the other, and opens them again in that order at once."""
        for panel in panels:
            self.end(panel, how)
        opening = [threading.Thread(target=self.open, args=(panel, self.names[panel])) for panel in panels]
        for thread in opening:
            thread.start()
        for thread in opening:
            thread.join()

    def said(self, panel):
        """What the panel's servers wrote to standard error since this was last asked."""
        return self.call("said", {"panel": panel})


def started_twice(world, second=PANEL, **more):
    """Both panels, and their first calls: the chat has counted 1, the agent panel 2."""
    desktop = Desktop(world, **more)
    desktop.open("chat", CHAT)
    desktop.open("agent", second)
    counted = [desktop.count("chat"), desktop.count("agent"), desktop.count("agent")]
    world.check("each panel has its own server", counted == [1, 1, 2], counted)
    world.lives(2, "two panels")
    for panel in ("chat", "agent"):
        desktop.said(panel)
    return desktop


# No panel more than twice: the third orderly close within a minute, with no well answered call in between, is a wish for a fresh server.
ORDERS = {"alone, then both": (("chat",), ("agent",), ("chat", "agent")), "both, then alone": (("agent", "chat"), ("agent",), ("chat",))}


def two_names(order, how):
    def scenario(world):
        # Long enough that a claim which waited for the other panel would be seen.
        world.config_path.write_text("claim_wait_ms = 5000\n")
        desktop = started_twice(world)
        expected = {"chat": 1, "agent": 2}
        for panels in ORDERS[order]:
            begun = time.monotonic()
            desktop.reload(panels, how)
            took, again = time.monotonic() - begun, " and ".join(panels)
            for panel in panels:
                expected[panel] += 1
                counted = desktop.count(panel)
                world.check(f"after a reload of {again} the {panel} finds its own count, {expected[panel]}", counted == expected[panel], counted)
            world.check("no claim waits for the other panel", took < 4, f"{took:.1f} s")
            world.lives(2, f"after a reload of {again}")
    scenario.__name__ = f"two_names_{how}_{order}".replace(" ", "_")
    return scenario


def told(world, desktop, *panels):
    """The front of one of these says that this is a fresh server, and what to do about it."""
    said = "\n".join(desktop.said(panel) for panel in panels)
    world.check(f"the {' or the '.join(panels)} is told, with a remedy", re.search(r"mcp-sessiond: .*(siblings|--instance|--name)", said, re.DOTALL), said)


def other_host(world):
    """Another program, of which the configuration says only that its servers may be resumed. Claude Desktop's row also has `siblings`."""
    world.config_path.write_text('[[hosts]]\nexecutable = "some-desktop"\nresume = "always"\n')
    return "some-desktop"


def equal_names(how):
    """Nothing tells the two apart, so by default a reload is fresh: in a host that may resume, and whose row does not say which of several."""
    def scenario(world):
        desktop = started_twice(world, second=CHAT, program=other_host(world))
        for panel in ("chat", "agent", "chat"):
            desktop.reload([panel], how)
            counted = desktop.count(panel)
            world.check(f"after a reload of the {panel} alone its server is a fresh one", counted == 1, counted)
            told(world, desktop, panel)
            world.lives(2, f"after a reload of the {panel} alone")
        desktop.reload(["chat", "agent"], how)
        counted = [desktop.count("chat"), desktop.count("agent")]
        world.check("after a reload of both the servers are fresh ones", counted == [1, 1], counted)
        told(world, desktop, "chat")
        world.lives(2, "after a reload of both")
    scenario.__name__ = f"equal_names_{how}"
    return scenario


def equal_names_successor(how):
    """`siblings = "successor"`: the only free one is the claimer's, also while others live."""
    def scenario(world):
        world.config_path.write_text('siblings = "successor"\n')
        desktop = started_twice(world, second=CHAT)
        expected = {"chat": 1, "agent": 2}
        for panel in ("chat", "agent", "chat"):
            desktop.reload([panel], how)
            expected[panel] += 1
            counted = desktop.count(panel)
            world.check(f"after a reload of the {panel} alone it finds its own count, {expected[panel]}", counted == expected[panel], counted)
            world.lives(2, f"after a reload of the {panel} alone")
        desktop.reload(["chat", "agent"], how)
        counted = [desktop.count("chat"), desktop.count("agent")]
        world.check("after a reload of both the servers are fresh ones", counted == [1, 1], counted)
        # It is told once: to the first one that begins afresh.
        told(world, desktop, "chat", "agent")
        world.lives(2, "after a reload of both")
    scenario.__name__ = f"equal_names_successor_{how}"
    return scenario


def starts_before_it_closes(second):
    """A manager that starts the new server, and closes the old one a little later, in a host whose row does not say which of several."""
    def scenario(world):
        desktop = started_twice(world, second, program=other_host(world))
        for panel, other in (("chat", "agent"), ("agent", "chat")):
            before = desktop.count(panel)
            opening = threading.Thread(target=desktop.open, args=(f"{panel} anew", desktop.names[panel]))
            opening.start()
            time.sleep(0.3)
            desktop.end(panel, "orderly")
            opening.join()
            counted = desktop.count(f"{panel} anew")
            if second == CHAT:
                world.check(f"the {panel} never gets its sibling's count", counted in (1, before + 1) and counted != desktop.count(other), counted)
            else:
                world.check(f"the {panel} finds its own count", counted == before + 1, (before, counted))
            world.lives(2, f"when the old one of the {panel} is closed")
    scenario.__name__ = "starts_before_it_closes_" + ("equal_names" if second == CHAT else "two_names")
    return scenario


def unused_twin(world):
    """A twin that only said hello and listed tools, and goes, costs the other nothing."""
    desktop = Desktop(world)
    desktop.open("chat", CHAT)
    desktop.open("twin", CHAT)
    counted = desktop.count("chat")
    world.check("a first call", counted == 1, counted)
    desktop.end("twin", "orderly")
    world.lives(1, "the unused twin has gone, and its server with it")
    for how in WAYS:
        desktop.reload(["chat"], how)
        counted += 1
        seen = desktop.count("chat")
        world.check(f"after {how} the chat finds its own count, {counted}", seen == counted, seen)
        world.lives(1, "the chat's server")


def kills(world):
    desktop = started_twice(world)
    expected = {"chat": 1, "agent": 2}
    for what in (("front",), ("front", "daemon")):
        world.kill(*what)
        for panel in ("agent", "chat"):
            desktop.open(panel, desktop.names[panel])
            expected[panel] += 1
            counted = desktop.count(panel)
            world.check(f"after SIGKILL of {' and '.join(what)} the {panel} finds its own count, {expected[panel]}", counted == expected[panel], counted)
        world.lives(2, f"after SIGKILL of {' and '.join(what)}")
    world.kill("daemon")
    counted = [desktop.count("chat"), desktop.count("agent")]
    world.check("SIGKILL of the daemon is not noticed", counted == [4, 5], counted)
    desktop.process.kill()
    world.lives(0, "after SIGKILL of the host")


SCENARIOS = [*(two_names(order, how) for order in ORDERS for how in WAYS), *map(equal_names, WAYS), *map(equal_names_successor, WAYS),
             starts_before_it_closes(PANEL), starts_before_it_closes(CHAT), unused_twin, kills]
OBSERVED = []

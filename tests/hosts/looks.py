"""Hosts that could not be run, imitated as the kernel and the server see them: Visual Studio Code, Cursor and Claude Desktop.

The imitation is `desktop.mjs` under the name of the host's executable, with the host's command line, and with its name and version in
`initialize`. A program that nobody knows stands beside them, so that what a row of the table of hosts changes can be seen.
"""

import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path

import desktop
import scripted
from drivers import Peer
from harness import HERE, INSTALLED, number, start_of, until

NAME, PACKAGE = "Imitated", None
NEEDS = {"desktop": desktop.PACKAGE}
# How Chromium shows a process that runs Node.
UTILITY = "--type=utility --utility-sub-type=node.mojom.NodeService --lang=en-US --service-sandbox-type=none"


@dataclass(frozen=True)
class Look:
    """How a host looks."""

    # The file name of its executable.
    program: str
    # Its command line, or the script that it runs and the script's arguments.
    title: str
    script: tuple
    # `clientInfo`.
    client: str
    version: str
    # Whether it starts its servers under the helper `disclaimer`.
    disclaims: bool = False


LOOKS = {
    "vscode": Look("code", f"/usr/share/code/code {UTILITY}", (), "Visual Studio Code", "1.128.0"),
    "vscode_remote": Look("node", "", (".vscode-server/cli/servers/Stable-0123456789/server/out/bootstrap-fork", "--type=extensionHost",
                                         "--transformURIs", "--useHostProxy=false"),
                          "Visual Studio Code", "1.128.0"),
    "cursor": Look("cursor", f"/usr/share/cursor/cursor {UTILITY}", (), "cursor-vscode", "1.0.0"),
    "claude_desktop": Look("Claude", "", (), "claude-ai", "0.1.0", disclaims=True),
    "unknown": Look("some-editor", f"/usr/share/some-editor/some-editor {UTILITY}", (), "some-editor", "1.0.0"),
}


class Imitation(Peer):
    """One process of such a host."""

    def __init__(self, world, look, command=None):
        script, command = [HERE / "desktop.mjs"], command or world.wrapped()
        if look.script:
            path = world.home / look.script[0]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.symlink_to(HERE / "desktop.mjs")
            script = [path]
        if look.disclaims:
            command = [desktop.executable(world, "disclaimer"), HERE / "disclaimer.mjs", "--pgroup", "--", *command]
        words = [desktop.executable(world, look.program), *script, *look.script[1:]]
        # A title takes the place of the command line, and can't be longer.
        words += ["." * len(look.title)] if look.title else []
        env = world.environment(SDK_FROM=str(INSTALLED / "desktop" / "package.json"), HOST_TITLE=look.title,
                                HOST_COMMAND=json.dumps([str(part) for part in command]))
        super().__init__(world, words, env)
        self.world, self.look = world, look

    def open(self, panel, name=None):
        """Starts a server as this client, or as the host's own: how often it has counted, or an error's text."""
        self.call("open", {"panel": panel, "name": name or self.look.client, "version": self.look.version}, seconds=60)
        return self.count(panel)

    def count(self, panel):
        return number(text := str(self.call("count", {"panel": panel}))) or text

    def end(self, panel, how):
        self.call("close", {"panel": panel, "how": how}, seconds=60)

    def said(self, panel):
        return self.call("said", {"panel": panel})


def seen_by_the_kernel(world, imitation):
    """Checks that the imitation looks as it should."""
    look, proc = imitation.look, Path(f"/proc/{imitation.pid}")
    program, line = os.path.basename(os.readlink(proc / "exe")), (proc / "cmdline").read_bytes().decode().replace("\0", " ").strip()
    world.check(f"its executable is {look.program}", program == look.program, program)
    shown = line.startswith(look.title) if look.title else all(word in line for word in look.script)
    world.check("its command line is the host's", shown, line)
    client = next((one["message"]["params"]["clientInfo"] for one in world.journal("message") if one["message"].get("method") == "initialize"), None)
    world.check("it introduces itself as the host", client == {"name": look.client, "version": look.version}, client)


def comes_back(name, keeps):
    """A scenario: one server, whose connection is cut, and is closed in an orderly way."""
    def scenario(world):
        imitation = Imitation(world, LOOKS[name])
        counted = [imitation.open("one")]
        seen_by_the_kernel(world, imitation)
        imitation.end("one", "SIGKILL")
        imitation.said("one")
        counted.append(imitation.open("one"))
        if keeps:
            world.check("after a cut the server goes on", counted == [1, 2], counted)
        else:
            world.check("no row, so after a cut a used server is a fresh one", counted == [1, 1], counted)
            said = imitation.said("one")
            world.check("and a line names the rule and the flag", "--resume" in said, said)
        imitation.end("one", "orderly")
        imitation.said("one")
        counted.append(imitation.open("one"))
        if keeps:
            world.check("after an orderly close the server goes on, by the host's row", counted == [1, 2, 3], counted)
        else:
            world.check("no row, so after an orderly close the server is a fresh one", counted == [1, 1, 1], counted)
            said = imitation.said("one")
            world.check("the line is said once for this host and key", "--resume" not in said, said)
        world.lives(1, "one connection")
        imitation.process.kill()
        world.lives(0, "after the end of the host")
    scenario.__name__ = name
    return scenario


def started_twice(name):
    """A scenario: the host starts the server twice under one name, and nothing tells the two apart."""
    def scenario(world):
        imitation = Imitation(world, LOOKS[name])
        opening = [threading.Thread(target=imitation.open, args=[panel]) for panel in ("left", "right")]
        for one in opening:
            one.start()
        for one in opening:
            one.join()
        seen_by_the_kernel(world, imitation)
        counted = [imitation.count("left"), imitation.count("right"), imitation.count("right")]
        world.check("each has a server of its own", counted == [2, 2, 3], counted)
        for how in ("orderly", "SIGKILL"):
            imitation.end("right", how)
            counted = imitation.open("right")
            world.check(f"after {how} of one it begins afresh", counted == 1, counted)
            counted = imitation.count("left")
            world.check("and the other one goes on", counted == (3 if how == "orderly" else 4), counted)
            world.lives(2, "two connections")
        imitation.process.kill()
        until(lambda: start_of(imitation.pid) is None)
        world.lives(0, "after the end of the host")
    scenario.__name__ = f"{name}_twice"
    return scenario


def names(world):
    """What a client calls itself makes its host's rule stricter, never wider, and concerns nobody else in the same process."""
    known, unknown = Imitation(world, LOOKS["vscode"]), Imitation(world, LOOKS["unknown"])
    known.open("own")
    known.open("library", "mcp")
    unknown.open("other", "Visual Studio Code")
    for imitation, panel, name, goes_on in ((known, "own", None, 2), (known, "library", "mcp", 1), (unknown, "other", "Visual Studio Code", 1)):
        imitation.end(panel, "orderly")
        counted = imitation.open(panel, name)
        world.check(f"{imitation.look.program} as {name or imitation.look.client}, after an orderly close: {goes_on}", counted == goes_on, counted)
    for imitation, panel, name, goes_on in ((known, "own", None, 3), (known, "library", "mcp", 1), (unknown, "other", "Visual Studio Code", 1)):
        imitation.end(panel, "SIGKILL")
        counted = imitation.open(panel, name)
        world.check(f"{imitation.look.program} as {name or imitation.look.client}, after a cut: {goes_on}", counted == goes_on, counted)
    world.lives(3, "three connections")


def install(world):
    """A host with a row: the server is installed for longer than the host waits, and the host tries again and again."""
    imitations = {}

    def try_(command, seconds):
        key = tuple(command)
        if key not in imitations:
            imitations[key] = Imitation(world, LOOKS["vscode"], command)
        params = {"panel": "one", "name": "Visual Studio Code", "version": "1.128.0", "seconds": seconds}
        return isinstance(imitations[key].call("open", params, seconds=90), int)
    scripted.Installation(world).judge(try_)


SCENARIOS = [comes_back("vscode", True), comes_back("vscode_remote", True), comes_back("claude_desktop", True), comes_back("unknown", False),
             started_twice("cursor"), names, install]
OBSERVED = []

"""A bundle on stdio, while whatever it consists of is killed, and its file edited: rounds drawn from a seed, and what became of each call."""

import asyncio
import random
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

from bundles.host import Call, Host
from bundles.world import STARTING_MAX, World
from harness import start_of

NAMES = ["a", "b", "c", "d", "e", "f"]
TOOLS = ["work", "work", "work", "count", "ask", "log", "own"]
EVENTS = ["nothing", "front", "daemon", "keeper", "server", "add", "remove", "change", "crash", "hang", "missing", "mend", "no JSON"]
WEIGHTS = [4, 3, 2, 3, 3, 2, 2, 2, 1, 1, 1, 2, 1]
GOOD = ["ok", "outcome unknown", "not sent", "cancelled", "front gone"]
BAD = ["hung", "wrong answer", "lost", "executed twice", "names", "state lost", "too many starting", "left behind", "other"]
# Seconds that a call may take after what it waits for is there, and a server that was killed may be away. Its keeper's pause
# doubles up to 30 s.
PATIENCE, AWAY = 30, 100


class Campaign:
    """The rounds of one seed."""

    def __init__(self, seed, kept, tell):
        self.seed, self.chance, self.kept, self.tell = seed, random.Random(seed), kept, tell
        self.counts, self.events = dict.fromkeys(GOOD + BAD, 0), {}
        # Names by server and tool, and by server its pid and that of its keeper.
        self.table, self.pids = {}, {}
        self.number, self.generation, self.most, self.host = 0, 0, 0, None

    def bad(self, what, why):
        self.counts[what] += 1
        self.tell(f"seed {self.seed}, round {self.number}: {what}: {why}")

    async def run(self, rounds):
        self.world = World()
        self.log = open(self.kept / "rounds.log", "w")
        try:
            for name in NAMES[:4]:
                self.world.servers[name] = ("serve", 0)
            self.world.write_down()
            await self.connect()
            await self.settle()
            for self.number in range(1, rounds + 1):
                await self.round()
            await self.end()
        except asyncio.TimeoutError as error:
            self.bad("hung", f"the front does not answer: {error!r}")
        finally:
            self.log.close()
            await self.world.close(self.kept)

    def note(self, *words):
        print(f"{time.monotonic():.3f} {self.number}", *words, file=self.log, flush=True)

    async def connect(self):
        world = self.world
        host = Host(lambda why: self.bad("wrong answer", why), self.host and self.host.logs)
        self.host = await host.start(world.command, world.environment, world.root, world.root / "front.log")

    def good(self):
        """Servers that are to be there."""
        return [name for name, (does, _) in self.world.servers.items() if does == "serve"]

    async def settle(self):
        """Waits until all servers are there that can be, and looks at their names."""
        until, good = time.monotonic() + AWAY, set(self.good())
        while True:
            listed = await self.host.tools()
            if listed is None:
                return self.bad("other", f"the front has ended: {self.host.process.returncode}")
            there = {server for server, _ in listed.values()}
            self.look(listed)
            if there == good:
                self.listed = {of: name for name, of in listed.items()}
                return
            if time.monotonic() > until:
                self.listed = {of: name for name, of in listed.items()}
                return self.bad("lost", f"{sorted(there)} are there and not {sorted(good)}")
            # A list that was asked for before it changed is told so.
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.host.changed.wait(), 2)

    def look(self, listed):
        """Who has a name keeps it."""
        for name, of in listed.items():
            server, own = of
            if self.table.setdefault(of, name) != name:
                self.bad("names", f"{of} was {self.table[of]} and is {name}")
            if name not in (own, f"{server}_{own}"):
                self.bad("names", f"{of} is {name}")
            taken = [other for other, its in self.table.items() if its == name and other != of]
            if taken:
                self.bad("names", f"{name} is of {of} and of {taken}")

    def draw(self):
        """The calls of a round, and what happens meanwhile."""
        calls, good = [], self.good()
        for at in range(self.chance.randint(1, 8)):
            if not good:
                break
            server, tool = self.chance.choice(good), self.chance.choice(TOOLS)
            tool = f"own_{server}" if tool == "own" else tool
            arguments = {"key": f"r{self.number}-{at}"}
            if tool == "work":
                arguments |= {"steps": self.chance.randint(1, 6)}
                if self.chance.random() < 0.7:
                    arguments["gate"] = str(self.world.root / f"gate-{self.number}")
            calls.append(Call(arguments["key"], server, tool, arguments))
        cancelled = [call for call in calls if call.arguments.get("gate") and self.chance.random() < 0.2]
        events = [self.chance.choices(EVENTS, WEIGHTS)[0]]
        while self.chance.random() < 0.3:
            # Also while what was killed is not back.
            another = self.chance.choices(EVENTS, WEIGHTS)[0]
            events += [another] if another not in events else []
        return calls, cancelled, events

    async def round(self):
        calls, cancelled, events = self.draw()
        self.note(events, [(call.key, call.server, call.tool) for call in calls], "cancelled", [call.key for call in cancelled])
        for call in calls:
            name = self.listed.get((call.server, call.tool))
            if name is None:
                continue
            self.host.call(call, name)
        calls = [call for call in calls if hasattr(call, "id")]
        is_early = self.chance.random() < 0.3
        if not is_early:
            await self.begun([call for call in calls if call.arguments.get("gate")])
        for call in cancelled:
            if call in calls:
                self.host.cancel(call)
        # Servers that may lose their state.
        touched = set()
        for event in events:
            touched.update(await self.happen(event, touched))
        if "no JSON" in events:
            self.world.write_down()
        Path(self.world.root / f"gate-{self.number}").touch()
        for call in calls:
            if call.is_cancelled:
                continue
            try:
                await asyncio.wait_for(call.done.wait(), PATIENCE)
            except asyncio.TimeoutError:
                self.bad("hung", f"{call.key} of {call.server} {call.tool}, {events} {touched}")
        if "front" in events:
            await self.connect()
        await self.settle()
        self.judge(calls, events, touched)
        await self.remember(touched)
        most = self.world.most_starting()
        if most > max(self.most, STARTING_MAX):
            self.bad("too many starting", f"{most} at once")
        self.most = max(self.most, most)

    async def begun(self, calls):
        """Waits until their servers have begun these."""
        until = time.monotonic() + PATIENCE
        while keys := {call.key for call in calls if not call.done.is_set()} - {words[0] for words in self.world.journal("begin")}:
            if time.monotonic() > until:
                return self.bad("hung", f"{keys} did not begin")
            await asyncio.sleep(0.01)

    async def happen(self, event, touched):
        """Lets it happen. Returns the servers that may lose their state by it, beside those that have."""
        self.events[event] = self.events.get(event, 0) + 1
        world, good = self.world, self.good()
        if event == "nothing":
            return []
        if event == "front":
            await world.kill([self.host.process.pid])
            await self.host.reading
            return []
        if event == "daemon":
            await world.kill(world.ours("run"))
            return []
        if event in ("keeper", "server"):
            # Of others the process may be another one already.
            chosen = self.chance.sample(good, min(len(good), self.chance.randint(1, 2)))
            chosen = [name for name in chosen if name in self.pids and name not in touched]
            if event == "keeper":
                with open(world.starts, "a") as starts:
                    starts.write("".join(f"~ {name}\n" for name in chosen))
            pids = [self.pids[name][event == "keeper"] for name in chosen]
            await world.kill(pids)
            # A server ends with its keeper.
            if left := await self.until(lambda: [pid for name in chosen if start_of(pid := self.pids[name][0])]):
                self.bad("left behind", f"of {chosen}: {left}")
            return chosen
        return self.edit(event, good)

    def edit(self, event, good):
        world = self.world
        self.generation += 1
        if event == "no JSON":
            world.write_text('{"mcpServers": {')
            return []
        bad = [name for name, (does, _) in world.servers.items() if does != "serve"]
        absent = [name for name in NAMES if name not in world.servers]
        of = {"add": absent, "mend": bad, "remove": list(world.servers)}.get(event, good)
        if not of or event in ("remove", "crash", "hang", "missing") and len(good) < 3:
            return []
        name = self.chance.choice(of)
        if event == "remove":
            del world.servers[name]
            self.table = {of: listed for of, listed in self.table.items() if of[0] != name}
        else:
            does = event if event in ("crash", "hang", "missing") else "serve"
            world.servers[name] = (does, self.generation)
        world.write_down()
        self.note(event, name)
        return [name]

    def judge(self, calls, events, touched):
        begun = {}
        for key, server, pid in self.world.journal("begin"):
            begun.setdefault(key, []).append((server, pid))
        for call in calls:
            verdict, why = self.verdict(call, begun.get(call.key, []), touched)
            self.note(call.key, verdict, why)
            if verdict in BAD:
                self.bad(verdict, f"{call.key} {call.server} {call.tool}: {why}; {events} {touched}")
            else:
                self.counts[verdict] += 1

    def verdict(self, call, begun, touched):
        if len(begun) > 1:
            return "executed twice", f"by {begun}"
        if begun and begun[0][0] != call.server:
            return "wrong answer", f"it was executed by {begun}"
        if [text for _, text in call.progress if not begun or text != f"{call.key} {begun[0][1]}"]:
            return "wrong answer", f"progress {call.progress}"
        numbers = [number for number, _ in call.progress]
        if numbers != list(range(1, len(numbers) + 1)):
            return "lost", f"progress {numbers}"
        if call.text is not None:
            return self.answered(call, begun, numbers)
        if call.error is not None:
            outcome = (call.error.get("data") or {}).get("outcome")
            if call.server not in touched:
                return "lost", f"{call.error}"
            if outcome == "unknown":
                return "outcome unknown", ""
            return ("lost", f"it was executed: {call.error}") if begun else ("not sent", f"{call.error}")
        return ("cancelled", "") if call.is_cancelled else ("front gone", "") if call.is_abandoned else ("other", "no answer")

    def answered(self, call, begun, numbers):
        key, server, pid, *found = call.text.split()
        if (key, server, [(server, pid)]) != (call.key, call.server, begun):
            return "wrong answer", call.text
        if call.tool == "work" and len(numbers) != call.arguments["steps"]:
            return "lost", f"progress {numbers}"
        if call.tool == "ask" and found != [f"to-{call.key}"] and not call.is_cancelled:
            return "wrong answer", call.text
        return "ok", ""

    async def remember(self, touched):
        """Which process each server is: it is the same unless something has happened to it."""
        # A server of which its host has not noticed that it was away.
        away = lambda: [server for server in self.good() if server not in self.world.living()]
        if left := await self.until(away):
            self.bad("lost", f"{left} have no process")
        living = self.world.living()
        for server in self.good():
            before, now = self.pids.get(server), living.get(server)
            if before and now != before and server not in touched:
                self.bad("state lost", f"{server} was {before} and is {now}")
        self.pids = {server: living[server] for server in self.good() if server in living}

    async def until(self, look):
        """Waits until `look` finds nothing, and returns what it found last."""
        until = time.monotonic() + AWAY
        while (found := look()) and time.monotonic() < until:
            await asyncio.sleep(0.02)
        return found

    async def end(self):
        """The host leaves. Nothing is left."""
        self.host.process.stdin.close()
        code = await asyncio.wait_for(self.host.process.wait(), PATIENCE)
        if code:
            self.bad("other", f"the front has ended with {code}")
        await self.until(lambda: self.world.ours("keep"))
        await self.world.kill(self.world.ours("run"), signal.SIGTERM)
        if left := self.world.all():
            self.bad("left behind", left)


def run(seed, rounds, logs, tell):
    """The campaign of one seed."""
    kept = logs / f"bundle-{seed}"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    campaign = Campaign(seed, kept, tell)
    asyncio.run(campaign.run(rounds))
    return campaign


def table(campaign):
    """The results, in Markdown."""
    events = ", ".join(f"{what} {count}" for what, count in sorted(campaign.events.items()))
    heads, counts = " | ".join(GOOD + BAD), " | ".join(str(campaign.counts[name]) for name in GOOD + BAD)
    calls = sum(campaign.counts[name] for name in GOOD)
    return (f"| calls | {heads} | starting at once | what happened |\n|{' --- |' * (len(GOOD + BAD) + 3)}\n"
            f"| {calls} | {counts} | {campaign.most} of {STARTING_MAX} | {events} |\n")

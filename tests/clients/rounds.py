"""Rounds: what is cut when, and what became of the call."""

import asyncio
import random
from dataclasses import dataclass

from wire import ASKED, BEFORE, Call, Wire
from world import Driver, World

# How long a client waits for an answer, in seconds. A call that takes longer hangs.
PATIENCE = 12
GOOD = ["ok", "outcome unknown", "not started", "no event id", "client ended", "gave up"]
CUT = ["connection", "serve", "daemon", "serve and daemon", "server"]
BAD = ["hung", "answered twice", "lost", "executed twice"]


@dataclass(frozen=True)
class Cut:
    """What is cut once `at` events of a call were passed on."""

    at: int
    what: str
    # Of a connection: `fin`, `reset`, or `end`, which ends the answer in good order.
    how: str
    # Of a connection: `one`, or `all` that the client has.
    scope: str
    # Of `serve`: how long it is away, in seconds.
    away: float

    @property
    def breaks(self):
        """Whether it ends connections. A client keeps its own when the daemon or the server is gone."""
        return self.what not in ("daemon", "server")


@dataclass
class Drawn:
    """One call of a round."""

    key: str
    steps: int
    # The number after which the server waits for the first cut of the round; -1: it says everything at once.
    hold: int
    cuts: list
    return_cuts: list


def draw(chance, number, most, whats):
    """A round: calls at one time, with so many cuts at most, of these."""
    calls = []
    for letter in "abc"[:chance.choice([1, 1, 2, 3])]:
        # Now and then more than comes in one page of a replay.
        steps = chance.randint(2, 8) if chance.random() < 0.95 else 300
        calls.append(Drawn(f"r{number}{letter}", steps, chance.choice([-1, chance.randint(0, steps)]), [], []))
    left = 1
    while left and most:
        call, most = chance.choice(calls), most - 1
        # Before the answer to the POST begins, or after any event: the first has no message, the last is the answer.
        early = chance.random() < 0.1
        at = chance.choice([BEFORE, ASKED]) if early else chance.randint(0, call.steps + 1)
        if any(cut.breaks for cut in call.cuts) and chance.random() < 0.3:
            call.return_cuts.append(cut(chance, chance.choice([BEFORE, ASKED]), whats))
        elif at not in [cut.at for cut in call.cuts]:
            call.cuts.append(cut(chance, at, whats))
        left = chance.random() < 0.4
    for call in calls:
        call.cuts.sort(key=lambda cut: cut.at)
        if call.cuts:
            # What it waits for must not be what comes after that.
            first = max(call.cuts[0].at, 0)
            call.hold = -1 if first > call.steps else chance.choice([-1, first])
    return calls, chance.random() < 0.5


def cut(chance, at, whats):
    what = chance.choices(whats, [3, 3, 3, 3, 1][: len(whats)])[0]
    how = chance.choice(["fin", "reset", "end"]) if what == "connection" else "kill"
    return Cut(at, what, how, chance.choice(["one", "all"]), chance.uniform(0, 0.2))


def made_of(call, drawn):
    """The cuts that came about."""
    return set(drawn.cuts + drawn.return_cuts) - set(call.cuts + call.return_cuts)


def judge(call, said, executed, steps, client_ended, counts_breaks, has_stayed_away):
    """What became of a call: one of GOOD or BAD, and why. `client_ended`: by an error of its own, with all its calls.
    `counts_breaks`: whether a stream with the rest that breaks is an attempt that failed, for this client. `has_stayed_away`: whether a
    connection was cut of a client that may not come back then."""
    mine = [one for one in said if one.get("key") == call.key]
    last = next((one for one in mine if one.keys() & {"result", "error"}), said[-1])
    numbers = [one["progress"] for one in mine if "progress" in one]
    if executed > 1:
        return "executed twice", f"{executed} times"
    if len(call.answers) > 1 or sum("result" in one or "error" in one for one in mine) > 1:
        return "answered twice", f"by events {call.answers}"
    if any(len(events) > 1 for events in call.progress.values()):
        return "answered twice", f"progress by events {call.progress}"
    if list(call.progress) != sorted(call.progress):
        return "lost", f"progress in another order: {list(call.progress)}"
    if "result" in last:
        if last["result"] != f"{call.key} {steps}":
            return "lost", f"another answer: {last['result']}"
        # A client that goes back to an event that it has had is told again what follows on it.
        if sorted(set(numbers)) != list(range(1, steps + 1)):
            return "lost", f"progress {numbers} of {steps}"
        return "ok", "" if len(numbers) == steps else f"it went back: progress {numbers}"
    why = str({name: value for name, value in last.items() if name != "key"})
    outcome = (last.get("data") or {}).get("outcome") if isinstance(last.get("data"), dict) else None
    if outcome == "unknown":
        return "outcome unknown", why
    if outcome == "not_sent":
        return ("lost", f"it was started: {why}") if executed else ("not started", why)
    # What follows is the client's own error.
    if not call.resumable:
        return "no event id", why
    if client_ended:
        return "client ended", why
    # Most try twice, and then give the call up.
    if call.failed + call.broken * counts_breaks >= 2 or has_stayed_away:
        return "gave up", why
    if last.get("late") or "silent" in last:
        return "hung", why
    return "lost", why


class Campaign:
    """The rounds of one client. `durable`: the server, where it is not behind `serve`."""

    def __init__(self, client, seed, kept, durable=None):
        self.client, self.kept, self.durable = client, kept, durable
        # A server that speaks HTTP itself is killed where `serve` would be.
        self.whats = CUT[:-1] if durable else CUT
        # The client's name is part of the seed, so that its rounds do not depend on which others are asked for.
        self.chance = random.Random(f"{seed} {client.name}")
        self.counts = dict.fromkeys(GOOD + BAD, 0)
        self.cuts = {}

    async def run(self, rounds, tell):
        with open(self.kept / "wire.log", "w") as log:
            self.wire = Wire(log)
            self.wire.act = self._act
            await self.wire.listen()
            self.world = World(self.wire, durable=self.durable)
            self.back = asyncio.Event()
            self.back.set()
            self.driver = None
            try:
                await self.world.start()
                for number in range(rounds):
                    await self._round(number, tell)
                if self.driver and self.driver.process:
                    await self.driver.end()
            finally:
                await self.world.close(self.kept)
                self.wire.listener.close()

    async def _round(self, number, tell):
        drawn, self.until_back = draw(self.chance, number, self.client.cuts, self.whats)
        self.gate = self.world.root / f"gate-{number}"
        calls = [Call(one.key, list(one.cuts), list(one.return_cuts)) for one in drawn]
        self.wire.expect(calls)
        for one in drawn:
            self.wire.note(f"-- {one}")
        asked = [{"key": one.key, "steps": one.steps, "hold": one.hold, "gate": str(self.gate)} for one in drawn]
        said = await (await self._connected()).call(asked)
        if "gone" in said[-1] and all(call.id is None for call in calls):
            # The round before was the end of this client, which it did not say.
            said = await (await self._connected()).call(asked)
        # Whatever is left of it ends now.
        self._open()
        await self.back.wait()
        for one in said:
            if "trouble" in one:
                self.wire.note(f"-- {self.client.name} says: {one['trouble']}")
        ended = "gone" in said[-1] or any(one.get("ended") for one in said)
        client_ended = ended and any(not call.resumable for call in calls)
        if ended and self.driver.process:
            await self.driver.end(seconds=0)
        made = [cut for call, one in zip(calls, drawn) for cut in made_of(call, one)]
        for cut in made:
            self.cuts[cut.what] = self.cuts.get(cut.what, 0) + 1
        has_stayed_away = self.client.stays_away and any(cut.breaks for cut in made)
        for call, one in zip(calls, drawn):
            executed = self.world.executed(call.key)
            verdict, why = judge(call, said, executed, one.steps, client_ended, self.client.counts_breaks, has_stayed_away)
            self.wire.note(f"== {call.key}: {verdict} {why}")
            self.counts[verdict] += 1
            tell(f"{call.key}: {verdict}", verdict in BAD, f"{why} {drawn} statuses {call.statuses}")

    def _open(self):
        """What the server waits for is there: moved to its place, which a server may watch."""
        made = self.gate.with_suffix(".made")
        made.touch()
        made.rename(self.gate)

    async def _connected(self):
        """The client, which is started again where it has ended."""
        if not (self.driver and self.driver.process):
            url = f"http://127.0.0.1:{self.wire.client_port}/mcp"
            self.driver = Driver(self.client.command, url, PATIENCE, self.world)
            await self.driver.start()
        return self.driver

    async def _act(self, cut):
        """Carries out a cut. What the server waits for is there then, or once `serve` is back."""
        if "serve" in cut.what.split() and self.back.is_set():
            self.back.clear()
            await self.world.kill_serve()
            self.wire.cut_all()
            asyncio.get_running_loop().create_task(self._bring_back(cut.away))
        if "daemon" in cut.what.split():
            await self.world.kill_daemon()
        if cut.what == "server":
            await self.world.kill_server()
        if self.back.is_set() or not self.until_back:
            self._open()

    async def _bring_back(self, away):
        await asyncio.sleep(away)
        await self.world.start()
        self._open()
        self.back.set()

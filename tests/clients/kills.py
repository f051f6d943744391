"""Processes are killed, between calls and during them, and each fresh server in the ledger has to be named by a line that its host reads."""

import asyncio
import json
import os
import random
import re
import shutil
import signal
import time

from harness import start_of
from ledgers.connections import Call, Http, Stdio, discover
from ledgers.world import ENTRIES, OF_HOST, OVER_HTTP, ROWS, World

# What is killed by each kind of fault, where it is that simple. `front` is `serve` over HTTP.
KILLS = {
    "server": ["server"], "front": ["front"], "keeper": ["keeper"], "daemon": ["daemon"], "front+daemon": ["front", "daemon"],
    "front+keeper": ["front", "keeper"], "front+server": ["front", "server"], "daemon+keeper": ["daemon", "keeper"],
    "daemon+server": ["daemon", "server"], "all three": ["front", "daemon", "keeper"],
}
# Beside those: the keeper is stopped and goes on; the host closes and comes back, at once or when the conversation has surely ended; front and server
# or keeper are killed, and then comes a process that only probes, or one that is killed while it connects; the daemon hangs while the host comes
# back; two daemons follow each other after the records were deleted; what the servers are started from is edited before the front is killed; the user
# says `restart` or `stop` between two connections; sockets are deleted, and the front is killed.
OTHERS = ["stop", "close", "leave", "probe", "claim", "hang", "records", "edit", "restart", "halt", "sockets"]
# `serve` has no front that claims; a shared server has another host, and nobody edits it.
# A server elsewhere has no keeper, and may forget its sessions.
ELSEWHERE = {kind: victims for kind, victims in KILLS.items() if "keeper" not in victims} | {
    "session": ["session"], "front+session": ["session", "front"], "all elsewhere": ["front", "daemon", "server"]}
KINDS = {entry: [*KILLS, *OTHERS] for entry in ENTRIES} | {
    entry: [*KILLS, "stop", "close", "hang", "records"] for entry in OVER_HTTP} | {
    "shared": [*KILLS, "stop", "close", "leave", "probe", "claim", "hang", "records"],
    "serve-upstream": [*ELSEWHERE, "stop", "close", "hang", "records"]}
# Those by which a host leaves in an orderly way, and those that may end a server that nobody has killed.
CLOSES = ["close", "leave"]
MAY_END = {"edit": re.compile(r"edited|has changed|differs|was changed|another command"), "sockets": re.compile(r"afresh|fresh|socket|hang|reach"),
           "records": re.compile(r"records|afresh"), "restart": re.compile(r"restart|stopped|was asked"), "halt": re.compile(r"stop")}
WHEN = ["between", "begun", "sent"]
# Wrong: an answer, or a count, of another call or server. Silent: a fresh server that no line names by its reason. Unnamed: a line names the reason,
# and not which of several servers it is. Again: a loss of an earlier fault is told once more, or only now. Resumed: a fresh server is said to be the former
# one. Lost: anything else that was lost, told or started without a reason.
BAD = ["wrong", "doubled", "silent", "unnamed", "again", "resumed", "lost", "hung"]
# Faults of one world, and worlds at a time.
FAULTS, WORLDS = 12, 4
# Seconds that a call may take, and a line after the answer of the fresh server. A keeper's pause before it starts a server again grows.
PATIENCE, LINE = 60, 3
# Seconds in which the front that has told a loss confirms it.
CONFIRMED = 0.2
# What a front says where the host's row, or that there is none, has ended the server.
RULE, OF_RULE = re.compile(r"--resume|conversation|closed|begins afresh"), re.compile(r"--resume")
# Seconds from a close in which the host reconnects for sure, and after which it surely does not.
AGAIN, LEFT = 0.7, 1.3
LOSS = re.compile(r"the server has ended \(|begins afresh|the keeper of the server had ended|a new session was begun")
# The standard error of the other host, and what its calls were refused with.
OTHER = ["other.err", "other-refusals"]
RESUMED = "resumed the server that has been running"
# What names each cause.
REASONS = {
    "server": re.compile(r"signal: 9|SIGKILL|server exited while no host was connected|has forgotten the previous session"),
    "session": re.compile(r"has forgotten the previous session"),
    "keeper": re.compile(r"keeper of the server had ended|process that kept the previous server (was killed|has ended)"),
}


def loss(line):
    """What a line tells: of which server of a bundle, if it says so, how many losses, and the line."""
    several = re.search(r"the (\d+) former ones", line)
    of = re.match(r"(?:mcp-sessiond(?: serve)?: )?(?:session \S+: )?(?:the server has ended \()?(a|b): ", line)
    return of and of[1], (int(several[1]) if several else 1) if LOSS.search(line) else 0, line


class Campaign:
    """The faults of one world: the same for the same seed."""

    def __init__(self, seed, entry, number, faults, kept, tell):
        self.entry, self.faults, self.kept, self.tell = entry, faults, kept, tell
        self.row = list(ROWS)[number % len(ROWS)]
        self.title = f"seed {seed}, {entry} {number} ({self.row})"
        self.chance = random.Random(f"{seed} {entry} {number}")
        self.counts, self.remarks = {}, {}
        self.number, self.kind, self.when, self.fronts, self.keys, self.is_bad = 0, "start", "", 0, 0, False
        # Whether the next fault may come before the last loss was confirmed.
        self.may_repeat = False
        # By name: how many starts were judged. Lines that were read: how many of each place.
        self.judged, self.read, self.doubled = {}, {}, set()
        # The connection of another host, where a server is shared.
        self.other = None
        # The connection of each conversation, and the conversation that the fault concerns. Which places the lines of each are in.
        self.hosts, self.conversation, self.places = {}, "", {}
        # Servers whose host was told once that they end with their connection. When the host has left, and how long it was away.
        self.rule_told, self.left_at, self.away = set(), None, 0.0
        # What deleted records or sockets, or an edited entry, do to the servers of another conversation, once that loses its front.
        self.pending = {}

    def bad(self, what, why):
        self.is_bad = True
        self.counts.setdefault(self.kind, dict.fromkeys(["faults", *BAD], 0))[what] += 1
        self.tell(f"{self.title}, fault {self.number} ({self.kind}, {self.when}): {what}: {why}")

    @property
    def host(self):
        return self.hosts[self.conversation]

    @host.setter
    def host(self, connection):
        self.hosts[self.conversation] = connection

    def of(self, conversation):
        """The servers of a conversation."""
        return [name for name in self.world.names if name[1:] == conversation]

    def remark(self, what):
        self.remarks[what] = self.remarks.get(what, 0) + 1

    def note(self, *words):
        print(f"{time.monotonic():.3f} {self.number}", *words, file=self.log, flush=True)

    async def run(self):
        self.world = World(self.entry, self.chance.choice(["refuses", "refuses", "answers", "exits"]), self.row)
        self.log = open(self.world.root / "faults.log", "w")
        self.note(self.title, self.world.temper)
        try:
            if self.entry in OVER_HTTP:
                await self.world.start_serve()
            for self.conversation in self.world.conversations:
                await self.connect()
            if self.entry == "shared":
                self.other = Stdio(self.world, self.bad, self.world.root / OTHER[0], self.world.other_command)
                await self.other.start(seconds=PATIENCE)
            await self.settle([])
            self.judge([], [])
            for self.number, self.kind in enumerate(self.faults, 1):
                self.counts.setdefault(self.kind, dict.fromkeys(["faults", *BAD], 0))["faults"] += 1
                await self.fault()
        except asyncio.TimeoutError as error:
            self.bad("hung", f"no answer to a request: {error!r}")
        except (OSError, RuntimeError) as error:
            self.bad("lost", f"{error!r}")
        finally:
            self.log.close()
            await self.world.close(self.kept if self.is_bad else None)

    # The host.

    def connection(self, reads=True):
        self.fronts += 1
        errors = self.world.root / f"{'front' if reads else 'probe'}-{self.fronts}.err"
        self.places[errors.name] = self.conversation
        if self.entry in OVER_HTTP:
            return Http(self.world, self.bad, errors)
        names = {"KILLS_CONVERSATION": self.conversation} if self.conversation else {}
        return Stdio(self.world, self.bad, errors, environment=names)

    async def connect(self):
        for _ in range(3):
            self.host = self.connection()
            if self.left_at:
                self.away, self.left_at = time.monotonic() - self.left_at, None
            if await self.host.start(probes=self.chance.random() < 0.5, seconds=PATIENCE):
                return
        raise RuntimeError("a front ends before it has answered `initialize`")

    def call(self, name, is_other=False):
        self.keys += 1
        place = OTHER[1] if is_other else f"refusals-{name[1:]}"
        self.places[place] = name[1:]
        return Call(name, f"k{self.keys}", self.world.refusals.setdefault(place, []))

    async def done(self, call):
        """Waits for the end of a call."""
        try:
            await asyncio.wait_for(call.done.wait(), PATIENCE)
        except asyncio.TimeoutError:
            self.bad("hung", f"{call.key} has no answer")
        self.note(call.key, call.text, call.error)

    # A fault.

    async def fault(self):
        kind, world, chance = self.kind, self.world, self.chance
        self.when, self.conversation, self.away = chance.choice(WHEN), chance.choice(world.conversations), 0.0
        name, gate = chance.choice(self.of(self.conversation)), world.root / f"gate-{self.number}"
        if kind == "edit":
            name = self.of(self.conversation)[0]
        self.note(kind, self.when, name)
        former = {other: world.server(other) for other in world.names}
        call, self.was_cut = None, False
        if self.when != "between":
            call = self.host.begin(self.call(name), gate)
            if self.when == "begun":
                await self.until(lambda: any(words[3] == call.key for words in world.ledger("call")))
            else:
                await asyncio.sleep(chance.random() * 0.005)
        victims = {**KILLS, **ELSEWHERE}.get(kind, [])
        if kind in ("probe", "claim"):
            victims = ["front", chance.choice(["server", "keeper"])]
        if kind in CLOSES:
            await self.close(gate, 1.5 + chance.random() if kind == "leave" else 0)
        elif kind == "stop":
            await self.stop(name)
        elif kind == "hang":
            await self.hang()
        elif kind == "records":
            await self.lose_records()
        elif kind in ("restart", "halt"):
            await self.end(name, gate)
        elif kind in ("edit", "sockets"):
            if kind == "edit":
                world.edit()
            else:
                self.delete_sockets()
            await asyncio.sleep(chance.choice([0, 0, 0.3]))
            await self.cut()
        else:
            await self.kill(victims, name)
        gate.touch()
        # Of a server elsewhere `serve` hears by the stream that belongs to no call, where there is one.
        if self.when == "between" and (victims == ["keeper"] and self.entry in OVER_HTTP or world.upstream and world.temper == "answers"
                                       and victims in (["server"], ["session"])):
            await self.on_record(name, "killed" if victims == ["keeper"] else "forgotten")
        if "front" in victims:
            await self.come_back(kind)
        if call:
            await self.done(call)
        touched = [name] if {"server", "keeper", "session"} & set(victims) or kind in MAY_END else []
        calls = await self.settle(touched)
        await self.named(victims, name, former)
        if self.was_cut or "front" in victims or kind in CLOSES:
            self.pending.pop(self.conversation, None)
        if kind in ("records", "sockets") or kind == "edit" and self.entry == "at":
            for other in world.conversations:
                if other != self.conversation:
                    self.pending.setdefault(other, set()).add(MAY_END[kind].pattern)
        self.check(call, victims, touched)
        self.judge(calls, [call] if call else [])

    async def kill(self, victims, name):
        world, pids = self.world, []
        for victim in self.chance.sample(victims, len(victims)):
            if victim == "session":
                os.kill(world.upstream.pid, signal.SIGUSR1)
                continue
            pid = {"server": world.server, "keeper": world.keeper}[victim](name) if victim in ("server", "keeper") else (
                await world.daemon() if victim == "daemon" else world.serve.pid if self.entry in OVER_HTTP else self.host.process.pid)
            if pid is None:
                self.bad("lost", f"there is no {victim} of {name}")
            else:
                pids.append(pid)
        if "front" in victims:
            world.serves.clear()
        await world.kill(pids)
        self.note("killed", victims, pids)
        if world.upstream and "server" in victims:
            await world.upstream.wait()
            await asyncio.sleep(self.chance.random() * 0.3)
            await world.start_upstream()

    async def on_record(self, name, because):
        """The loss of this server is on record until its client was told."""
        end = time.monotonic() + LINE
        while time.monotonic() < end:
            lost = json.loads((await self.world.say("status", "--json"))[1])["lost"]
            if any(loss["because"] == because and (loss["of"] or name).partition("#")[0] == name[0] for loss in lost):
                return
        self.bad("silent", f"`status` does not know that {name} is lost: {lost}")

    async def cut(self):
        """The front is killed, and the host comes back."""
        self.was_cut = True
        await self.world.kill([self.host.process.pid])
        await self.come_back("cut")

    async def hang(self):
        """The daemon is stopped for 2 to 4 s, in which the host comes back, where it has a front."""
        pid, seconds = await self.world.daemon(), 2 + 2 * self.chance.random()
        os.kill(pid, signal.SIGSTOP)
        waking = asyncio.get_running_loop().call_later(seconds, os.kill, pid, signal.SIGCONT)
        self.note("the daemon hangs for", f"{seconds:.2f}", "s")
        try:
            if self.entry in OVER_HTTP:
                await self.done(self.host.begin(self.call("a")))
            else:
                await self.cut()
            await asyncio.sleep(max(0, waking.when() - asyncio.get_running_loop().time()))
        finally:
            if waking.when() > asyncio.get_running_loop().time():
                waking.cancel()
                if start_of(pid):
                    os.kill(pid, signal.SIGCONT)

    async def lose_records(self):
        """The records are deleted, and the daemon after that ends, too, before the host comes back."""
        world = self.world
        await world.kill([await world.daemon()])
        for path in world.run.glob("sessions.db*"):
            path.unlink(missing_ok=True)
        await world.kill([await world.daemon()])
        if self.entry not in OVER_HTTP:
            await self.cut()

    async def end(self, name, gate):
        """The host leaves, and before it is back its user ends the server."""
        if self.chance.random() < 0.5:
            gate.touch()
        closes = self.chance.random() < 0.5
        if closes:
            self.left_at = time.monotonic()
            if not await self.host.close():
                self.bad("hung", "the front has not ended with its input")
        else:
            self.was_cut = True
            await self.world.kill([self.host.process.pid])
            await self.host.gone()
        gate.touch()
        pid = self.world.server(name)
        code, said = await self.world.say("restart" if self.kind == "restart" else "stop", str(pid)) if pid else (None, "")
        self.note("closed" if closes else "cut", self.kind, pid, code, said)
        self.was_ended = code == 0
        await self.connect()

    def delete_sockets(self):
        for path in [*self.world.run.rglob("*")]:
            if path.is_socket() and self.chance.random() < 0.7:
                self.note("deletes", path.name)
                path.unlink()

    async def come_back(self, kind):
        """The host connects again, on a new process."""
        if self.entry in OVER_HTTP:
            await self.world.serve.wait()
            await asyncio.sleep(self.chance.random() * 0.05)
            return await self.world.start_serve()
        await self.host.gone()
        await asyncio.sleep(self.chance.choice([0, 0, 0.05]))
        if kind == "probe":
            # As hosts do that probe on a process of its own: its standard error is thrown away.
            probe = await self.connection(reads=False).spawn()
            asking = asyncio.create_task(probe.ask(discover))
            await asyncio.wait([asking], timeout=5)
            self.note("the probe was answered", asking.done() and asking.result())
            await probe.close()
        if kind == "claim":
            former = self.connection()
            await former.spawn()
            asking = asyncio.create_task(former.initialize())
            delay = self.chance.random() * 0.08
            await asyncio.sleep(delay)
            await self.world.kill([former.process.pid])
            self.note("killed the claiming front after", f"{delay:.3f}", "s:", former.errors.read_text())
            await former.gone()
            await asking
        await self.connect()

    async def close(self, gate, seconds):
        """The host closes, and comes back after so long."""
        # What is under way may end before the connection does.
        if self.chance.random() < 0.5:
            gate.touch()
        self.left_at = time.monotonic()
        if not await self.host.close():
            self.bad("hung", "the front has not ended with its input")
        gate.touch()
        if self.entry in OVER_HTTP:
            # The next session is another one.
            self.judged = {name: len(self.world.starts(name)) + 1 for name in self.world.names}
        await asyncio.sleep(seconds)
        await self.connect()

    async def stop(self, name):
        """The keeper is stopped for a while, in which the host may also come back."""
        pid, seconds = self.world.upstream.pid if self.world.upstream else self.world.keeper(name), 0.3 + self.chance.random() * 1.2
        comes_back = self.was_cut = self.entry not in OVER_HTTP and self.chance.random() < 0.5
        if pid is None:
            return self.bad("lost", f"there is no keeper of {name}")
        os.kill(pid, signal.SIGSTOP)
        waking = asyncio.get_running_loop().call_later(seconds, os.kill, pid, signal.SIGCONT)
        try:
            if comes_back:
                await self.world.kill([self.host.process.pid])
                await self.host.gone()
                await self.connect()
            else:
                await self.done(self.host.begin(self.call(name)))
        finally:
            if waking.when() > asyncio.get_running_loop().time():
                waking.cancel()
                if start_of(pid):
                    os.kill(pid, signal.SIGCONT)

    async def settle(self, touched):
        """Calls each server until it answers. Only one that was touched may fail at first."""
        calls = []
        for host, name in [*((self.hosts[name[1:]], name) for name in self.world.names), *([(self.other, "a")] if self.other else [])]:
            end = time.monotonic() + PATIENCE
            while time.monotonic() < end:
                call = self.call(name, host is self.other)
                calls.append(call)
                await self.done(host.begin(call))
                if call.text is not None:
                    break
                # The keeper pauses before it starts a server again that has ended often.
                await asyncio.sleep(0.1)
                if name not in touched and call.outcome not in ("not_sent",):
                    self.bad("lost", f"{call.key} of {name}: {call.error}")
            else:
                raise RuntimeError(f"{name} does not answer: {call.error}")
        return calls

    async def until(self, reached, seconds=PATIENCE):
        end = time.monotonic() + seconds
        while not (value := reached()) and time.monotonic() < end:
            await asyncio.sleep(0.005)
        return value

    # What is judged.

    def fresh(self, name):
        """How many servers have taken the place of one that had been initialised, since the last fault."""
        starts, ready = self.world.starts(name), {int(pid) for _, pid in self.world.ledger("ready")}
        return sum(1 for before, _ in list(zip(starts, starts[1:]))[max(self.judged.get(name, 1), 1) - 1:] if before in ready)

    def unread(self, is_other=False, conversation=None):
        """The lines that have come since the last fault, by where: to the host, or to the other one. With a conversation those to this one."""
        return {place: lines[self.read.get(place, 0):] for place, lines in self.world.told().items()
                if (place in OTHER) == is_other and conversation in (None, self.places.get(place, conversation))}

    def losses(self, name, reason=None, is_other=False):
        """How many losses of this server the new lines tell, in the place that tells most."""
        counts = {}
        for place, lines in self.unread(is_other, name[1:]).items():
            where = place.partition("-")[0]
            counts[where] = counts.get(where, 0) + sum(number for of, number, line in map(loss, lines)
                                                       if number and of in (name[0], None) and (reason is None or reason.search(line)))
        return max(counts.values(), default=0)

    def rule(self, victims):
        """Whether the host's row, or that there is none, has ended the servers of this conversation by this fault: None where that depends on how
        fast this machine is."""
        if self.entry not in OF_HOST or self.row == "always":
            return False
        has_left = "front" in victims or self.kind in CLOSES or self.was_cut or self.kind in ("restart", "halt")
        if self.row == "none":
            return has_left
        if self.kind not in CLOSES and not self.away:
            return False
        return None if AGAIN <= self.away <= LEFT else self.away > LEFT

    def says(self, name, reason):
        """Whether a new line gives this reason."""
        return any(reason.search(line) for lines in self.unread(conversation=name[1:]).values() for line in lines)

    def has_said(self, name, reason):
        """Whether a line of any front of this conversation has given this reason."""
        places = [place for place, conversation in self.places.items() if conversation == name[1:] and place.endswith(".err")]
        return any((self.world.root / place).exists() and reason.search((self.world.root / place).read_text()) for place in places)

    async def named(self, victims, name, former):
        """Each fresh server of this fault has a line that names the cause, and the host's row is obeyed. `former`: the servers before."""
        cause = next((victim for victim in victims if victim in REASONS), None)
        rule = self.rule(victims)
        for other in self.world.names:
            fresh, is_mine = self.fresh(other), other[1:] == self.conversation
            by_rule = rule if is_mine else False
            if not await self.until(lambda: len(self.world.living(other)) <= 1, 2 * LINE):
                self.bad("doubled", f"{other} runs {len(self.world.living(other))} times: {self.world.living(other)}")
            if by_rule and not fresh and former[other] and former[other] == self.world.server(other):
                self.bad("wrong", f"{other} goes on as {former[other]}, and this host's servers end with their connection ({self.away:.2f} s away)")
                continue
            if by_rule is None or by_rule:
                # It would have ended in any case, and its host is told why once for each key, of which an edited entry has another.
                if fresh and not self.rule_told & {other} and not (cause and other == name) and self.kind != "edit":
                    # Between two times it may be either: what was done to it, or the rule.
                    done = MAY_END.get(self.kind, RULE)
                    if not await self.until(lambda: self.says(other, RULE) or self.says(other, done) or self.has_said(other, OF_RULE), LINE):
                        self.bad("silent", f"{other} ended with its connection, and no line says why: {self.unread(conversation=other[1:])}")
                    self.rule_told.add(other)
                continue
            pending = self.pending.get(other[1:]) and re.compile("|".join(self.pending[other[1:]]))
            # One that a restart between two connections has begun nobody has ever used.
            needed = 1 if self.kind == "restart" else fresh
            if fresh and pending and await self.until(lambda: self.losses(other, pending) >= needed, LINE):
                self.remark(f"{self.entry}: ended by what was deleted or edited before")
                continue
            # A program that was edited is another one from the next orderly close on.
            event = "edit" if self.kind in CLOSES and self.world.edits else self.kind
            # All conversations have their servers from one list.
            is_mine |= self.kind == "edit" and self.entry == "all" and other[0] == name[0]
            reason = REASONS.get(cause) if other == name and cause else MAY_END.get(event) if is_mine else None
            if not await self.until(lambda: self.losses(other, reason) >= fresh or fresh and event in MAY_END and self.says(other, reason), LINE):
                self.bad("silent", f"{fresh} fresh servers of {other} after a kill of {'+'.join(victims) or self.kind}, of which the lines name "
                                   f"{self.losses(other, reason)}: {self.unread()}")
            may_end = is_mine and (other == name or event in ("sockets", "records", "edit")) and event in MAY_END
            if fresh and not may_end and (other != name or cause is None):
                self.bad("lost", f"{other} was started {fresh} times for no reason: {self.unread()}")
        if rule is not False:
            self.may_repeat = False
            return await asyncio.sleep(CONFIRMED)
        fresh = self.fresh(name)
        if self.other and not await self.until(lambda: self.losses(name, REASONS.get(cause), is_other=True) >= fresh, LINE):
            self.bad("silent", f"{fresh} fresh servers of {name} after a kill of {'+'.join(victims)}, of which the lines to the other host name "
                               f"{self.losses(name, REASONS.get(cause), is_other=True)}: {self.unread(is_other=True)}")
        lines = [line for lines in self.unread(conversation=self.conversation).values() for line in lines]
        told = [one for one in map(loss, lines) if one[1]]
        if self.kind in MAY_END or self.pending.get(name[1:]):
            self.may_repeat = False
            return await asyncio.sleep(CONFIRMED)
        if told and not fresh:
            # A front that was killed before it had confirmed a loss changes nothing: the next one tells it again.
            if self.may_repeat and {"front", "daemon"} & set(victims) or self.may_repeat and self.was_cut:
                self.remark(f"{self.entry}: a loss told once more after a kill that followed at once")
            else:
                self.bad("again", f"a loss is told, and the server is the same: {lines}")
        self.may_repeat = bool(fresh) and self.chance.random() < 0.5
        if fresh and not self.may_repeat:
            await asyncio.sleep(CONFIRMED)
        if cause and not fresh:
            self.bad("lost", f"{name} was killed, and there is no other one")
        if told and fresh and len(self.world.tools) > 1 and not any(of == name[0] for of, _, _ in told):
            self.bad("unnamed", f"of {self.world.names} {name} is a fresh server, and the lines are {lines}")
        if fresh and self.entry in OVER_HTTP:
            in_stream = any(loss(line)[1] for line in self.unread()["notifications"])
            self.note("told in the stream:", in_stream)
            self.remark(f"{self.entry}: a loss told in {'the stream' if in_stream else 'the log alone'}")
        if any("or the process that kept it" in line for _, _, line in told):
            self.remark("a line that leaves open whether server or keeper has ended")
        if len(told) > max(fresh, 1) and self.entry not in OVER_HTTP:
            self.remark(f"{self.entry}: a loss told more than once")
        if self.kind in ("claim", "probe") or not self.fresh(name):
            # There the one that came first has started the server.
            return
        for place, lines in self.unread(conversation=self.conversation).items():
            if place.startswith("front-") and place in self.read and "front" in victims:
                # It was killed before there was a fresh server: a thread of its own has written late what it had to say of the former one.
                continue
            if self.entry != "all" and any(RESUMED in line for line in lines) and not any(LOSS.search(line) for line in lines):
                self.bad("resumed", f"{name} is a fresh server; {place} says {lines}; all lines: {self.unread()}")

    def check(self, call, victims, touched):
        """What became of the call that was under way."""
        if not call:
            return
        executed = sum(words[3] == call.key for words in self.world.ledger("call"))
        if call.outcome == "not_sent" and executed:
            self.bad("wrong", f"{call.key} was executed, and is said not to have been sent")
        may_fail = touched or "front" in victims or self.kind in CLOSES or self.was_cut
        if call.text is None and not may_fail:
            self.bad("lost", f"{call.key} under way: {call.error}")
        # A session that has ended refuses what comes after its end.
        is_over = self.kind == "close" and self.entry in OVER_HTTP
        if call.error and call.outcome not in ("unknown", "not_sent") and not is_over:
            self.bad("wrong", f"{call.key}: {call.error}")

    def judge(self, calls, under_way):
        """Each answer is that of its call, and its count the one of the ledger. No call was executed twice."""
        entries = {}
        for name, pid, count, key in self.world.ledger("call"):
            entries.setdefault(key, []).append((name, pid, count))
        for call in [*calls, *under_way]:
            if call.text is not None and call.text.split() not in [[call.key, *entry] for entry in entries.get(call.key, [])]:
                self.bad("wrong", f"{call.key} has the answer {call.text}, and the ledger {entries.get(call.key)}")
            # Also that of another conversation has another name.
            if call.text is not None and call.name != call.text.split()[1]:
                self.bad("wrong", f"{call.key} of {call.name} has the answer {call.text}")
        for key, made in entries.items():
            if len(made) > 1 and key not in self.doubled:
                self.doubled.add(key)
                self.bad("doubled", f"{key}: {made}")
        self.judged = {name: len(self.world.starts(name)) for name in self.world.names}
        self.read = {place: len(lines) for place, lines in self.world.told().items()}


def plan(faults, seed, entries):
    """The worlds: entry, number and kinds of faults of each. Each kind comes as often as the others of its entry."""
    worlds = []
    for entry in entries:
        chance, kinds = random.Random(f"{seed} {entry}"), []
        while len(kinds) < -(-faults // len(entries)):
            kinds += chance.sample(KINDS[entry], len(KINDS[entry]))
        kinds = kinds[:-(-faults // len(entries))]
        worlds += [(entry, at // FAULTS, kinds[at:at + FAULTS]) for at in range(0, len(kinds), FAULTS)]
    return sorted(worlds, key=lambda world: world[1])


async def run_all(faults, seed, entries, logs, tell, begun):
    at_once = asyncio.Semaphore(WORLDS)

    async def one(entry, number, kinds):
        async with at_once:
            campaign = Campaign(seed, entry, number, kinds, logs / f"kills-{seed}-{entry}-{number}", tell)
            begun.append(campaign)
            await campaign.run()

    # Each world is closed also where another one fails, or all are interrupted.
    for failure in await asyncio.gather(*(one(*world) for world in plan(faults, seed, entries)), return_exceptions=True):
        if failure:
            raise failure


def run(faults, seed, entries, logs, tell):
    """The campaigns of one seed: those that have begun, where they were interrupted."""
    for former in logs.glob(f"kills-{seed}-*"):
        shutil.rmtree(former)
    begun = []
    try:
        asyncio.run(run_all(faults, seed, entries, logs, tell, begun))
    except KeyboardInterrupt:
        tell("interrupted")
    return begun


def table(campaigns):
    """The results, in Markdown, and whether all was well."""
    rows = {}
    for campaign in campaigns:
        for kind, counts in campaign.counts.items():
            row = rows.setdefault((campaign.entry, kind), dict.fromkeys(["faults", *BAD], 0))
            for what, count in counts.items():
                row[what] += count
    order = sorted(rows, key=lambda key: (ENTRIES.index(key[0]), key[1]))
    heads = ["faults", *BAD]
    total = {what: sum(row[what] for row in rows.values()) for what in heads}
    lines = [f"| entry point | fault | {' | '.join(heads)} |", "|" + " --- |" * (len(heads) + 2)]
    lines += [f"| {entry} | {kind} | {' | '.join(str(rows[entry, kind][what]) for what in heads)} |" for entry, kind in order]
    lines += [f"| all | | {' | '.join(str(total[what]) for what in heads)} |"]
    remarks = {}
    for campaign in campaigns:
        for what, count in campaign.remarks.items():
            remarks[what] = remarks.get(what, 0) + count
    lines += ["", *(f"{what}: {count}" for what, count in sorted(remarks.items()))]
    return "\n".join(lines) + "\n", not any(total[what] for what in BAD)

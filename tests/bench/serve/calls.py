"""Calls through each gateway, in turns: how long one takes, how many are answered, and what they cost the processor."""

import dataclasses, itertools, select, statistics, time

import figures, processes
from figures import MIB
from gateways import GATEWAYS, Direct
from wire import MODERN, OLDER, Lost, Refused

# An answer of 1 MiB in all, with what is around its text, also in its gateway.
ROOM = 1024
PROCESSOR = ["processor time of a call, ms", "/ serve"]
# Seconds without any answer.
PATIENCE = 60
# How often each gateway has its turn.
ROUNDS = 12


@dataclasses.dataclass
class Case:
    """Calls of a round whose answers have so many bytes, by so many clients."""

    bytes: int
    clients: int
    calls: int


CASES = [Case(100, 1, 400), Case(MIB, 1, 16), Case(100, 50, 1500), Case(MIB, 50, 100)]


@dataclasses.dataclass
class Round:
    """p50 and p99 of a call and its processor time in the gateway, in ms; calls per second."""

    p50: float
    p99: float
    rate: float
    cpu: float


def drive(clients, calls):
    """The seconds that each of so many calls took, and all of them. Each client has one in flight."""
    for client in clients:
        client.ready()
    by_file, started, took = {client.fileno(): client for client in clients}, {}, []
    with select.epoll() as poll:
        for file in by_file:
            poll.register(file, select.EPOLLIN)
        began = time.perf_counter()
        for file, client in itertools.islice(by_file.items(), calls):
            started[file] = time.perf_counter()
            client.call()
        while len(took) < calls:
            ready = poll.poll(PATIENCE)
            if not ready:
                raise Lost("no answer in time")
            for file, _ in ready:
                if not by_file[file].take():
                    continue
                now = time.perf_counter()
                took.append(now - started.pop(file))
                if len(took) + len(started) < calls:
                    started[file] = now
                    by_file[file].call()
        return took, time.perf_counter() - began


def turn(way, clients, case):
    """A round of one way."""
    pids = way.own_pids()
    if len(clients) == 1:
        # It may have to connect.
        drive(clients, 1)
    spent = lambda: sum(processes.processor_time(pid) for pid in pids)
    before = spent()
    took, seconds = drive(clients, case.calls)
    cpu = (spent() - before) / case.calls
    return Round(figures.at(0.5, took) * 1000, figures.at(0.99, took) * 1000, case.calls / seconds, cpu * 1000)


class Calls:
    """All ways at once, each with its clients, first of one era, then of the other."""

    def __init__(self, quick):
        self.rounds = 1 if quick else ROUNDS
        self.cases = [dataclasses.replace(case, calls=case.calls // (8 if quick else 1)) for case in CASES]
        self.ways, self.clients, self.refusals = {}, {}, {}

    def run(self):
        """Measures, and prints the tables."""
        measured = [each for era in (OLDER, MODERN) for each in self.measure_era(era)]
        for of, report in ((1, one_client), (50, many_clients)):
            report([each for each in measured if each[1].clients == of], self.refusals)
            print()

    def measure_era(self, era):
        try:
            for kind in (Direct, *GATEWAYS):
                self.start(kind, era)
            return [(era, case, self.measure(era, case)) for case in self.cases]
        finally:
            for name in list(self.ways):
                self.stop(name)

    def start(self, kind, era):
        """Starts a way, with clients for all cases, unless it does not speak this era."""
        way = self.ways[kind.name] = kind()
        way.start()
        if era == MODERN and (refusal := way.refusal()):
            self.refusals[kind.name] = refusal
            return self.stop(kind.name)
        self.clients[kind.name] = []
        while len(self.clients[kind.name]) < max(case.clients for case in self.cases):
            self.clients[kind.name].append(way.client(era).initialize())

    def stop(self, name):
        for client in self.clients.pop(name, []):
            client.close()
        self.ways.pop(name).stop()

    def measure(self, era, case):
        """The rounds of each way; of one that has failed, in words how."""
        length = case.bytes - (ROOM if case.bytes == MIB else 0)
        rounds = {name: [] for name in self.ways}

        def attempt(name, what):
            # What has failed in one round has no figures.
            if isinstance(rounds[name], str):
                return
            try:
                what(name, self.clients[name][: case.clients])
            except (Lost, Refused, OSError) as error:
                rounds[name] = f"failed: {error}".replace("|", " ")[:300]
                kind = type(self.ways[name])
                self.stop(name)
                self.start(kind, era)

        def prepare(_name, clients):
            for client in clients:
                client.prepare("answer", {"bytes": length}, length)
            clients[0].look()
            # Its buffers and code are warm, and each server has its answer ready.
            drive(clients, max(case.calls // 8, case.clients))

        for name in rounds:
            attempt(name, prepare)
        for name in figures.in_turn(rounds, self.rounds):
            attempt(name, lambda name, clients: rounds[name].append(turn(self.ways[name], clients, case)))
        return rounds


def column(rounds, name):
    return [getattr(one, name) for one in rounds]


def against(ours, theirs, name):
    """The ratio of a figure, as text; nothing where the others have no figures."""
    found = figures.ratio(column(ours, name), column(theirs, name)) if isinstance(theirs, list) else None
    return "" if found is None else f"{found:.2f}"


def middle(rounds, name):
    return statistics.median(column(rounds, name))


def rows(measured, refusals, width, cells):
    """The rows of a table. Those of a way that does not speak an era say so once."""
    said = set()
    for era, case, rounds in measured:
        what = f"{era}, {figures.size(case.bytes)}"
        for name, of in rounds.items():
            shown = cells(of, rounds) if isinstance(of, list) else [of, *[""] * (width - 1)]
            figures.row(what, name, *shown)
            what = ""
        for name, refusal in refusals.items() if era == MODERN else ():
            if name not in said:
                figures.row(what, name, f"does not speak it: {refusal}", *[""] * (width - 1))
                said.add(name)


def one_client(measured, refusals):
    p50 = ["p50, ms", "over direct", "/ direct", "/ serve"]
    figures.head("one client", "by", *p50, "p99, ms", "over direct", *PROCESSOR)

    def cells(of, rounds):
        direct, serve = rounds["direct"], rounds.get("serve")
        shown = [f"{middle(of, 'p50'):.2f}", over(of, direct, "p50"), against(of, direct, "p50"), against(of, serve, "p50")]
        return [*shown, f"{middle(of, 'p99'):.2f}", over(of, direct, "p99"), *processor(of, serve)]

    rows(measured, refusals, 8, cells)


def over(of, direct, name):
    return f"{statistics.median(ours - theirs for ours, theirs in zip(column(of, name), column(direct, name))):+.2f}"


def processor(of, serve):
    """Its cells; a server without a gateway has none."""
    return [f"{middle(of, 'cpu'):.2f}", against(of, serve, "cpu")] if any(column(of, "cpu")) else ["", ""]


def many_clients(measured, refusals):
    figures.head("fifty clients", "by", "calls/s", "/ direct", "/ serve", "p50, ms", "p99, ms", *PROCESSOR)

    def cells(of, rounds):
        direct, serve = rounds["direct"], rounds.get("serve")
        shown = [f"{middle(of, 'rate'):.0f}", against(of, direct, "rate"), against(of, serve, "rate")]
        return [*shown, f"{middle(of, 'p50'):.2f}", f"{middle(of, 'p99'):.2f}", *processor(of, serve)]

    rows(measured, refusals, 7, cells)

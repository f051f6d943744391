"""Sessions of one service, each with one state value of 100 bytes."""

import statistics

from figures import head, in_turn, row
from idle import settled
from load import load
from rounds import ROUNDS, quickest
from sides import Daemon, RedisWithFile, running

# Fewer have too little for its difference to tell.
TELLING = 1_000


class Sessions:
    def __init__(self, quick, most):
        most = 1_000 if quick else most
        self.sizes = sorted({size for size in (10 ** power for power in range(1, 8)) if size < most} | {most})
        self.calls, self.starts = (40, 2) if quick else (500, 3)

    def run(self):
        head("sessions", "of", "read, µs", "write, µs", "bytes each", "after a restart", "SIGKILL to ready, ms", "to the first answer")
        with running(Daemon, RedisWithFile) as sides:
            empty = {side.name: side.resident() for side in sides}
            before = 0
            for size in self.sizes:
                for side in sides:
                    load("fill", side.of, name="s", **{"from": before, "until": size})
                    # What was written is still being brought from one file to another.
                    settled(side.process.pid)
                yield from self.look(size, sides, empty)
                before = size

    @staticmethod
    def start(side):
        ready = side.start_again()
        side.first_answer("s-7")
        return ready, side.since_killed()

    def look(self, size, sides, empty):
        took = {(side.name, ask): [] for side in sides for ask in ("get", "set")}
        for side in in_turn(sides, ROUNDS):
            for ask in ("get", "set"):
                figures = load("latency", side.of, name="s", until=size, ask=ask, calls=self.calls)
                took[side.name, ask].append(figures["p50"])
        for side in sides:
            each = lambda: (side.resident() - empty[side.name]) / size if size >= TELLING else None
            resident = each()
            ready, answered = (statistics.median(of) for of in zip(*(self.start(side) for _ in range(self.starts))))
            read, write = (quickest(took[side.name, ask]) for ask in ("get", "set"))
            found = {"read_us": read, "write_us": write, "bytes": resident, "bytes_again": each()}
            found |= {"ready_ms": ready, "answered_ms": answered}
            words = lambda value: "" if value is None else f"{value:,.0f}"
            row(f"{size:,}", side.name, *map(words, found.values()))
            yield {"size": size, "of": side.name, **found}

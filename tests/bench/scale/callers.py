"""Callers at once, each on a connection of its own and with a session of its own."""

import statistics

from figures import head, in_turn, row
from load import load
from sides import Daemon, Redis, RedisWithFile, running

SIZES = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000]
ROUNDS = 3


class Callers:
    def __init__(self, quick, _most):
        self.sizes = [1, 10, 100] if quick else SIZES
        self.seconds = 0.2 if quick else 0.7

    def run(self):
        head("callers", "of", "call", "calls/s", "processors: who answers", "who asks", "idle")
        with running(Daemon, Redis, RedisWithFile) as sides:
            for side in sides:
                load("fill", side.of, name="c", until=self.sizes[-1])
            # Reading is the same with a file and without.
            all = [(side, ask) for side in sides for ask in ("get", "set") if (side, ask) != (sides[2], "get")]
            for size in self.sizes:
                took = {(side.name, ask): [] for side, ask in all}
                for side, ask in in_turn(all, ROUNDS):
                    order = {"name": "c", "ask": ask, "callers": size, "seconds": self.seconds, "pids": [side.process.pid]}
                    took[side.name, ask].append((side, load("rate", side.of, **order)))
                for (name, ask), rounds in took.items():
                    yield self.told(size, name, ask, rounds)

    @staticmethod
    def told(size, name, ask, rounds):
        """A row: of processor time how many processors' it was."""
        share = lambda of: statistics.median(came["busy"][of(side)] / came["seconds"] for side, came in rounds)
        found = {
            "rate": statistics.median(came["rate"] for _, came in rounds),
            "answers": share(lambda side: str(side.process.pid)),
            "asks": share(lambda _: "load"),
            "idle": share(lambda _: "idle"),
        }
        rate, *shares = found.values()
        row(f"{size:,}", name, ask, f"{rate:,.0f}", *(f"{value:.2f}" for value in shares))
        return {"size": size, "of": name, "ask": ask, **found}

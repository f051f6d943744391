"""Events of 100 bytes in one stream of a session: what appending one more takes, and replaying a hundred."""

from figures import head, in_turn, row
from load import load
from rounds import ROUNDS, quickest
from sides import Daemon, Redis, RedisWithFile, running

ASKS = {"append": "append of one, µs", "begin": "first 100, µs", "end": "last 100, µs"}


class Events:
    def __init__(self, quick, _most):
        self.sizes = [10 ** power for power in range(1, 4 if quick else 6)]
        self.calls = 20 if quick else 300

    def run(self):
        head("events in a session", "of", *ASKS.values())
        with running(Daemon, Redis, RedisWithFile) as sides:
            for size in self.sizes:
                # So many that what is appended makes each of them longer by a tenth at most.
                order = {"name": f"e{size}", "events": size, "until": max(1, 11 * ROUNDS * self.calls // size)}
                took = {(side.name, ask): [] for side in sides for ask in ASKS}
                for side in sides:
                    load("fill", side.of, **order)
                for side in in_turn(sides, ROUNDS):
                    for ask in ASKS:
                        took[side.name, ask].append(load("latency", side.of, ask=ask, calls=self.calls, **order)["p50"])
                for side in sides:
                    found = {f"{ask}_us": quickest(took[side.name, ask]) for ask in ASKS}
                    row(f"{size:,}", side.name, *(f"{value:,.0f}" for value in found.values()))
                    yield {"size": size, "of": side.name, **found}

"""Values from 10 bytes to 1 MiB."""

from figures import MIB, head, in_turn, row
from load import load
from rounds import ROUNDS, quickest
from sides import Daemon, Redis, RedisWithFile, running

SIZES = [10, 100, 1_000, 10_000, 30_000, 60_000, 100_000, 300_000, MIB]
SESSIONS = 20


class Values:
    def __init__(self, quick, _most):
        self.sizes = [10, 10_000, MIB] if quick else SIZES
        self.calls = 40 if quick else 500

    def run(self):
        head("bytes of a value", "of", "read, µs", "write, µs")
        with running(Daemon, Redis, RedisWithFile) as sides:
            for size in self.sizes:
                order = {"name": f"v{size}", "until": SESSIONS, "bytes": size}
                # A large one takes long enough to be told by fewer.
                calls = max(self.calls // (1 + size // 20_000), 10)
                took = {(side.name, ask): [] for side in sides for ask in ("get", "set")}
                for side in sides:
                    load("fill", side.of, **order)
                for side in in_turn(sides, ROUNDS):
                    for ask in ("get", "set"):
                        took[side.name, ask].append(load("latency", side.of, ask=ask, calls=calls, **order)["p50"])
                for side in sides:
                    read, write = (quickest(took[side.name, ask]) for ask in ("get", "set"))
                    row(f"{size:,}", side.name, f"{read:,.0f}", f"{write:,.0f}")
                    yield {"size": size, "of": side.name, "read_us": read, "write_us": write}

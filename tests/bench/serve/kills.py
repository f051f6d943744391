"""SIGKILL of a gateway in the middle of a call, and a start of the same command."""

import statistics, time

import figures
from gateways import GATEWAYS
from held import Held
from wire import Lost, Refused

# Progress of the call that is open; all but the first is told while no gateway runs.
STEPS = 20
# Seconds in which a client that asks again has an answer.
PATIENCE = 30


class Kill:
    """One kill, and what came of it."""

    def __init__(self, kind, daemon):
        self.gateway = kind().start()
        try:
            self.kill(daemon)
        finally:
            self.gateway.stop()

    def kill(self, daemon):
        gateway = self.gateway
        client = gateway.client().initialize()
        for _ in range(3):
            count = client.tool("increment")
        held = Held(client, gateway.directory, STEPS)
        event, why = held.last_event()
        began = time.perf_counter()
        gateway.kill(daemon)
        client.close()
        lives = held.go_on()
        gateway.start()
        self.listens = (time.perf_counter() - began) * 1000
        after, self.session = self.call(gateway, client)
        self.answered = (time.perf_counter() - began) * 1000
        self.count = "kept" if after == count else "lost"
        self.rest = self.fetch(client, held, event, why if lives else f"{why or 'its server is gone'}")

    @staticmethod
    def call(gateway, client):
        """The count, and what becomes of the session. A client whose session is refused begins another."""
        try:
            said = client.tool("get", seconds=PATIENCE)
            return said, "goes on" if client.session else "there is none"
        except Refused as refused:
            other = gateway.client().initialize()
            try:
                return other.tool("get", seconds=PATIENCE), f"lost: status {refused.args[0]}"
            finally:
                other.close()

    @staticmethod
    def fetch(client, held, event, why):
        """The rest of the call that was open, in words."""
        if not event:
            return f"lost: {why}"
        try:
            client.connect()
            client.resume(event)
            reply = client.whole(10)
            return held.rest(reply) if reply.status == 200 else f"lost: status {reply.status}"
        except (Lost, OSError) as error:
            return f"lost: {error}"
        finally:
            client.close()


class Kills:
    """All gateways in turns."""

    def __init__(self, quick):
        self.rounds = 1 if quick else 9

    def run(self):
        """Measures, and prints the table."""
        kinds = {kind.name: (kind, False) for kind in GATEWAYS}
        kinds |= {f"{kind.name} and its daemon": (kind, True) for kind in GATEWAYS if kind.daemon}
        seen = {name: [] for name in kinds}
        for name in figures.in_turn(kinds, self.rounds):
            seen[name].append(Kill(*kinds[name]))
        figures.head(
            "SIGKILL of",
            "ms until it listens again",
            "ms to the first answer",
            "of",
            "/ serve",
            "the session",
            "the server's count",
            "the rest of the open call",
        )
        answered = lambda name: [one.answered for one in seen[name]]
        words = lambda of: "; ".join(sorted(set(of)))
        for name, of in seen.items():
            took = answered(name)
            cells = [f"{statistics.median([one.listens for one in of]):.0f}", f"{statistics.median(took):.0f}"]
            cells += [f"{min(took):.0f} to {max(took):.0f}", f"{figures.ratio(took, answered('serve')):.2f}"]
            told = [words(one.session for one in of), words(one.count for one in of), words(one.rest for one in of)]
            figures.row(name, *cells, *told)
        print()

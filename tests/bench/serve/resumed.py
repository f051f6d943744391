"""From the request for the rest of a call, whose connection was cut, to its first byte, and to its end."""

import statistics, time

import figures
from gateways import GATEWAYS
from held import Held
from wire import Lost, Refused

# Progress that the call tells; all but the first while its client is away.
STEPS = [20, 1000]


def first_byte(client, ask):
    """Asks on a new connection. The ms to the first byte of the body."""
    client.close()
    began = time.perf_counter()
    client.connect()
    ask()
    client.read_until(lambda reply: reply.body, 10)
    return (time.perf_counter() - began) * 1000


def resumed(client, event):
    """The ms to the first byte, and to the end."""
    first = first_byte(client, lambda: client.resume(event))
    began = time.perf_counter()
    client.whole()
    return first, first + (time.perf_counter() - began) * 1000


def resume(gateway, steps):
    """The ms to the first byte and to the end, those of a call on a new connection, and how much came; or why not."""
    client = gateway.client().initialize()
    try:
        held = Held(client, gateway.directory, steps)
        event, why = held.last_event()
        client.close()
        held.go_on()
        # It tells the rest to nobody.
        held.wait_done()
        if not event:
            return f"cannot: {why}"
        # Once to its end, so that all of it is stored; the second time it is only read.
        resumed(client, event)
        if client.reply.status != 200:
            return f"cannot: status {client.reply.status}"
        came = [held.rest(client.reply)]
        first, whole = resumed(client, event)
        came.append(held.rest(client.reply))
        call = first_byte(client, lambda: client.send("tools/call", {"name": "get", "arguments": {}}))
        client.whole()
        return first, whole, call, "; ".join(sorted(set(came)))
    except (Lost, Refused, OSError) as error:
        return f"cannot: {error}"
    finally:
        client.close()


class Resumed:
    """All gateways in turns."""

    def __init__(self, quick):
        self.rounds = 2 if quick else 40

    def run(self):
        """Measures, and prints the table."""
        of = ["ms to its first byte", "a call on a new connection", "ratio", "ms to its end", "what came"]
        figures.head("resumed stream", "by", *of)
        every = gateways = [gateway() for gateway in GATEWAYS]
        try:
            for gateway in every:
                gateway.start()
            for steps in STEPS:
                gateways = self.table(gateways, steps)
        finally:
            for gateway in every:
                gateway.stop()
        print()

    def table(self, gateways, steps):
        """Prints rows. The gateways that can."""
        seen = {gateway.name: [] for gateway in gateways}
        for gateway in figures.in_turn(gateways, self.rounds):
            # It was tried.
            if not isinstance(seen[gateway.name], str):
                found = resume(gateway, steps)
                seen[gateway.name] = [*seen[gateway.name], found] if isinstance(found, tuple) else found
        what = f"{steps - 1} messages and the answer"
        for name, of in seen.items():
            if isinstance(of, str):
                figures.row(what, name, of, "", "", "", "")
            else:
                first, whole, call, _ = (list(one) for one in zip(*of))
                came = sorted({one[3] for one in of})
                shown = [f"{statistics.median(one):.2f}" for one in (first, call)] + [f"{figures.ratio(first, call):.2f}"]
                figures.row(what, name, *shown, f"{statistics.median(whole):.1f}", "; ".join(came))
            what = ""
        return [gateway for gateway in gateways if isinstance(seen[gateway.name], list)]

"""What gateways hold in memory for their sessions."""

import time

import figures, processes
from figures import KIB
from gateways import GATEWAYS

COUNTS = [0, 1, 50]
# Seconds after which processes have let go of what they needed to start.
SETTLED = 2.5


def pss(pids):
    """MiB of these processes together; none if one of them can't be looked into."""
    found = [processes.held(pid)[1] for pid in pids]
    return None if None in found else sum(found)


def grow(gateway, settled):
    """The memory, own processes and servers of a gateway with so many sessions each, and whether it names them."""
    held, clients = [], []
    try:
        gateway.start()
        for count in COUNTS:
            while len(clients) < count:
                clients.append(gateway.client().initialize())
                clients[-1].prepare("answer", {"bytes": 100}, 100)
                clients[-1].look()
            time.sleep(settled)
            own, servers = gateway.pids()
            held.append((pss(own), len(own), len(servers)))
        return held, any(client.session for client in clients)
    finally:
        for client in clients:
            client.close()
        gateway.stop()


class Sessions:
    """Sessions that have initialised and have made one call of 100 bytes."""

    def __init__(self, quick):
        self.settled = SETTLED / 5 if quick else SETTLED

    def run(self):
        """Measures one gateway at a time, as they would share pages of their interpreter; prints the table."""
        held, names = {}, {}
        for kind in GATEWAYS:
            held[kind.name], names[kind.name] = grow(kind(), self.settled)
        self.table(held, names)

    def table(self, held, names):
        counted = [f"{count} session{'s' * (count != 1)}, MiB" for count in COUNTS]
        last = f"{COUNTS[-1]} sessions"
        figures.head("memory (PSS)", *counted, "a session, KiB", "/ serve", f"processes with {last}", f"servers with {last}")
        each = {}
        for name, of in held.items():
            megabytes = [one[0] for one in of]
            if None in megabytes:
                figures.row(name, *["not readable"] * len(COUNTS), "", "", str(of[-1][1]), str(of[-1][2]))
                continue
            each[name] = (megabytes[-1] - megabytes[1]) / (COUNTS[-1] - COUNTS[1]) * KIB
            # A heap with room for fifty sessions may even have shrunk meanwhile.
            ratio = f"{each[name] / each['serve']:.2f}" if each.get("serve", 0) > 0 and each[name] > 0 else ""
            shown = [f"{one:.1f}" for one in megabytes]
            servers = f"{of[-1][2]}" if names[name] else f"{of[-1][2]}; it names no session"
            figures.row(name, *shown, f"{each[name]:.0f}", ratio, str(of[-1][1]), servers)
        print()

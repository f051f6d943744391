"""What the processes between a host and its server hold."""

import time

from processes import held

# A keeper lets go of what it needed to start a second after a front has attached.
SETTLED = 2.5


class Memory:
    """Collects rows, since the calls' table is being printed meanwhile."""

    def __init__(self):
        self.rows = []
        self.pids = {}

    def note(self, way, host):
        """At once: who asks a keeper for its backend's pid makes it work, and it settles but once."""
        self.pids[way.name] = way.pids(host)

    def look(self, when, ways):
        time.sleep(SETTLED)
        for way in ways:
            for what, pid in self.pids[way.name].items():
                if what == "backend" and way.name != "direct":
                    continue
                rss, pss = held(pid)
                self.rows.append([when, way.name, what, f"{rss:.1f}", f"{pss:.1f}" if pss is not None else "not readable"])
                when = ""

    def table(self):
        print("| memory | of | process | RSS, MiB | PSS, MiB |\n| --- | --- | --- | --- | --- |")
        for row in self.rows:
            print("|", " | ".join(row), "|")

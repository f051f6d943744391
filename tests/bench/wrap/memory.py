"""What the processes between a host and its server hold."""

import pathlib, time

# A keeper lets go of what it needed to start a second after a front has attached.
SETTLED = 2.5


def held(pid):
    """MiB resident, and the proportional share, in which pages of other processes as well count in part."""
    try:
        text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        # A keeper can't be looked into but by root.
        text = pathlib.Path(f"/proc/{pid}/status").read_text().replace("VmRSS:", "Rss:")
    of = lambda name: int(text.split(f"\n{name}:")[1].split()[0]) / 1024 if f"\n{name}:" in text else None
    return of("Rss"), of("Pss")


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

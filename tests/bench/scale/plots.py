"""Draws what a directory has of figures.json and fleet.json, into that directory: the same figures give the same bytes.

Usage: target/matplotlib/bin/python tests/bench/scale/plots.py DIRECTORY, as tests/bench/run scale and fleet do it.
"""

import json, logging, pathlib, sys

import matplotlib

# A font need not be here to be named.
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator

plt.rcParams.update(
    {
        # Or ids would be drawn at random.
        "svg.hashsalt": "mcp-sessiond",
        # Text as text, which can be found and is a quarter as large. These fonts are about as wide as the one it is measured with.
        "svg.fonttype": "none",
        "font.family": ["DejaVu Sans", "Verdana", "sans-serif"],
        "font.size": 9.5,
        "axes.titlesize": 10.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#dddddd",
        "grid.linewidth": 0.6,
        "legend.frameon": False,
        "lines.linewidth": 1.8,
        "lines.markersize": 5,
    }
)

# Told apart without colours, too: by line, marker and filling.
OURS = {"color": "#0b3d91", "linestyle": "-", "marker": "o"}
NOTHING = {"color": "#d1495b", "linestyle": "--", "marker": "s", "markerfacecolor": "white"}
FILE = {"color": "#6b6b6b", "linestyle": ":", "marker": "^"}
SIDES = {"mcp-sessiond": OURS, "Redis": NOTHING, "Redis, appendonly": FILE}
WAYS = [OURS, NOTHING, FILE, {"color": "#2a7f62", "linestyle": "-.", "marker": "D"}]


def lines_of(rows, value, by=lambda row: row["of"]):
    """Sizes and values, by whose they are."""
    lines = {}
    for row in rows:
        if row.get(value) is not None:
            lines.setdefault(by(row), []).append((row["size"], row[value]))
    return lines


def panel(axes, title, across, up, lines, log=True):
    """One diagram: its lines by name, in the styles of SIDES or in turn."""
    axes.set_title(title)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    for number, (name, points) in enumerate(lines.items()):
        axes.plot(*zip(*points), label=name, **SIDES.get(name, WAYS[number % len(WAYS)]))
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.minorticks_off()
    sizes = sorted({size for points in lines.values() for size, _ in points})
    if len(sizes) < 5 and sizes[-1] < 10 * sizes[0]:
        axes.set_xticks(sizes, map(str, sizes))
    if log:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        # A line that is flat is to look flat: at least a decade and a half.
        while high / low < 30:
            low, high = low / 1.2, high * 1.2
        axes.set_ylim(low, high)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 300 else (1,)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axes.minorticks_off()
    else:
        # Room for the names of the lines.
        axes.set_ylim(bottom=0, top=max(axes.get_ylim()[1], 1) * (1 + 0.1 * len(lines)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def sessions(rows):
    both = lines_of(rows, "read_us"), lines_of(rows, "write_us")
    return [
        ("Reading a value of any session", "sessions", "µs, one caller, best round", both[0]),
        ("Writing it", "sessions", "µs, one caller, best round", both[1]),
        ("Memory of a session", "sessions", "bytes, after a restart", lines_of(rows, "bytes_again")),
        ("From SIGKILL to the first answer", "sessions", "ms", lines_of(rows, "answered_ms")),
    ]


def leases(rows):
    return [
        ("Claiming one more", "leases of one host", "µs, median", lines_of(rows, "claim_us")),
        ("From SIGKILL to ready", "leases of one host", "ms", lines_of(rows, "ready_ms")),
    ]


def events(rows):
    of = lambda value: lines_of(rows, value)
    return [
        ("Appending one", "events in the session", "µs, one caller, best round", of("append_us")),
        ("Replaying the first 100, or all", "events in the session", "µs, one caller, best round", of("begin_us")),
        ("Replaying the last 100, or all", "events in the session", "µs, one caller, best round", of("end_us")),
    ]


def callers(rows):
    of = lambda ask: lines_of([row for row in rows if row["ask"] == ask], "rate")
    return [
        ("Reading a value", "callers at once", "calls a second", of("get")),
        ("Writing it", "callers at once", "calls a second", of("set")),
    ]


def values(rows):
    return [
        ("Reading a value", "bytes", "µs, one caller, best round", lines_of(rows, "read_us")),
        ("Writing it", "bytes", "µs, one caller, best round", lines_of(rows, "write_us")),
    ]


def backends(rows):
    held = {kind: lines_of(rows, f"{kind}_mib", lambda _: kind) for kind in ("daemon", "keeper", "front", "server")}
    merged = {name: points for lines in held.values() for name, points in lines.items()}
    return [
        ("Memory of a process", "servers kept", "MiB (proportional share)", merged),
        ("mcp-sessiond status", "servers kept", "ms", lines_of(rows, "status_ms")),
        ("Wakings of the idle daemon", "servers kept", "a second", lines_of(rows, "wakings"), False),
    ]


def fleet(rows):
    names = {"get": "state get", "set": "state set", "append": "append of one"}
    by = lambda row: names[row["ask"]]
    writes = [row for row in rows if row["ask"] == "set"]
    whose = {"daemons": "daemons", "postgresql": "PostgreSQL", "asks": "what asks", "idle": "idle"}
    spent = {who: lines_of(writes, who, lambda _: whose[who]) for who in whose}
    merged = {name: points for lines in spent.values() for name, points in lines.items()}
    return [
        ("All daemons together", "daemons on one PostgreSQL", "calls a second", lines_of(rows, "rate", by), False),
        ("Who has the processors, state set", "daemons on one PostgreSQL", "processors", merged, False),
    ]


def draw(path, part, panels):
    """One picture, with a legend below that holds for all of it where all lines have the same names."""
    columns = 2 if len(panels) in (2, 4) else 3
    rows = -(-len(panels) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(4.1 * columns, 3.1 * rows + 0.5), squeeze=False)
    for axes, one in zip(grid.flat, panels):
        panel(axes, *one)
    found = [axes.get_legend_handles_labels() for axes in grid.flat]
    alike = max(found, key=lambda one: len(one[1]))
    if len(alike[1]) > 1 and all(set(labels) <= set(alike[1]) for _, labels in found):
        figure.legend(*alike, loc="lower left", ncols=len(alike[1]), bbox_to_anchor=(0.01, 0))
    else:
        for axes in grid.flat:
            if len(axes.get_legend_handles_labels()[1]) > 1:
                if axes.get_yscale() == "log":
                    axes.set_ylim(top=axes.get_ylim()[1] * 4)
                axes.legend(loc="upper left", fontsize="small", ncols=2)
    machine = part["machine"]
    said = f"{part['date']}, {machine['processors']} processors, load {part['load']['before']:g} before"
    figure.text(0.99, 0.02, said, ha="right", color="#555555", size=8)
    figure.tight_layout(rect=(0, 0.13 / rows, 1, 1), w_pad=2)
    # No date, or it would differ each time.
    figure.savefig(path, metadata={"Date": None}, facecolor="white")
    plt.close(figure)


DRAWN = {
    "sessions": sessions,
    "leases": leases,
    "events": events,
    "callers": callers,
    "values": values,
    "backends": backends,
    "fleet": fleet,
}

directory = pathlib.Path(sys.argv[1])
for name in ("figures.json", "fleet.json"):
    if (file := directory / name).exists():
        for part, of in json.loads(file.read_text()).items():
            draw(directory / f"{part}.svg", of, DRAWN[part](of["rows"]))
            print(directory / f"{part}.svg")

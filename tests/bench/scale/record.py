"""The file that has the figures."""

import datetime, json, os, pathlib, platform, re, subprocess

import installed
from figures import KIB


def machine():
    """What the figures are of."""
    read = lambda path: pathlib.Path(path).read_text()
    model = re.search(r"model name\s*: (.*)", read("/proc/cpuinfo"))
    memory = int(read("/proc/meminfo").split("MemTotal:")[1].split()[0]) * KIB
    return {
        "processor": model[1] if model else platform.machine(),
        "processors": os.cpu_count(),
        "memory_gib": round(memory / (1 << 30)),
        "system": f"{platform.system()} {platform.release()}",
    }


def version(command, pattern=r"(\d+(?:\.\d+)+)"):
    """What a program says of itself."""
    said = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(pattern, said)[1]


class Record:
    """A part that is measured takes the place of what the file had of it; the rest stays."""

    def __init__(self, path, versions):
        self.path = path
        self.parts = json.loads(path.read_text()) if path.exists() else {}
        self.versions = {"mcp-sessiond": version(installed.BINARY), **versions}

    def keep(self, part, begun_with, rows):
        self.parts[part] = {
            "date": datetime.date.today().isoformat(),
            "machine": machine(),
            "load": {"before": round(begun_with, 1), "after": round(os.getloadavg()[0], 1)},
            "versions": self.versions,
            "rows": [{name: shortened(value) for name, value in row.items()} for row in rows],
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(said(self.parts))


def shortened(value):
    """To four digits, which is more than a figure is worth."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def said(parts):
    """As JSON, with a line for each row."""
    rows = lambda of: ",\n".join(f"      {json.dumps(row)}" for row in of)
    rest = lambda of: json.dumps({name: value for name, value in of.items() if name != "rows"})
    one = lambda name, of: f'  {json.dumps(name)}: {{\n    {rest(of)[1:-1]},\n    "rows": [\n{rows(of["rows"])}\n    ]\n  }}'
    return "{\n" + ",\n".join(one(name, of) for name, of in parts.items()) + "\n}\n"

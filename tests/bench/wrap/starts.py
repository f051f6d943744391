"""From the spawn of a stdio server to its answer to tools/list."""

import statistics, time

from ways import Direct, Porter, Proxy, Wrap


def listed(way):
    """The ms."""
    began = time.perf_counter()
    host = way.spawn()
    host.initialize().request("tools/list", {})
    took = (time.perf_counter() - began) * 1000
    host.close()
    return took


class First:
    """A keeper and a server are started."""

    def __init__(self, wrap):
        self.wrap = wrap

    def spawn(self):
        self.wrap.another()
        return self.wrap.spawn()


def cold(kind, server):
    """Nothing is there yet."""
    began = time.perf_counter()
    way = kind(server)
    try:
        starting = (time.perf_counter() - began) * 1000
        return starting + listed(way)
    finally:
        way.stop()


def cli(porter):
    """One call by `mcporter call`, process start and all."""
    began = time.perf_counter()
    porter.run("call", "kept.echo", "message=hello")
    return (time.perf_counter() - began) * 1000


def measure(what, server, times):
    wrap, another, proxy, porter = Wrap(server), Wrap(server), Proxy(server), Porter(server)
    kept = {"wrap": wrap, "mcp-proxy": proxy, "mcporter": porter}
    try:
        for way in [*kept.values(), another]:
            listed(way)
        took = {}
        for _ in range(times):
            turn = {"direct": listed(Direct(server))}
            turn["wrap, cold: no daemon, no keeper"] = cold(Wrap, server)
            turn["wrap, first: no keeper"] = listed(First(another))
            turn["wrap, warm: reconnected"] = listed(wrap)
            turn["mcp-proxy, cold"] = cold(Proxy, server)
            turn["mcp-proxy, warm"] = listed(proxy)
            turn["mcporter serve, cold"] = cold(Porter, server)
            turn["mcporter serve, warm"] = listed(porter)
            turn["mcporter call, warm (one call, not tools/list)"] = cli(porter)
            for name, ms in turn.items():
                took.setdefault(name, []).append(ms)
    finally:
        for way in [*kept.values(), another]:
            way.stop()
    for name, of in took.items():
        ratio = statistics.median(ours / theirs for ours, theirs in zip(of, took["direct"]))
        cells = [what, name, f"{statistics.median(of):.1f}", f"{min(of):.1f} to {max(of):.1f}", f"{ratio:.2f}"]
        print("|", " | ".join(cells), "|", flush=True)
        what = ""


def table(servers):
    print("| spawn to tools/list | by | ms | of | / direct |\n| --- | --- | --- | --- | --- |")
    for what, server, times in servers:
        measure(what, server, times)

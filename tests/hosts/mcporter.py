"""mcporter's command line: one process, one call, of a server that its file names."""

import served
from harness import INSTALLED

NAME, PACKAGE = "mcporter", ("npm", "mcporter", "0.12.3")
MCPORTER = INSTALLED / "mcporter" / "node_modules" / ".bin" / "mcporter"


def url_call(world, url, token=None, transport="http"):
    """`mcporter config add`, then `mcporter call`."""
    config = world.project / "config" / "mcporter.json"
    config.unlink(missing_ok=True)
    header = ["--header", f"Authorization=Bearer {token}"] if token else []
    code, said = world.finish([MCPORTER, "config", "add", "counter", url, "--transport", transport, *header])
    world.check("`mcporter config add NAME URL` takes the address", code == 0, said)
    return world.finish([MCPORTER, "call", "counter.count", "--no-oauth", "--timeout", "30000"])


SCENARIOS = served.single_calls(url_call)
OBSERVED = []

"""perf's report on where a call of 100 bytes by one client spends the processor's time in `serve`, its daemon and its keeper."""

import itertools, shutil, signal, subprocess, sys

import processes
from calls import drive
from gateways import Serve

# Lines of a report.
LINES = 25
CALLS = 200


class Spent:
    """Calls for some seconds while perf looks."""

    def __init__(self, quick):
        self.seconds = 3 if quick else 20

    def run(self):
        """Prints where the time went: by process and library, then by function."""
        if not shutil.which("perf"):
            sys.exit("tests/bench/serve.py: install perf first (linux-perf)")
        gateway = Serve()
        data = gateway.directory / "perf.data"
        try:
            client = gateway.start().client().initialize()
            client.prepare("answer", {"bytes": 100}, 100)
            drive([client], CALLS)
            pids = {pid: processes.arguments_of(pid)[1] for pid in gateway.own_pids()}
            # A cycle counter is not there in every virtual machine; the processor's clock is.
            record = ["perf", "record", "-e", "cpu-clock", "-F", "1999", "-g", "-o", data, "-p", ",".join(map(str, pids))]
            perf = subprocess.Popen([str(part) for part in record], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            calls = self.watch(client)
            perf.send_signal(signal.SIGINT)
            perf.wait()
            client.close()
            print(f"{calls} calls; processes: {', '.join(f'{pid} {verb}' for pid, verb in pids.items())}\n")
            self.report(data, "pid,dso")
            self.report(data, "pid,symbol")
        finally:
            gateway.stop()

    def watch(self, client):
        """Calls until the time is over. How many."""
        spent = 0
        for number in itertools.count(1):
            spent += drive([client], CALLS)[1]
            if spent > self.seconds:
                return number * CALLS

    @staticmethod
    def report(data, by):
        command = ["perf", "report", "--stdio", "--no-children", "-g", "none", "-F", f"overhead,{by}", "-i", str(data)]
        said = subprocess.run(command, capture_output=True, text=True).stdout
        lines = [line.rstrip() for line in said.splitlines() if line.strip() and not line.startswith("#")]
        print(f"by {by}:", *lines[:LINES], "", sep="\n")
